//! `crablet config view` and `crablet config check`: the answer was found while the command line was read. And the disk
//! that configuration is read from.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crablet_config::{Answer, Files, FolderEntry};

/// Data to stdout, talk to stderr.
pub fn run(answer: &Answer) -> ExitCode {
    eprint!("{}", answer.stderr);
    match super::print(&answer.stdout) {
        Ok(()) if !answer.failed => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The files of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        super::read_config(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        std::fs::read_dir(folder)?
            .map(|entry| {
                let entry = entry?;
                Ok(FolderEntry { name: entry.file_name(), is_folder: entry.file_type()?.is_dir() })
            })
            .collect()
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }
}
