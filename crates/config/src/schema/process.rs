//! The process itself.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "The process", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    flag("lock-file", Path)
        .acts()
        .doc("A file to lock: two agents with the same one do not run at once."),
    flag("exit-on-lock-contention", Bool)
        .default("false")
        .acts()
        .doc("Exit when somebody else opens --lock-file."),
    field("oomScoreAdj", Int32)
        .pointer()
        .flag("oom-score-adj")
        .default("-999")
        .acts()
        .doc("The agent's own OOM score, from -1000 to 1000."),
    field("maxOpenFiles", Int64)
        .flag("max-open-files")
        .default("1000000")
        .acts()
        .doc("How many files the agent may have open."),
    field("runOnce", Bool)
        .flag("runonce")
        .acts()
        .doc("Start the manifests' pods, wait until they run or have finished, report, exit. Upstream has removed this mode and refuses it."),
    field("failSwapOn", Bool)
        .pointer()
        .flag("fail-swap-on")
        .default("true")
        .acts()
        .doc("Refuse to start while swap is on."),
    field("failCgroupV1", Bool)
        .pointer()
        .flag("fail-cgroupv1")
        .welcome()
        .default("true")
        .acts()
        .doc("Refuse to start on a machine with cgroup v1."),
    field("protectKernelDefaults", Bool)
        .flag("protect-kernel-defaults")
        .doc("Refuse to start when kernel settings differ from what is needed, instead of changing them."),
    field("makeIPTablesUtilChains", Bool)
        .pointer()
        .flag("make-iptables-util-chains")
        .default("true")
        .doc("Keep the iptables chain that tells other programs which iptables is in use."),
];
