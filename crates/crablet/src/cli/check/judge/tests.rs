//! Made-up machines: each is a healthy one with one thing changed, and one finding that must tell so.

use std::path::PathBuf;

use crablet_cri::client::preflight::{Condition, Description};
use crablet_cri::{CriError, ErrorKind};
use crablet_model::cgroup::CgroupDriver;
use crablet_model::runtime::{RuntimeHandler, RuntimeVersion};

use super::super::facts::{
    Amount, Answers, Certificate, CgroupVersion, Cgroups, Clock, Cni, Credentials, Disk, DiskRole, DiskState,
    Facts, Identity, Kernel, Kubeconfig, Listener, Memory, Module, Mount, OpenFiles, Owned, Privileges,
    Process, Runtime, Secret, Security, Socket, Swap, Unread, Validity,
};
use super::super::report::{Finding, State};
use super::super::wanted::{Port, Wanted};
use super::{all, amount, bytes, listed};

mod machine;
mod surroundings;

/// What a node of a cluster asks for.
pub fn wanted() -> Wanted {
    let thresholds = [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ];
    let port =
        |name, address: &str, number| Port { name, address: address.parse().expect("an address"), number };
    Wanted {
        node_name: "node1".into(),
        config_file: None,
        notices: Vec::new(),
        not_yet: Vec::new(),
        endpoint: "unix:///run/containerd/containerd.sock".into(),
        image_endpoint: None,
        cgroup_driver: CgroupDriver::Systemd,
        fail_cgroup_v1: true,
        fail_swap_on: true,
        protect_kernel_defaults: false,
        max_open_files: 1_000_000,
        pod_pids_limit: -1,
        root_dir: "/var/lib/kubelet".into(),
        pod_logs_dir: "/var/log/pods".into(),
        eviction_hard: thresholds.map(|(signal, value)| (signal.into(), value.into())).into(),
        image_gc_high: 85,
        ports: vec![port("API", "0.0.0.0", 10250), port("healthz", "127.0.0.1", 10248)],
        resolv_conf: Some("/etc/resolv.conf".into()),
        pod_cidr: None,
        static_pod_path: Some("/etc/kubernetes/manifests".into()),
        kubeconfig: Some("/etc/kubernetes/kubelet.conf".into()),
        bootstrap_kubeconfig: None,
        client_ca: Some("/etc/kubernetes/pki/ca.crt".into()),
        serving_certificate: None,
        serving_key: None,
    }
}

