//! The machine itself: its kernel, its groups, its clock and its limits.

use super::*;
use State::{Error, Warning};

#[test]
fn permissions() {
    check(&[
        ("user", Error, "user 1000", "sudo", |m| {
            m.facts.privileges = Ok(Privileges { uid: 1000, capabilities: 1 << 24 })
        }),
        ("capabilities", Error, "CAP_SYS_ADMIN (mounting volumes)", "CapabilityBoundingSet", |m| {
            m.facts.privileges = Ok(Privileges { uid: 0, capabilities: !(1 << 21) });
        }),
        ("capabilities", Warning, "CAP_NET_ADMIN", "", |m| {
            m.facts.privileges = Ok(Privileges { uid: 0, capabilities: !(1 << 12) });
        }),
        ("user", Warning, "could not be read", "", |m| {
            m.facts.privileges = Err(Unread::Failed("gone".into()))
        }),
    ]);
}

#[test]
fn kernels() {
    check(&[
        ("version", Error, "3.10.0 is too old", "5.8", |m| m.kernel().release = "3.10.0".into()),
        ("version", Warning, "5.4.0", "5.8", |m| m.kernel().release = "5.4.0-99-generic".into()),
        ("version", Warning, "not a version", "5.8", |m| m.kernel().release = "unknown".into()),
        ("overlayfs", Warning, "not supported", "modprobe overlay", |m| m.kernel().overlay = Module::Absent),
        ("namespaces", Error, "missing: net and pid", "", |m| {
            m.kernel().namespaces = texts("ipc mnt uts user cgroup")
        }),
        ("namespaces", Warning, "no user namespaces", "", |m| {
            m.kernel().namespaces = texts("ipc mnt uts net pid cgroup")
        }),
        ("seccomp", Warning, "not in this kernel", "CONFIG_SECCOMP", |m| m.kernel().seccomp = false),
        ("settings", Warning, "vm.overcommit_memory is 0, not 1", "sysctl -w vm.overcommit_memory=1`", |m| {
            m.sysctl("vm.overcommit_memory", 0);
        }),
        ("settings", Error, "protectKernelDefaults", "kernel.panic=10 kernel.panic_on_oops=1`", |m| {
            m.wanted.protect_kernel_defaults = true;
            m.sysctl("kernel.panic", 0);
            m.sysctl("kernel.panic_on_oops", 0);
        }),
    ]);
    check_fine(&[
        ("overlayfs", "on first use", |m| m.kernel().overlay = Module::Loadable),
        ("settings", "as Kubernetes wants", |m| {
            m.facts.sysctls.as_mut().expect("sysctls").remove("kernel.keys.root_maxkeys");
        }),
        ("SELinux", "enforcing", |m| {
            m.facts.security = Ok(Security { app_armor: false, selinux: Some(true) })
        }),
    ]);
}

#[test]
fn cgroup_versions_and_controllers() {
    check(&[
        ("version", Error, "failCgroupV1", "failCgroupV1: false", |m| {
            m.cgroups().version = CgroupVersion::V1;
            m.cgroups().controllers = texts("cpu cpuacct cpuset memory pids hugetlb");
        }),
        ("version", Warning, "v1", "unified_cgroup_hierarchy", |m| {
            m.wanted.fail_cgroup_v1 = false;
            m.cgroups().version = CgroupVersion::V1;
            m.cgroups().controllers = texts("cpu cpuacct cpuset memory pids hugetlb");
        }),
    ]);
    check(&[
        ("version", Error, "read-only", "remount,rw", |m| m.cgroups().read_only = true),
        ("controllers", Error, "missing: memory", "cgroup_disable", |m| {
            m.cgroups().controllers = texts("cpu cpuset pids hugetlb");
        }),
        ("controllers", Warning, "hugetlb", "huge pages", |m| {
            m.cgroups().controllers = texts("cpu cpuset memory pids");
        }),
        ("version", Warning, "no answer within", "hung", |m| m.facts.cgroups = Err(Unread::TooLate)),
    ]);
}

