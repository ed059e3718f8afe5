//! A gate that each change to the file system of a program has to pass: `mkdir`, `mount`, `rename` and the like. The test
//! looks at the call and lets it go, makes it fail, keeps it waiting, or kills the program right before it.
//!
//! The kernel stops the calls (seccomp's user notification), and a small C program, compiled when it is first needed,
//! passes them on. The program under test is not touched otherwise: it runs at full speed between two such calls.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::output_of;
use crate::wait::Deadline;
use crate::{cache, packages, sha256};

const SOURCE: &str = include_str!("gate.c");

/// A system call that waits at the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `mkdir`, `rmdir`, `unlink`, `rename`, `symlink`, `chmod`, `chown`, `mount`, `umount`, or `create`: a file that is
    /// opened and may be made by it.
    pub name: String,
    pub path: PathBuf,
    /// The new name, the source of a mount, what a link says.
    pub other: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    /// With this error number; nothing happens.
    Fail(i32),
    /// Until [`Gate::open`].
    Wait,
    /// The program dies before the call happens.
    Kill,
}

type Rule = Box<dyn FnMut(&Call) -> Verdict + Send>;

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    waiting: Vec<(Call, u64, Arc<UnixStream>)>,
    /// How many programs were killed.
    kills: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For any number of lives of a program. Without a rule everything goes on.
pub struct Gate {
    folder: PathBuf,
    shared: Arc<Shared>,
}

impl Gate {
    /// Keeps its files in the folder, which it makes.
    pub fn new(folder: &Path) -> Result<Gate> {
        fs::create_dir_all(folder)?;
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen at `{}`", socket.display()))?;
        let shared = Arc::new(Shared::default());
        let for_all = shared.clone();
        // Ends with the test's process; it holds nothing else.
        thread::spawn(move || {
            for life in listener.incoming().map_while(Result::ok) {
                let shared = for_all.clone();
                thread::spawn(move || attend(&shared, life));
            }
        });
        Ok(Gate { folder: folder.to_owned(), shared })
    }

    /// A program to run in the place of `binary`: the same one, behind the gate. The process id is its own.
    pub fn before(&self, binary: &Path) -> Result<PathBuf> {
        let script = self.folder.join("behind-the-gate");
        let (gate, socket) = (program()?, self.folder.join("socket"));
        let text = format!(
            "#!/bin/sh\nexec '{}' '{}' '{}' \"$@\"\n",
            gate.display(),
            socket.display(),
            binary.display()
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(script)
    }

    /// From now on this decides.
    pub fn rule(&self, rule: impl FnMut(&Call) -> Verdict + Send + 'static) {
        self.shared.state().rule = Some(Box::new(rule));
    }

    /// No rule any more, and what waited goes on.
    pub fn open(&self) {
        let mut state = self.shared.state();
        state.rule = None;
        for (_, id, stream) in state.waiting.drain(..) {
            answer(&stream, id, 0);
        }
    }

    /// What waits at the gate, once there is something.
    pub fn wait_for_call(&self, deadline: Deadline) -> Option<Call> {
        let mut state = self.shared.state();
        while state.waiting.is_empty() {
            let left = deadline.left()?;
            let (next, _) =
                self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
        state.waiting.first().map(|(call, ..)| call.clone())
    }

    /// How often the program was killed so far.
    pub fn kills(&self) -> usize {
        self.shared.state().kills
    }
}

fn attend(shared: &Shared, life: UnixStream) {
    let life = Arc::new(life);
    for line in BufReader::new(&*life).lines().map_while(Result::ok) {
        let Some((id, pid, call)) = parse(&line) else { continue };
        let mut state = shared.state();
        let verdict = state.rule.as_mut().map_or(Verdict::Go, |rule| rule(&call));
        match verdict {
            Verdict::Go => answer(&life, id, 0),
            Verdict::Fail(error) => answer(&life, id, error),
            Verdict::Wait => state.waiting.push((call, id, life.clone())),
            Verdict::Kill => {
                // The number of any thread means its whole process.
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
                state.kills += 1;
                // Dead programs ask no more: what other threads have on the way goes nowhere.
                state.rule = Some(Box::new(|_| Verdict::Wait));
            }
        }
        shared.changed.notify_all();
    }
}

fn parse(line: &str) -> Option<(u64, i32, Call)> {
    let words: Vec<&str> = line.split('\t').collect();
    let &[id, pid, name, path, other] = words.as_slice() else { return None };
    let call = Call { name: name.to_owned(), path: path.into(), other: other.into() };
    Some((id.parse().ok()?, pid.parse().ok()?, call))
}

/// Nobody may be there any more to hear it.
fn answer(mut stream: &UnixStream, id: u64, error: i32) {
    let _ = stream.write_all(format!("{id} {error}\n").as_bytes());
}

/// The gate itself, compiled once for each version of its source.
fn program() -> Result<PathBuf> {
    packages::ensure_runtime()?;
    let name = format!("gate-{}", &sha256::hex(SOURCE.as_bytes())[..16]);
    let folder = cache::dir()?.join(name);
    cache::build_once(&folder, |folder| {
        let source = folder.join("gate.c");
        fs::write(&source, SOURCE)?;
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-Wall", "-o"]).arg(folder.join("gate")).arg(&source);
        output_of(&mut compile).context("cannot compile the gate")?;
        Ok(())
    })?;
    Ok(folder.join("gate"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn calls_go_on_fail_wait_and_kill() {
        let home = tempfile::tempdir().unwrap();
        let gate = Gate::new(&home.path().join("gate")).unwrap();
        let shell = gate.before(Path::new("/bin/sh")).unwrap();
        let run = |script: &str| {
            let mut command = Command::new(&shell);
            command.args(["-c", script]).current_dir(home.path());
            command
        };
        assert!(run("mkdir $PWD/a").status().unwrap().success());
        assert!(home.path().join("a").is_dir());

        gate.rule(|call| match call.path.ends_with("full") {
            true => Verdict::Fail(rustix::io::Errno::NOSPC.raw_os_error()),
            false => Verdict::Go,
        });
        let end = run("mkdir $PWD/b && mkdir $PWD/full").output().unwrap();
        assert!(String::from_utf8_lossy(&end.stderr).contains("No space left"), "{end:?}");
        assert!(home.path().join("b").is_dir());

        gate.rule(|call| if call.path.ends_with("c") { Verdict::Wait } else { Verdict::Go });
        let mut child = run("mkdir $PWD/c").spawn().unwrap();
        let call = gate.wait_for_call(Deadline::after(Duration::from_secs(20))).unwrap();
        assert_eq!((call.name.as_str(), call.path), ("mkdir", home.path().join("c")));
        assert!(!home.path().join("c").exists());
        gate.open();
        assert!(child.wait().unwrap().success());
        assert!(home.path().join("c").is_dir());

        gate.rule(|call| if call.path.ends_with("e") { Verdict::Kill } else { Verdict::Go });
        let end = run("mkdir $PWD/d; exec mkdir $PWD/e").status().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(9));
        assert_eq!(gate.kills(), 1);
        assert!(home.path().join("d").is_dir() && !home.path().join("e").exists());
    }
}
