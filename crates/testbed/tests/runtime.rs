//! The test bed itself, on real runtimes: what it starts works, and what it stops is gone without a trace.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crablet_testbed::process::ProcessId;
use crablet_testbed::wait::{self, Deadline};
use crablet_testbed::{Containerd, Flavor, StartOptions, images, scratch};

fn start(flavor: Flavor) -> Containerd {
    Containerd::start(StartOptions::new(flavor))
        .unwrap_or_else(|error| panic!("{}: {error:#}", flavor.name()))
}

/// A container that sleeps until it is killed.
fn run_sleeper(containerd: &Containerd, id: &str) {
    containerd.run_detached(images::BUSYBOX, id, &["sleep", "100000"]).unwrap();
}

#[test]
fn images_are_imported_and_containers_run() {
    for flavor in Flavor::under_test() {
        let containerd = start(flavor);
        let said =
            containerd.run(images::BUSYBOX, "hello", &["sh", "-c", "echo hello; ls /bin | grep -c httpd"]);
        assert_eq!(said.unwrap(), "hello\n1\n", "{}", flavor.name());
        let listed = containerd.ctr(&["images", "ls", "-q"]).unwrap();
        assert!(images::ALL.iter().all(|image| listed.contains(image)), "{listed}");
        let left = containerd.leftovers();
        assert!(left.no_pods(), "{}: {left}", flavor.name());
        containerd.stop().unwrap();
    }
}

#[test]
fn containers_outlive_the_daemon_and_nothing_outlives_the_stop() {
    for flavor in Flavor::under_test() {
        let containerd = start(flavor);
        run_sleeper(&containerd, "sleeper");
        let before = containerd.leftovers();
        assert_eq!(
            (before.containers.len(), before.shims.len(), before.processes.len()),
            (1, 1, 1),
            "{before}"
        );
        assert!(!before.cgroups.is_empty() && !before.mounts.is_empty(), "{before}");

        containerd.kill9_daemon().unwrap();
        assert_eq!(containerd.leftovers().shims, before.shims);
        containerd.start_daemon_again().unwrap();
        let after = containerd.leftovers();
        assert_eq!((after.containers, after.shims), (before.containers, before.shims));

        let network = containerd.network();
        let folder = containerd.scratch().dir().to_owned();
        containerd.stop().unwrap();
        assert!(!folder.exists() && !network.bridge_exists());
        assert!(before.cgroups.iter().all(|cgroup| !cgroup.exists()));
    }
}

#[test]
fn a_panic_cleans_up_as_well() {
    let Some(flavor) = Flavor::under_test().first().copied() else { return };
    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let containerd = start(flavor);
        run_sleeper(&containerd, "doomed");
        tell.send((containerd.scratch().dir().to_owned(), containerd.network())).unwrap();
        panic!("on purpose");
    })
    .join();
    assert!(panicked.is_err());
    let (folder, network) = told.recv().unwrap();
    assert!(!folder.exists() && !network.bridge_exists());
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn helper_that_waits_to_be_killed() {
    if std::env::var_os("CRABLET_TESTBED_VICTIM").is_none() {
        return;
    }
    let containerd = start(*Flavor::under_test().first().expect("the other test looked"));
    run_sleeper(&containerd, "orphan");
    println!("\nfolder {}", containerd.scratch().dir().display());
    std::thread::park();
}

#[test]
fn what_a_killed_run_left_is_swept() {
    if Flavor::under_test().is_empty() {
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_waits_to_be_killed", "--nocapture"])
        .env("CRABLET_TESTBED_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
    let folder = lines.find_map(|line| line.strip_prefix("folder ").map(str::to_owned)).unwrap();
    let folder = Path::new(&folder);
    let daemon: ProcessId = std::fs::read_to_string(folder.join("pids/containerd")).unwrap().parse().unwrap();
    assert!(daemon.is_alive());
    victim.kill().unwrap();
    victim.wait().unwrap();

    scratch::sweep().unwrap();
    assert!(!folder.exists());
    // Someone else may be sweeping the same folder (another test's start): its last steps may be a moment away.
    assert!(wait::until(Deadline::after(Duration::from_secs(10)), || !daemon.is_alive()));
}
