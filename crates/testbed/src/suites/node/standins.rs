//! Stand-ins for `systemd-run`, `systemctl`, `journalctl` and `sudo`: the node suite starts, restarts and finds its
//! kubelet with them, and on a test machine process 1 is not systemd. They do what the suite asks for and no more.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;

const SYSTEMD_RUN: &str = include_str!("systemd-run.sh");
const SYSTEMCTL: &str = include_str!("systemctl.sh");
/// The suite looks for system logs at its end; there are none.
const JOURNALCTL: &str = "#!/bin/sh\nexit 0\n";
/// The suite runs as root already.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// Puts them into `bin`; what they remember about units goes into `units`.
pub fn install(bin: &Path, units: &Path) -> Result<()> {
    fs::create_dir_all(bin)?;
    fs::create_dir_all(units)?;
    let scripts =
        [("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL), ("sudo", SUDO)];
    for (name, text) in scripts {
        let path = bin.join(name);
        fs::write(&path, text.replace("@UNITS@", &units.to_string_lossy()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Output};
    use std::time::Duration;

    use super::*;
    use crate::wait::{self, Deadline};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let dir = std::env::temp_dir().join(format!("crablet-standins-{name}-{}", std::process::id()));
            install(&dir.join("bin"), &dir.join("units")).unwrap();
            Folder(dir)
        }

        fn run(&self, program: &str, args: &[&str]) -> Output {
            Command::new(self.0.join("bin").join(program)).args(args).output().unwrap()
        }

        fn said(&self, program: &str, args: &[&str]) -> String {
            String::from_utf8(self.run(program, args).stdout).unwrap()
        }

        fn log(&self) -> String {
            fs::read_to_string(self.0.join("log")).unwrap_or_default()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = self.run("systemctl", &["stop", "kubelet-1"]);
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_unit_is_started_found_restarted_and_stopped() {
        let folder = Folder::new("unit");
        let log = format!("StandardError=append:{}/log", folder.0.display());
        let script = "echo \"started $1 100%% $$HOME\" >&2; exec sleep 1000";
        let run = ["-p", "Delegate=true", "-p", &log, "--unit=kubelet-1.service", "--slice=runtime.slice"];
        let command = ["--remain-after-exit", "sh", "-c", script, "name", "two words"];
        assert!(folder.run("systemd-run", &[&run[..], &command].concat()).status.success());
        let appears = |text: &str| {
            wait::until(Deadline::after(Duration::from_secs(10)), || folder.log().contains(text))
        };
        // systemd's escapes are undone: `%%` is a percent sign, `$$` a dollar sign.
        assert!(appears(&format!("started two words 100% {}", std::env::var("HOME").unwrap_or_default())));
        let running = ["list-units", "*kubelet*", "--state=running"];
        assert!(folder.said("systemctl", &running).contains("kubelet-1.service"));
        let first = folder.said("systemctl", &["show", "kubelet-1", "--property=MainPID"]);
        assert!(folder.run("systemctl", &["restart", "kubelet-1"]).status.success());
        assert_ne!(folder.said("systemctl", &["show", "kubelet-1", "--property=MainPID"]), first);
        assert!(folder.run("systemctl", &["kill", "kubelet-1"]).status.success());
        let gone = || !folder.said("systemctl", &running).contains("kubelet-1");
        assert!(wait::until(Deadline::after(Duration::from_secs(10)), gone));
        assert!(folder.said("systemctl", &["list-units", "*kubelet*"]).contains("kubelet-1.service"));
        assert!(folder.run("systemctl", &["stop", "kubelet-1.service"]).status.success());
        assert!(!folder.said("systemctl", &["list-units", "*kubelet*"]).contains("kubelet-1"));
    }

    #[test]
    fn the_version_is_one_that_appends_to_logs() {
        assert_eq!(Folder::new("version").said("systemd-run", &["--version"]), "systemd 252 (stand-in)\n");
    }
}