fn texts(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

fn condition(name: &str, holds: bool, reason: &str, message: &str) -> Condition {
    Condition { name: name.into(), holds, reason: reason.into(), message: message.into() }
}

fn answers() -> Answers {
    let ready = |name| condition(name, true, "", "");
    let handler =
        RuntimeHandler { name: "runc".into(), user_namespaces: true, recursive_read_only_mounts: true };
    Answers {
        version: Ok(RuntimeVersion {
            runtime_name: "containerd".into(),
            runtime_version: "v2.3.7".into(),
            api_version: "v1".into(),
        }),
        description: Ok(Description {
            conditions: vec![ready("RuntimeReady"), ready("NetworkReady")],
            handlers: vec![handler],
            ..Description::default()
        }),
        cgroup_driver: Ok(Some(CgroupDriver::Systemd)),
        image_filesystems: Ok(vec!["/var/lib/containerd".into()]),
        events: Ok(()),
        sandbox_image: Some(("pause:3.10".into(), Ok(true))),
        cni: Some(Cni {
            configuration_dir: "/etc/cni/net.d".into(),
            configurations: Some(texts("10-net.conflist")),
            plugin_dir: "/opt/cni/bin".into(),
            plugins: Some(texts("bridge loopback")),
        }),
    }
}

fn disk(role: DiskRole, path: &str) -> Disk {
    let mount = Mount {
        point: "/".into(),
        kind: "ext4".into(),
        options: texts("rw relatime"),
        super_options: texts("rw"),
        shared: true,
    };
    let state = DiskState {
        existing: path.into(),
        space: Amount { total: 100 << 30, free: 50 << 30 },
        inodes: Amount { total: 1000, free: 500 },
        mount: Some(mount),
    };
    Disk { role, path: path.into(), state: Ok(state) }
}

fn valid(not_before: &str, not_after: &str) -> Validity {
    let time = |text: &str| text.parse().expect("a time");
    Validity { not_before: time(not_before), not_after: time(not_after) }
}

fn certificate(role: &'static str, not_after: &str) -> Certificate {
    let validity = Ok(vec![valid("2026-01-01T00:00:00Z", not_after)]);
    Certificate { role, source: "/etc/kubernetes/pki/ca.crt".into(), validity }
}

fn root_only() -> Owned {
    Owned { uid: 0, gid: 0, mode: 0o100_600, folder: false }
}

fn process(name: &str, arguments: &str) -> Process {
    Process { pid: 42, name: name.into(), arguments: texts(arguments) }
}

/// A machine on which all is well.
fn healthy() -> Facts {
    Facts {
        privileges: Ok(Privileges { uid: 0, capabilities: u64::MAX }),
        kernel: Ok(Kernel {
            release: "6.12.0-1-amd64".into(),
            overlay: Module::Here,
            br_netfilter: Module::Here,
            namespaces: texts("cgroup ipc mnt net pid user uts"),
            seccomp: true,
        }),
        sysctls: Ok([
            ("vm.overcommit_memory", 1),
            ("vm.panic_on_oom", 0),
            ("kernel.panic", 10),
            ("kernel.panic_on_oops", 1),
            ("kernel.keys.root_maxkeys", 1_000_000),
            ("kernel.keys.root_maxbytes", 25_000_000),
            ("kernel.pid_max", 4_194_304),
            ("kernel.threads-max", 200_000),
            ("fs.nr_open", 1_048_576),
            ("fs.inotify.max_user_instances", 8192),
            ("fs.inotify.max_user_watches", 500_000),
            ("net.ipv4.ip_forward", 1),
            ("net.bridge.bridge-nf-call-iptables", 1),
            ("net.netfilter.nf_conntrack_count", 7),
            ("net.netfilter.nf_conntrack_max", 262_144),
        ]
        .into()),
        cgroups: Ok(Cgroups {
            version: CgroupVersion::V2,
            controllers: texts("cpuset cpu io memory hugetlb pids"),
            read_only: false,
            init: "systemd".into(),
        }),
        swaps: Ok(Vec::new()),
        memory: Ok(Memory { total: 8 << 30, available: 6 << 30 }),
        runtime: Ok(Runtime { socket: Socket::Here, other_sockets: Vec::new(), answers: Some(answers()) }),
        disks: vec![
            disk(DiskRole::Root, "/var/lib/kubelet"),
            disk(DiskRole::PodLogs, "/var/log/pods"),
            disk(DiskRole::Images, "/var/lib/containerd"),
        ],
        listeners: Ok(Vec::new()),
        processes: Ok(vec![process("systemd", "/sbin/init"), process("chronyd", "/usr/sbin/chronyd")]),
        clock: Clock { now: "2026-11-15T08:00:00Z".parse().expect("a time"), synchronised: false },
        resolv_conf: Ok(
            "# by hand\nnameserver 10.0.0.53\nsearch a.example b.example\noptions ndots:5\n".into()
        ),
        machine_id: Ok("3d1219c7c4c5404aaa1f6d2a48adfda4".into()),
        static_pods: Ok(Some(Owned { uid: 0, gid: 0, mode: 0o040_755, folder: true })),
        credentials: Credentials {
            kubeconfig: Some(Ok(Kubeconfig {
                server: "https://api:6443".into(),
                insecure: false,
                identity: Identity::Certificate,
            })),
            bootstrap: false,
            certificates: vec![certificate("client CA", "2036-01-01T00:00:00Z")],
            secrets: vec![Secret {
                role: "kubeconfig mode",
                path: "/etc/kubernetes/kubelet.conf".into(),
                owned: Ok(root_only()),
            }],
        },
        open_files: Ok(OpenFiles { soft: 1024, hard: 524_288 }),
        tools: Ok(texts("iptables nft")),
        security: Ok(Security { app_armor: true, selinux: None }),
    }
}

struct Machine {
    wanted: Wanted,
    facts: Facts,
}

impl Machine {
    fn sysctl(&mut self, name: &'static str, value: i64) {
        self.facts.sysctls.as_mut().expect("sysctls").insert(name, value);
    }

    fn cgroups(&mut self) -> &mut Cgroups {
        self.facts.cgroups.as_mut().expect("cgroups")
    }

    fn kernel(&mut self) -> &mut Kernel {
        self.facts.kernel.as_mut().expect("a kernel")
    }

    fn answers(&mut self) -> &mut Answers {
        self.facts.runtime.as_mut().expect("a runtime").answers.as_mut().expect("answers")
    }

    fn condition(&mut self, at: usize, reason: &str, message: &str) {
        let description = self.answers().description.as_mut().expect("a description");
        let name = description.conditions[at].name.clone();
        description.conditions[at] = condition(&name, false, reason, message);
    }

    fn no_answers(&mut self, socket: Socket, others: &[&str]) {
        let other_sockets = others.iter().map(PathBuf::from).collect();
        self.facts.runtime = Ok(Runtime { socket, other_sockets, answers: None });
    }

    fn disk(&mut self, at: usize) -> &mut DiskState {
        self.facts.disks[at].state.as_mut().expect("a disk")
    }

    fn mount(&mut self) -> &mut Mount {
        self.disk(0).mount.as_mut().expect("a mount")
    }

    fn resolver(&mut self, text: &str) {
        self.facts.resolv_conf = Ok(text.into());
    }

    fn held(&mut self, address: &str, port: u16, holder: Option<Process>) {
        let address = address.parse().expect("an address");
        self.facts.listeners = Ok(vec![Listener { address, port, holder }]);
    }

    fn standalone(&mut self) {
        self.wanted.kubeconfig = None;
        self.facts.credentials = Credentials::default();
    }

    fn kubeconfig(&mut self) -> &mut Kubeconfig {
        let kubeconfig = self.facts.credentials.kubeconfig.as_mut().expect("a kubeconfig");
        kubeconfig.as_mut().expect("readable")
    }

    fn findings(&self) -> Vec<Finding> {
        all(&self.wanted, &self.facts)
    }
}

fn machine() -> Machine {
    Machine { wanted: wanted(), facts: healthy() }
}

fn refused(kind: ErrorKind) -> CriError {
    CriError::new(kind, "as it says")
}

type Change = fn(&mut Machine);

/// Each change leads to exactly one problem: this one, with this in what was seen and this in the fix.
fn check(table: &[(&str, State, &str, &str, Change)]) {
    for (name, state, seen, fix, change) in table {
        let mut machine = machine();
        change(&mut machine);
        let mut problems = machine.findings();
        problems.retain(|finding| finding.state != State::Ok);
        let [problem] = problems.as_slice() else { panic!("{name}, {seen}: {problems:#?}") };
        assert_eq!((problem.name.as_str(), problem.state), (*name, *state), "{problem:#?}");
        assert!(problem.seen.contains(seen), "no `{seen}` in {problem:#?}");
        assert!(problem.fix.contains(fix), "no `{fix}` in {problem:#?}");
    }
}

/// These are no problem at all.
fn check_fine(table: &[(&str, &str, Change)]) {
    for (name, seen, change) in table {
        let mut machine = machine();
        change(&mut machine);
        let findings = machine.findings();
        let problems: Vec<_> = findings.iter().filter(|finding| finding.state != State::Ok).collect();
        assert!(problems.is_empty(), "{name}: {problems:#?}");
        assert!(
            findings.iter().any(|finding| finding.name == *name && finding.seen.contains(seen)),
            "no {name} with `{seen}` in {findings:#?}"
        );
    }
}

#[test]
fn a_healthy_machine_has_no_problems() {
    check_fine(&[("version", "containerd v2.3.7, CRI v1", |_| ())]);
}

#[test]
fn notices_about_the_settings_are_passed_on() {
    check(&[
        ("settings", State::Warning, "something is odd", "config view", |m| {
            m.wanted.notices = vec!["something is odd".into()];
        }),
        ("flags", State::Warning, "deprecated: --x and --y", "--config", |m| {
            let notice = |flag| format!("Flag {flag} has been deprecated, see elsewhere");
            m.wanted.notices = ["--x", "--y"].map(notice).into();
        }),
        ("settings", State::Warning, "without effect in this version: --a, b.c", "", |m| {
            m.wanted.not_yet = vec!["--a".into(), "b.c".into()];
        }),
    ]);
}

#[test]
fn an_unreadable_machine_is_told_as_such() {
    fn gone<T>() -> Result<T, Unread> {
        Err(Unread::Failed("gone".into()))
    }
    let facts = Facts {
        privileges: gone(),
        kernel: gone(),
        sysctls: gone(),
        cgroups: gone(),
        swaps: gone(),
        memory: gone(),
        runtime: gone(),
        disks: vec![Disk { role: DiskRole::Root, path: "/".into(), state: gone() }],
        listeners: gone(),
        processes: gone(),
        clock: healthy().clock,
        resolv_conf: gone(),
        machine_id: gone(),
        static_pods: gone(),
        credentials: Credentials { kubeconfig: Some(gone()), ..Credentials::default() },
        open_files: gone(),
        tools: gone(),
        security: gone(),
    };
    let findings = all(&wanted(), &facts);
    let told = findings.iter().filter(|finding| finding.seen.contains("gone")).count();
    assert!(told >= 17, "{findings:#?}");
    let errors: Vec<_> = findings
        .iter()
        .filter(|finding| finding.state == State::Error)
        .map(|finding| finding.name.as_str())
        .collect();
    assert_eq!(errors, ["resolver", "kubeconfig"]);
    assert!(
        findings.iter().all(|finding| (finding.state == State::Ok) == finding.fix.is_empty()),
        "{findings:#?}"
    );
}

#[test]
fn amounts_and_lists_read_well() {
    assert_eq!([0, 1023, 1024, 1536 << 20].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]);
    assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    assert_eq!(listed::<&str>(&[]), "nothing");
    assert_eq!(listed(&["a"]), "a");
    assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    assert_eq!(["10%", "1Ki", "", "x%"].map(|text| amount(text, 1000)), [Some(100), Some(1024), None, None]);
    assert_eq!(["0%", "100%"].map(|text| amount(text, 1000)), [None, None]);
}
