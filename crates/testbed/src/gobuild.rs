//! Programs built from pinned Go modules: each is built when first asked for, and kept in the cache under a key that
//! the module's `go.mod` and `go.sum` make. A program that is there is whole: it gets its name only when it is done.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guard::{self, Group};
use crate::process::{shown, wait_child};
use crate::{cache, packages, say, sha256};

/// How often a long build says that it is still at it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// A module whose dependencies are pinned in this repository.
#[derive(Debug)]
pub struct Module {
    /// The folder below `crates/testbed/go`, and the start of the cache entry's name.
    pub name: &'static str,
    pub go_mod: &'static str,
    pub go_sum: &'static str,
}

/// One program of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// The name of the built file.
    pub name: &'static str,
    pub package: &'static str,
    /// Built by `go test -c`: a program that holds a package's tests.
    pub is_test: bool,
    pub cgo: bool,
    pub tags: &'static str,
    pub link_flags: &'static str,
    /// About how long it takes on two cores from cold, for the one who waits.
    pub takes: &'static str,
}

impl Module {
    /// The folder of the built programs, made or not.
    pub fn bin_dir(&self) -> Result<PathBuf> {
        let key = sha256::hex(format!("{}\n{}", self.go_mod, self.go_sum).as_bytes());
        Ok(cache::dir()?.join(format!("{}-{}", self.name, &key[..16])).join("bin"))
    }

    /// Whether all of them are built.
    pub fn has(&self, programs: &[Program]) -> bool {
        self.bin_dir().is_ok_and(|bin| programs.iter().all(|program| bin.join(program.name).exists()))
    }

    /// Builds what is missing and gives the folder that holds them all.
    pub fn ensure(&self, programs: &[Program]) -> Result<PathBuf> {
        let bin = self.bin_dir()?;
        if self.has(programs) {
            return Ok(bin);
        }
        let Some(go) = packages::program("go") else {
            bail!(
                "`{}` is built with Go, and no `go` is on the path\n\
                 hint: install Go (version as in crates/testbed/go/{}/go.mod)",
                programs.first().map_or("this", |program| program.name),
                self.name
            );
        };
        fs::create_dir_all(&bin)?;
        let home = bin.parent().context("the programs' folder has a parent")?;
        let lock_path = home.join("lock");
        let lock = fs::File::create(&lock_path)?;
        lock.lock().with_context(|| format!("cannot lock `{}`", lock_path.display()))?;
        // We hold the lock: what is unfinished here was left by a builder that died.
        remove_unfinished(&bin)?;
        let module = home.join("module");
        fs::create_dir_all(&module)?;
        // Written out from this very binary, so that what is built is what the cache key names.
        fs::write(module.join("go.mod"), self.go_mod)?;
        fs::write(module.join("go.sum"), self.go_sum)?;
        let missing: Vec<&Program> =
            programs.iter().filter(|program| !bin.join(program.name).exists()).collect();
        for (index, program) in missing.iter().enumerate() {
            let (at, all, name, time) = (index + 1, missing.len(), program.name, program.takes);
            say::step(format!("building `{name}` from its Go module ({at} of {all}; {time} from cold)"));
            program.build(&go, &module, &bin)?;
        }
        Ok(bin)
    }
}

impl Program {
    /// A program without C in it.
    pub const fn plain(name: &'static str, package: &'static str, takes: &'static str) -> Program {
        Program { name, package, is_test: false, cgo: false, tags: "", link_flags: "", takes }
    }

    fn build(&self, go: &Path, module: &Path, bin: &Path) -> Result<()> {
        let started = Instant::now();
        let unfinished = bin.join(format!("{UNFINISHED}{}.{}", self.name, std::process::id()));
        let said = unfinished.with_extension("log");
        let mut command = Command::new(go);
        command
            .args(if self.is_test { &["test", "-c"][..] } else { &["build"] })
            .args(["-mod=readonly", "-trimpath", "-buildvcs=false", "-tags", self.tags])
            .arg(format!("-ldflags=-s -w {}", self.link_flags))
            .arg("-o")
            .arg(&unfinished)
            .arg(self.package)
            .current_dir(module)
            .env("CGO_ENABLED", if self.cgo { "1" } else { "0" })
            // Versions are pinned: no newer toolchain behind the builder's back, no flags from the environment.
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            .env_remove("GOFLAGS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said)?)
            .process_group(0);
        guard::refuse_when_stopping()?;
        let mut child = command.spawn().context("cannot run `go`")?;
        let _group = Group::of(&child);
        let status = loop {
            match wait_child(&mut child, SIGN_OF_LIFE)? {
                Some(status) => break status,
                None => {
                    say::note(format!("still building `{}`, {} s", self.name, started.elapsed().as_secs()))
                }
            }
        };
        let text = fs::read_to_string(&said).unwrap_or_default();
        fs::remove_file(&said)?;
        if !status.success() {
            guard::refuse_when_stopping()?;
            let _ = fs::remove_file(&unfinished);
            bail!("`{}` failed:\n{}", shown(&command), text.trim());
        }
        fs::rename(&unfinished, bin.join(self.name))?;
        say::note(format!("built in {} s", started.elapsed().as_secs()));
        Ok(())
    }
}

/// How the names of files begin that are still being written.
const UNFINISHED: &str = ".unfinished-";

fn remove_unfinished(bin: &Path) -> Result<()> {
    for entry in fs::read_dir(bin)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED)) {
            fs::remove_file(&path).with_context(|| format!("cannot remove `{}`", path.display()))?;
        }
    }
    Ok(())
}
