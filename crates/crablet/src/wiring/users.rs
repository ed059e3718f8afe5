//! The node's ids for pods with users of their own: those that the administrator gave to the user `kubelet`, if there is
//! one and the machine has the program that tells them.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::anyhow;
use crablet_config::Settings;
use crablet_pods::users::{Given, Ranges, given_to};

const USER: &str = "kubelet";
const PASSWD: &str = "/etc/passwd";

/// What is wrong with them keeps the agent from starting, as upstream.
pub fn user_ranges(settings: &Settings) -> anyhow::Result<Ranges> {
    given()
        .map_err(|why| format!("kubelet mappings: {why}"))
        .and_then(|given| Ranges::new(settings.user_namespace_ids, given, settings.max_pods))
        .map_err(|why| anyhow!("create user namespace manager: {why}"))
}

/// Who has the program and the user means something by it: then no answer is an error, not the default. `getsubids` may
/// ask another machine, and does not say whether that one could be reached.
fn given() -> Result<Option<Given>, String> {
    let Some(program) = installed("getsubids") else { return Ok(None) };
    if !is_user(USER) {
        return Ok(None);
    }
    let given = given_to(USER, |args| output(&program, args))?;
    let Given { first, length } = given;
    tracing::info!(user = USER, first, length, "Pods with users of their own get those given to the user");
    Ok(Some(given))
}

fn installed(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&folders).map(|folder| folder.join(program)).find(is_program)
}

/// Users need not be in the file: `getent` knows the others.
fn is_user(name: &str) -> bool {
    let listed = fs::read_to_string(PASSWD).is_ok_and(|passwd| names(&passwd, name));
    listed || installed("getent").is_some_and(|getent| output(&getent, &["passwd", name]).is_ok())
}

fn names(passwd: &str, user: &str) -> bool {
    passwd.lines().any(|line| line.split(':').next() == Some(user))
}

fn output(program: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    match (output.status.success(), output.status.code()) {
        (true, _) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        (false, Some(code)) => Err(format!("exit status {code}")),
        (false, None) => Err(output.status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nkubelet-ci:x:7:7::/:/bin/sh\nkubelet:x:8:8::/:/bin/sh\n";
        assert!(names(passwd, "kubelet") && names(passwd, "root"));
        assert!(!names(passwd, "kube") && !names("", "kubelet"));
    }

    #[test]
    fn a_program_answers_or_fails() {
        let shell = installed("sh").expect("a shell");
        assert_eq!(output(&shell, &["-c", "echo 0: a 1 2"]), Ok("0: a 1 2\n".to_owned()));
        assert_eq!(output(&shell, &["-c", "exit 3"]), Err("exit status 3".to_owned()));
        assert_eq!(installed("no-such-program-anywhere"), None);
    }
}
