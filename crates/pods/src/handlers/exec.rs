//! A command inside the container. One that takes too long is killed by the runtime.

use std::time::Duration;

use crablet_cri::{ErrorKind, Runtime};
use crablet_model::duration;

use super::{Answer, MOST_OF_AN_ANSWER, Trouble};

pub(crate) async fn ask(
    runtime: &dyn Runtime,
    container_id: &str,
    command: &[String],
    timeout: Duration,
) -> Result<Answer, Trouble> {
    match runtime.exec_sync(container_id, command, Some(timeout)).await {
        Ok(output) => {
            let mut bytes = output.stdout;
            bytes.extend_from_slice(&output.stderr);
            bytes.truncate(MOST_OF_AN_ANSWER);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok(if output.exit_code == 0 { Answer::Success(text) } else { Answer::Failure(text) })
        }
        Err(error) if error.kind == ErrorKind::DeadlineExceeded => {
            let (command, timeout) = (command.join(" "), duration::Go(timeout));
            Ok(Answer::Failure(format!("command timed out: {command:?} timed out after {timeout}")))
        }
        Err(error) => Err(Trouble::unknown(error.with_code())),
    }
}
