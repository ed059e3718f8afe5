//! What upstream's kubelet changes outside its own folders and cannot be told not to: noted before, put back after.

use std::fs;
use std::path::Path;

use crablet_testbed::guard;

/// It sets these to its own liking at every start.
const SYSCTLS: &[&str] = &[
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxbytes",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
];
/// It makes these folders, children before parents.
const FOLDERS: &[&str] = &["/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/log/containers"];

pub struct Traces(Noted);

#[derive(Clone)]
struct Noted {
    sysctls: Vec<(&'static str, String)>,
    new_folders: Vec<&'static str>,
}

impl Traces {
    pub fn note() -> Traces {
        let read = |path: &&'static str| Some((*path, fs::read_to_string(path).ok()?));
        let noted = Noted {
            sysctls: SYSCTLS.iter().filter_map(read).collect(),
            new_folders: FOLDERS.iter().copied().filter(|folder| !Path::new(folder).exists()).collect(),
        };
        let copy = noted.clone();
        guard::at_interruption(move || copy.put_back());
        Traces(noted)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.0.put_back();
    }
}

impl Noted {
    /// Twice does no harm.
    fn put_back(&self) {
        for (path, value) in &self.sysctls {
            if fs::read_to_string(path).is_ok_and(|now| now != *value) {
                let _ = fs::write(path, value);
            }
        }
        for folder in &self.new_folders {
            for socket_or_checkpoint in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
                let _ = fs::remove_file(socket_or_checkpoint.path());
            }
            // Refused, rightly, when something else is in it by now.
            let _ = fs::remove_dir(folder);
        }
    }
}
