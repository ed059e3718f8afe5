//! Flags of older days.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "Leftovers", settings: SETTINGS };

const OF_NOBODY: &str = "A flag of cAdvisor. Accepted, without effect.";

const SETTINGS: &[Setting] = &[
    flag("housekeeping-interval", Duration).default("10s").doc("How often containers are measured."),
    flag("minimum-container-ttl-duration", Duration)
        .default("0s")
        .deprecated("Use --eviction-hard or --eviction-soft instead. Will be removed in a future version.")
        .doc("How long a dead container stays at least."),
    flag("maximum-dead-containers-per-container", Int32)
        .default("1")
        .deprecated("Use --eviction-hard or --eviction-soft instead. Will be removed in a future version.")
        .doc("How many dead containers of a container stay."),
    flag("maximum-dead-containers", Int32)
        .default("-1")
        .deprecated("Use --eviction-hard or --eviction-soft instead. Will be removed in a future version.")
        .doc("How many dead containers stay. Negative means any number."),
    flag("experimental-mounter-path", Path)
        .deprecated("will be removed in 1.25 or later. in favor of using CSI.")
        .doc("A program to mount with."),
    flag("experimental-allocatable-ignore-eviction", Bool)
        .default("false")
        .deprecated("will be removed in 1.25 or later.")
        .acts()
        .doc("Leave --eviction-hard out of what the node can allocate."),
    flag("application-metrics-count-limit", Int64)
        .default("100")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("boot-id-file", Text("FILES"))
        .default("/proc/sys/kernel/random/boot_id")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("container-hints", Text("FILE"))
        .default("/etc/cadvisor/container_hints.json")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("containerd", Text("SOCKET"))
        .default("/run/containerd/containerd.sock")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("containerd-namespace", Text("NAME"))
        .default("k8s.io")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("enable-load-reader", Bool).default("false").deprecated(OF_CADVISOR).inert().doc(OF_NOBODY),
    flag("event-storage-age-limit", Text("LIMITS"))
        .default("default=0")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("event-storage-event-limit", Text("LIMITS"))
        .default("default=0")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("global-housekeeping-interval", Duration)
        .default("1m0s")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("log-cadvisor-usage", Bool).default("false").deprecated(OF_CADVISOR).inert().doc(OF_NOBODY),
    flag("machine-id-file", Text("FILES"))
        .default("/etc/machine-id,/var/lib/dbus/machine-id")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("storage-driver-user", Text("NAME")).default("root").deprecated(OF_CADVISOR).inert().doc(OF_NOBODY),
    flag("storage-driver-password", Text("TEXT"))
        .default("root")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("storage-driver-host", Text("ADDRESS"))
        .default("localhost:8086")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("storage-driver-db", Text("NAME"))
        .default("cadvisor")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("storage-driver-table", Text("NAME"))
        .default("stats")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
    flag("storage-driver-secure", Bool).default("false").deprecated(OF_CADVISOR).inert().doc(OF_NOBODY),
    flag("storage-driver-buffer-duration", Duration)
        .default("1m0s")
        .deprecated(OF_CADVISOR)
        .inert()
        .doc(OF_NOBODY),
];
