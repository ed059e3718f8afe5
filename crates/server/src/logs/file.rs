//! A log file: opened safely, read in blocks, searched from its end. Disks are waited for outside tokio's own threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// How much is read at a time.
pub const BLOCK: usize = 32 << 10;
/// Newlines are looked for in larger steps.
const SEARCH_BLOCK: u64 = 128 << 10;

#[derive(Clone)]
pub struct LogReader {
    file: Arc<File>,
    inode: (u64, u64),
}

impl LogReader {
    /// Refuses symlinks below the folder of all pods' logs, and anything but a regular file: who can write into a pod's
    /// log folder should not be able to have other files read.
    pub async fn open(path: PathBuf) -> io::Result<Self> {
        blocking(move || open(&path)).await
    }

    /// Up to a block from `offset`. Nothing at the end.
    pub async fn read(&self, offset: u64, mut block: Vec<u8>) -> io::Result<Vec<u8>> {
        let file = self.file.clone();
        blocking(move || {
            block.resize(BLOCK, 0);
            let count = file.read_at(&mut block, offset)?;
            block.truncate(count);
            Ok(block)
        })
        .await
    }

    pub async fn len(&self) -> io::Result<u64> {
        let file = self.file.clone();
        blocking(move || Ok(file.metadata()?.len())).await
    }

    pub fn is_same_file(&self, other: &Self) -> bool {
        self.inode == other.inode
    }

    /// Where the last `lines` lines begin. What comes after the last newline is not counted as one.
    pub async fn tail(&self, lines: u64) -> io::Result<u64> {
        let mut found = 0;
        let mut right = self.len().await?;
        // A step at a time, so that a client that leaves ends the search.
        while right > 0 {
            let left = right.saturating_sub(SEARCH_BLOCK);
            let file = self.file.clone();
            let newlines_wanted = lines - found;
            let step = move || search_backwards(&file, left, right, newlines_wanted);
            match blocking(step).await? {
                Search::Start(start) => return Ok(start),
                Search::Newlines(count) => found += count,
            }
            right = left;
        }
        Ok(0)
    }
}

enum Search {
    Start(u64),
    /// So many in the block, not enough.
    Newlines(u64),
}

/// Looks for the newline before the last `lines` lines, which is the one number `lines + 1` from the end.
fn search_backwards(file: &File, left: u64, right: u64, lines: u64) -> io::Result<Search> {
    let mut block = vec![0; usize::try_from(right - left).unwrap_or_default()];
    // A file that was cut short meanwhile has nothing to show here.
    let count = read_full(file, &mut block, left)?;
    let mut newlines = 0;
    for (index, _) in block[..count].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
        if newlines == lines {
            return Ok(Search::Start(left + index as u64 + 1));
        }
        newlines += 1;
    }
    Ok(Search::Newlines(newlines))
}

fn read_full(file: &File, block: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read_at(&mut block[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// `<pod>/<container>/<attempt>.log`. What comes before is the machine's own business.
const BELOW_THE_FOLDER: usize = 3;

fn open(path: &Path) -> io::Result<LogReader> {
    let root = path.ancestors().take(BELOW_THE_FOLDER + 1).last().unwrap_or(path);
    let below = path.strip_prefix(root).map_err(io::Error::other)?;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(root, folder, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(folder, below, flags, Mode::empty(), resolve)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(LogReader { file: Arc::new(file), inode: (metadata.dev(), metadata.ino()) })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic_or_shutdown) => Err(io::Error::other(panic_or_shutdown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_tail_is_found_from_the_end_whatever_the_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        let long = "x".repeat(3 * SEARCH_BLOCK as usize);
        for (content, lines, expected) in [
            ("", 0, 0),
            ("", 5, 0),
            ("a\nb\n", 0, 4),
            ("a\nb\n", 1, 2),
            ("a\nb\n", 2, 0),
            ("a\nb\n", 3, 0),
            ("a\nb", 0, 2),
            ("a\nb\nc", 1, 2),
            ("\n\n\n", 2, 1),
            (&format!("a\n{long}\nb\n"), 1, long.len() as u64 + 3),
            (&format!("a\n{long}\nb\n"), 2, 2),
            (&format!("a\n{long}\nb\n"), u64::MAX, 0),
        ] {
            std::fs::write(&path, content).expect("a file");
            let found =
                LogReader::open(path.clone()).await.expect("a log").tail(lines).await.expect("a place");
            assert_eq!(found, expected, "{lines} lines of {:.20}", content);
        }
    }

    #[tokio::test]
    async fn links_and_folders_are_refused() {
        use std::os::unix::fs::symlink;
        let outer = tempfile::tempdir().expect("a folder");
        let pod = outer.path().join("pods/default_web_uid");
        std::fs::create_dir_all(pod.join("app")).expect("folders");
        std::fs::create_dir(outer.path().join("secret")).expect("a folder");
        std::fs::write(outer.path().join("secret/0.log"), "secret").expect("a file");
        std::fs::write(pod.join("app/1.log"), "a log").expect("a file");
        symlink("/proc/version", pod.join("app/0.log")).expect("a link");
        symlink("1.log", pod.join("app/2.log")).expect("a link");
        symlink(outer.path().join("secret"), pod.join("planted")).expect("a link");
        symlink(outer.path().join("pods"), outer.path().join("elsewhere")).expect("a link");
        for refused in ["app/0.log", "app/2.log", "planted/0.log", "app", "app/../../../secret/0.log"] {
            assert!(LogReader::open(pod.join(refused)).await.is_err(), "{refused}");
        }
        assert!(LogReader::open(pod.join("app/1.log")).await.is_ok());
        let linked = outer.path().join("elsewhere/default_web_uid/app/1.log");
        assert!(LogReader::open(linked).await.is_ok(), "where the folder itself is, is not asked");
    }
}
