//! Commands that are run in containers. A test says what comes of them; nothing goes wrong with them by chance.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::FakeRuntime;
use super::calls::{no_processes, unavailable};
use super::state::not_found;
use crate::port::{CommandOutput, CriError, ErrorKind, Result};

/// What comes of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Ends {
        after: Duration,
        output: CommandOutput,
    },
    Hangs,
    /// The runtime cannot run it.
    Refused(String),
}

impl Command {
    pub fn exits(exit_code: i32, stdout: &str) -> Self {
        let output = CommandOutput { stdout: stdout.into(), stderr: Vec::new(), exit_code };
        Self::Ends { after: Duration::ZERO, output }
    }
}

/// Decides by the container's name, its attempt and the command.
pub type Commands = Arc<dyn Fn(&str, u32, &[String]) -> Command + Send + Sync>;

impl FakeRuntime {
    /// Without it, containers have no processes to be reached.
    pub fn set_commands(&self, commands: Commands) {
        self.state().commands = Some(commands);
    }

    pub(super) async fn run_command(
        &self,
        id: &str,
        command: &[String],
        limit: Option<Duration>,
    ) -> Result<CommandOutput> {
        tokio::task::yield_now().await;
        let course = {
            let state = self.state();
            if state.away {
                return Err(unavailable());
            }
            let commands = state.commands.clone().ok_or_else(|| no_processes("ExecSync"))?;
            let container = state.containers.get(id).ok_or_else(|| not_found("container", id))?;
            if !container.state.is_running() {
                let message = format!("failed to exec in container: container {id:?} is not running");
                return Err(CriError::new(ErrorKind::Refused, message));
            }
            commands(&container.name, container.attempt, command)
        };
        let ended = async {
            match course {
                Command::Ends { after, output } => {
                    sleep(after).await;
                    Ok(output)
                }
                Command::Hangs => pending().await,
                Command::Refused(message) => Err(CriError::new(ErrorKind::Refused, message)),
            }
        };
        match limit {
            None => ended.await,
            Some(limit) => timeout(limit, ended).await.unwrap_or_else(|_| {
                let message = format!("failed to exec in container: timeout {limit:?} exceeded");
                Err(CriError::new(ErrorKind::DeadlineExceeded, message))
            }),
        }
    }
}