#[test]
fn cgroup_drivers() {
    check(&[
        (
            "driver",
            Warning,
            "the runtime uses systemd, the configuration says cgroupfs",
            "cgroupDriver: systemd",
            |m| {
                m.wanted.cgroup_driver = CgroupDriver::Cgroupfs;
            },
        ),
        ("driver", Warning, "too old to tell", "SystemdCgroup", |m| {
            m.answers().cgroup_driver = Err(refused(ErrorKind::Unimplemented));
        }),
        ("manager", Error, "process 1 is `init`", "SystemdCgroup = false", |m| {
            m.cgroups().init = "init".into()
        }),
        ("manager", Warning, "systemd runs the machine", "SystemdCgroup = true", |m| {
            m.wanted.cgroup_driver = CgroupDriver::Cgroupfs;
            m.answers().cgroup_driver = Ok(Some(CgroupDriver::Cgroupfs));
        }),
    ]);
    check_fine(&[
        ("driver", "leaves it open", |m| m.answers().cgroup_driver = Ok(None)),
        ("manager", "none but", |m| {
            m.cgroups().init = "init".into();
            m.wanted.cgroup_driver = CgroupDriver::Cgroupfs;
            m.answers().cgroup_driver = Ok(Some(CgroupDriver::Cgroupfs));
        }),
    ]);
}

#[test]
fn memory_and_swap() {
    fn swap(m: &mut Machine) {
        m.facts.swaps = Ok(vec![Swap { name: "/dev/dm-1".into(), kib: 1 << 20 }]);
    }
    check(&[
        ("swap", Error, "on: /dev/dm-1 (1.0 GiB); failSwapOn", "swapoff -a", swap),
        ("swap", Warning, "secrets", "6.4", |m| {
            swap(m);
            m.wanted.fail_swap_on = false;
            m.kernel().release = "6.1.0".into();
        }),
        ("available", Error, "eviction threshold of 100.0 MiB", "", |m| {
            m.facts.memory = Ok(Memory { total: 1 << 30, available: 50 << 20 });
        }),
        ("available", Error, "eviction threshold of 512.0 MiB", "", |m| {
            m.wanted.eviction_hard.insert("memory.available".into(), "50%".into());
            m.facts.memory = Ok(Memory { total: 1 << 30, available: 50 << 20 });
        }),
    ]);
    check_fine(&[
        ("swap", "on: /dev/dm-1", |m| {
            swap(m);
            m.wanted.fail_swap_on = false;
        }),
        ("available", "50.0 MiB", |m| {
            m.wanted.eviction_hard.clear();
            m.facts.memory = Ok(Memory { total: 1 << 30, available: 50 << 20 });
        }),
    ]);
}

#[test]
fn clocks() {
    check(&[
        ("synchronised", Warning, "no time service", "chrony", |m| m.facts.processes = Ok(Vec::new())),
        ("synchronised", Warning, "not reached a server", "timesync-status", |m| {
            m.facts.processes = Ok(vec![process("systemd-timesyn", "")]);
        }),
    ]);
    check_fine(&[("synchronised", "systemd-timesyncd", |m| {
        m.facts.processes = Ok(Vec::new());
        m.facts.clock.synchronised = true;
    })]);
    let mut machine = machine();
    machine.facts.clock.now = "1970-01-01T00:00:07Z".parse().expect("a time");
    let errors: Vec<_> = machine.findings().into_iter().filter(|finding| finding.state == Error).collect();
    assert!(
        errors.iter().any(|finding| finding.name == "time" && finding.seen.contains("cannot be")),
        "{errors:#?}"
    );
    assert!(errors.iter().any(|finding| finding.seen.contains("is not valid before")), "{errors:#?}");
}

#[test]
fn limits() {
    check(&[
        ("open files", Warning, "fs.nr_open is 65536", "sysctl -w fs.nr_open=1000000", |m| {
            m.sysctl("fs.nr_open", 65536)
        }),
        ("inotify instances", Warning, "max_user_instances is 16", "128", |m| {
            m.sysctl("fs.inotify.max_user_instances", 16);
        }),
        ("inotify watches", Warning, "is 100", "8192", |m| m.sysctl("fs.inotify.max_user_watches", 100)),
        ("process ids of a pod", Warning, "podPidsLimit", "kernel.pid_max", |m| {
            m.wanted.pod_pids_limit = 5_000_000
        }),
    ]);
    let mut machine = machine();
    machine.facts.privileges = Ok(Privileges { uid: 0, capabilities: !(1 << 24) });
    let findings = machine.findings();
    for (name, seen) in [("capabilities", "CAP_SYS_RESOURCE"), ("open files", "at most 524288")] {
        let found = findings.iter().find(|finding| finding.name == name).expect("a finding");
        assert!(found.state == Warning && found.seen.contains(seen), "{found:#?}");
    }
}
