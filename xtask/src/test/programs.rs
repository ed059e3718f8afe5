//! Runs the test programs, shows what they say as they say it, and counts.
//!
//! The simulation needs nothing but time to think, and the tests on real runtimes mostly wait: so it runs beside all others,
//! with what they leave of the processor, and is shown when they are done.

use std::io::{BufRead, BufReader, IsTerminal};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use crablet_testbed::guard::Group;

use super::tally::Tally;
use super::targets::{self, Only};
use crate::workspace;

/// What the programs are told about the machine.
pub struct Ground {
    /// Names of runtimes, by commas.
    pub runtimes: String,
    pub clusters: bool,
}

impl Ground {
    fn tests(&self, mut command: Command, arguments: &[String]) -> Command {
        command.args(["test", "--no-fail-fast"]).args(arguments);
        if std::io::stdout().is_terminal() {
            command.args(["--color", "always"]);
        }
        command.env("CRABLET_TEST_RUNTIMES", &self.runtimes);
        command.env("CRABLET_TEST_CLUSTER", if self.clusters { "yes" } else { "no" });
        command.stdout(Stdio::piped());
        command
    }

    /// Tests of one kind.
    pub fn run(&self, only: Only, tally: &mut Tally) -> Result<()> {
        let mut child = self.tests(workspace::cargo(), &targets::arguments(&[only])?).spawn()?;
        let _group = Group::of(&child);
        show(&mut child, tally)?;
        passed(child.wait()?.success())
    }

    /// All tests. They must have been built: whoever is first would hold the others up.
    pub fn run_all(&self, tally: &mut Tally) -> Result<()> {
        let beside = Beside::start(self)?;
        let others = targets::arguments(&[Only::Unit, Only::Runtime])?;
        let examples = ["--workspace".to_owned(), "--doc".to_owned()];
        let mut all_passed = true;
        for arguments in [others.as_slice(), &examples] {
            let mut child = self.tests(workspace::cargo(), arguments).spawn()?;
            let _group = Group::of(&child);
            show(&mut child, tally)?;
            all_passed &= child.wait()?.success();
        }
        all_passed &= beside.finish(tally)?;
        passed(all_passed)
    }
}

fn passed(all: bool) -> Result<()> {
    if !all {
        bail!("`cargo test` failed");
    }
    Ok(())
}

fn show(child: &mut Child, tally: &mut Tally) -> Result<()> {
    for line in lines(child)? {
        let line = line?;
        println!("{line}");
        tally.read(&line);
    }
    Ok(())
}

fn lines(child: &mut Child) -> Result<impl Iterator<Item = Result<String>> + use<>> {
    let output = BufReader::new(child.stdout.take().context("the pipe was asked for")?);
    Ok(output.split(b'\n').map(|line| Ok(String::from_utf8_lossy(&line?).into_owned())))
}

/// The simulation, while the others run.
struct Beside {
    child: Child,
    _group: Group,
    said: JoinHandle<Result<Vec<String>>>,
}

impl Beside {
    fn start(ground: &Ground) -> Result<Self> {
        let polite = workspace::politely(&workspace::cargo());
        let mut command = ground.tests(polite, &targets::arguments(&[Only::Sim])?);
        // What cargo itself has to say would come in between.
        let mut child = command.stderr(Stdio::null()).spawn().context("cannot run `nice`")?;
        let group = Group::of(&child);
        let lines = lines(&mut child)?;
        let said = std::thread::Builder::new().name("simulation".into()).spawn(move || lines.collect())?;
        Ok(Self { child, _group: group, said })
    }

    /// Shows what it said. Says whether it passed.
    fn finish(mut self, tally: &mut Tally) -> Result<bool> {
        let said = self.said.join().map_err(|_| anyhow!("the simulation's reader is gone"))??;
        for line in said {
            println!("{line}");
            tally.read(&line);
        }
        Ok(self.child.wait()?.success())
    }
}
