//! The kernel's little files. Nothing here creates a file: what is missing is not supported by this kernel.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

pub fn write(folder: &Path, file: &str, value: &str) -> Result<(), WriteError> {
    let path = folder.join(file);
    let written =
        OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| WriteError { path: path.display().to_string(), value: value.to_string(), error })
}

#[derive(Debug)]
pub struct WriteError {
    path: String,
    value: String,
    pub error: io::Error,
}

impl WriteError {
    pub fn is(&self, errno: rustix::io::Errno) -> bool {
        rustix::io::Errno::from_io_error(&self.error) == Some(errno)
    }

    pub fn is_missing(&self) -> bool {
        self.error.kind() == ErrorKind::NotFound
    }
}

impl From<WriteError> for String {
    fn from(failed: WriteError) -> Self {
        format!("cannot write `{}` to `{}`: {}", failed.value, failed.path, failed.error)
    }
}

/// A file's text without its last line break.
pub fn read(folder: &Path, file: &str) -> Result<String, String> {
    let path = folder.join(file);
    let text =
        fs::read_to_string(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    Ok(text.trim_end().to_string())
}

/// A file with one number. What is more than an `i64` holds, or `max`, is the largest there is.
pub fn number(folder: &Path, file: &str) -> Result<i64, String> {
    let text = read(folder, file)?;
    if text == "max" {
        return Ok(i64::MAX);
    }
    let parsed = text.parse::<i128>().map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    parsed.map_err(|_| format!("cannot make sense of {text:?} in `{}`", folder.join(file).display()))
}

/// Makes one folder; that it is there is fine.
pub fn make(folder: &Path) -> Result<(), String> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(format!("cannot make the cgroup `{}`: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The names of the folders in a folder, in order. A folder that is gone has none.
pub fn children(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = match entry {
            Err(error) if is_gone(&error) => break,
            entry => entry?,
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A cgroup that is removed while it is looked at answers ENODEV to whoever has it open.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Every level of `path` below `mount`, from the top: `/a/b` gives `<mount>/a` and `<mount>/a/b`.
pub fn levels(mount: &Path, path: &str) -> Vec<std::path::PathBuf> {
    let mut current = mount.to_path_buf();
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            current.push(part);
            current.clone()
        })
        .collect()
}
