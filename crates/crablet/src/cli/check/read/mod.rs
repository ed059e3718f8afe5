//! Reads the facts. Each reader has a thread of its own and a few seconds: a runtime that hangs, or a root folder on a
//! network file system that is gone, costs its own facts and nothing else.

pub mod certificate;
mod credentials;
mod disk;
mod machine;
mod ports;
mod processes;
mod runtime;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::facts::{Answers, Disk, DiskRole, Facts, Read, Runtime, Unread};
use super::wanted::Wanted;

/// How long one reader may take.
pub const LIMIT: Duration = Duration::from_secs(5);
/// What is waited beyond that, so that a reader with deadlines of its own can still tell what it found.
const MARGIN: Duration = Duration::from_secs(1);

/// No file that is read here comes near this; a device file would never end.
const MAX_BYTES: u64 = 16 << 20;

pub fn facts(wanted: &Wanted) -> Facts {
    // All begin at once.
    let privileges = Pending::new(machine::privileges);
    let kernel = Pending::new(machine::kernel);
    let sysctls = Pending::new(machine::sysctls);
    let cgroups = Pending::new(machine::cgroups);
    let swaps = Pending::new(machine::swaps);
    let memory = Pending::new(machine::memory);
    let security = Pending::new(machine::security);
    let open_files = Pending::new(machine::open_files);
    let tools = Pending::new(machine::tools);
    let machine_id = Pending::new(machine::machine_id);
    let (endpoint, images) = (wanted.endpoint.clone(), wanted.image_endpoint.clone());
    let runtime = Pending::new(move || runtime::read(&endpoint, images.as_deref()));
    let root = disk(DiskRole::Root, &wanted.root_dir);
    let logs = disk(DiskRole::PodLogs, &wanted.pod_logs_dir);
    let numbers: Vec<u16> = wanted.ports.iter().map(|port| port.number).collect();
    let listeners = Pending::new(move || ports::listeners(&numbers));
    let processes = Pending::new(processes::all);
    let path = wanted.resolv_conf.clone();
    let resolv_conf = Pending::new(move || path.map_or(Ok(String::new()), |path| text(&path)));
    let path = wanted.static_pod_path.clone();
    let static_pods = Pending::new(move || path.map_or(Ok(None), |path| credentials::owned_if_there(&path)));
    let wanted_files = wanted.clone();
    let credentials = Pending::new(move || Ok(credentials::read(&wanted_files)));

    let runtime = runtime.wait();
    let mut disks = vec![root.wait(), logs.wait()];
    // Only the runtime knows where its images are.
    let images: Vec<_> = image_folders(&runtime).iter().map(|path| disk(DiskRole::Images, path)).collect();
    disks.extend(images.into_iter().map(PendingDisk::wait));
    Facts {
        privileges: privileges.wait(),
        kernel: kernel.wait(),
        sysctls: sysctls.wait(),
        cgroups: cgroups.wait(),
        swaps: swaps.wait(),
        memory: memory.wait(),
        runtime,
        disks,
        listeners: listeners.wait(),
        processes: processes.wait(),
        clock: machine::clock(),
        resolv_conf: resolv_conf.wait(),
        machine_id: machine_id.wait(),
        static_pods: static_pods.wait(),
        credentials: credentials.wait().unwrap_or_else(|why| credentials::unread(wanted, &why)),
        open_files: open_files.wait(),
        tools: tools.wait(),
        security: security.wait(),
    }
}

fn image_folders(runtime: &Read<Runtime>) -> &[std::path::PathBuf] {
    match runtime {
        Ok(Runtime { answers: Some(Answers { image_filesystems: Ok(folders), .. }), .. }) => folders,
        _ => &[],
    }
}

/// A reader at work.
struct Pending<T> {
    answer: Receiver<Read<T>>,
    deadline: Instant,
}

impl<T: Send + 'static> Pending<T> {
    fn new(read: impl FnOnce() -> Read<T> + Send + 'static) -> Self {
        let (send, answer) = sync_channel(1);
        // Not joined: one that hangs ends with the process. Where no thread can be had, the channel tells.
        let _ = thread::Builder::new().name("check".into()).spawn(move || send.send(read()));
        Self { answer, deadline: Instant::now() + LIMIT + MARGIN }
    }

    fn wait(self) -> Read<T> {
        match self.answer.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(read) => read,
            Err(RecvTimeoutError::Timeout) => Err(Unread::TooLate),
            Err(RecvTimeoutError::Disconnected) => Err(Unread::Failed("its reader broke".to_owned())),
        }
    }
}

struct PendingDisk {
    role: DiskRole,
    path: std::path::PathBuf,
    state: Pending<super::facts::DiskState>,
}

fn disk(role: DiskRole, path: &Path) -> PendingDisk {
    let folder = path.to_owned();
    PendingDisk { role, path: path.to_owned(), state: Pending::new(move || disk::state(&folder)) }
}

impl PendingDisk {
    fn wait(self) -> Disk {
        Disk { role: self.role, path: self.path, state: self.state.wait() }
    }
}

fn failed(error: impl std::fmt::Display) -> Unread {
    Unread::Failed(error.to_string())
}

/// A whole file, if it is of a sensible size.
fn bytes(path: impl AsRef<Path>) -> Read<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// What is not UTF-8 is replaced: nothing that is looked for is.
fn text(path: impl AsRef<Path>) -> Read<String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

/// For a file that no setting names: then the error must.
fn kernel_text(path: &str) -> Read<String> {
    text(path).map_err(|why| Unread::Failed(format!("{path}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_breaks_is_unread_and_nothing_more() {
        let broken: Read<u8> = Pending::new(|| panic!("on purpose")).wait();
        assert_eq!(broken, Err(Unread::Failed("its reader broke".to_owned())));
        assert_eq!(Pending::new(|| Ok(7)).wait(), Ok(7));
    }

    #[test]
    fn a_reader_that_hangs_is_not_waited_for() {
        let (_keep, never) = std::sync::mpsc::channel::<Read<u8>>();
        let mut pending = Pending::new(move || never.recv().expect("never"));
        pending.deadline = Instant::now();
        assert_eq!(pending.wait(), Err(Unread::TooLate));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let Err(Unread::Failed(why)) = kernel_text("/no/such/file") else { panic!("it cannot be") };
        assert!(why.starts_with("/no/such/file: "), "{why}");
    }
}
