//! Tools of the host, run as children.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::port::{MountFrom, ToolEnd, reason};

/// More than any tool has to say; the rest is thrown away.
const MOST_OUTPUT: u64 = 64 << 10;
/// A mount of another machine may try for a while.
const MOUNT_LIMIT: Duration = Duration::from_secs(600);

pub async fn run(program: &str, args: &[&str], limit: Duration) -> io::Result<ToolEnd> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let all = async { tokio::join!(read(out), read(err), child.wait()) };
    let (out, err, end) = tokio::time::timeout(limit, all).await.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("`{program}` gave no answer within {} s", limit.as_secs()),
        )
    })?;
    Ok(ToolEnd { code: end?.code().unwrap_or(-1), output: out + &err })
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = (&mut from).take(MOST_OUTPUT).read_to_end(&mut bytes).await;
        // A child whose pipe is full waits for ever.
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub async fn mount(wish: &MountFrom, target: &Path) -> Result<(), String> {
    let target = target.to_string_lossy();
    let mut args = arguments(wish, &target);
    let mut program = "mount";
    let description = format!("--description=Kubernetes transient mount for {target}");
    // In a scope of its own, a process that serves the files is not killed with the agent.
    if wish.outlives_us && Path::new("/run/systemd/system").exists() {
        let scope = ["mount".to_owned(), "--".to_owned(), "--scope".to_owned(), description];
        scope.into_iter().for_each(|word| args.insert(0, word));
        program = "systemd-run";
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (why, output) = match run(program, &words, MOUNT_LIMIT).await {
        Ok(end) if end.is_success() => return Ok(()),
        Ok(end) => (format!("exit status {}", end.code), end.output),
        Err(error) => (reason(&error), String::new()),
    };
    Err(format!(
        "mount failed: {why}\nMounting command: {program}\nMounting arguments: {}\nOutput: {output}",
        words.join(" ")
    ))
}

fn arguments(wish: &MountFrom, target: &str) -> Vec<String> {
    let mut args = Vec::new();
    if !wish.fs_type.is_empty() {
        args.extend(["-t".to_owned(), wish.fs_type.clone()]);
    }
    if !wish.options.is_empty() {
        args.extend(["-o".to_owned(), wish.options.join(",")]);
    }
    args.extend([wish.source.clone(), target.to_owned()]);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tool_tells_how_it_ended_and_what_it_said() {
        let end =
            run("sh", &["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(20)).await.unwrap();
        assert_eq!(end, ToolEnd { code: 3, output: "out\nerr\n".to_owned() });
        let error = run("sh", &["-c", "sleep 60"], Duration::from_millis(10)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_mount_that_fails_is_told_in_upstreams_words() {
        let folder = tempfile::tempdir().unwrap();
        let wish = MountFrom {
            source: "/nowhere".to_owned(),
            fs_type: "ext4".to_owned(),
            options: vec!["ro".to_owned(), "defaults".to_owned()],
            outlives_us: false,
        };
        let error = mount(&wish, folder.path()).await.unwrap_err();
        let target = folder.path().display();
        assert!(error.starts_with("mount failed: exit status "), "{error}");
        assert!(
            error.contains(&format!(
                "\nMounting command: mount\nMounting arguments: -t ext4 -o ro,defaults /nowhere {target}\nOutput: "
            )),
            "{error}"
        );
    }
}
