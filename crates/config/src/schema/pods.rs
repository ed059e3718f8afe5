//! How pods are run.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "How pods are run", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("syncFrequency", Duration)
        .flag("sync-frequency")
        .default("1m0s")
        .acts()
        .doc("How often each pod is looked at even though nothing reported a change."),
    field("maxPods", Int32)
        .flag("max-pods")
        .default("110")
        .acts()
        .doc("How many pods may run here."),
    field("podsPerCore", Int32)
        .flag("pods-per-core")
        .acts()
        .doc("How many pods may run per core, up to --max-pods. 0 means no such limit."),
    field("podPidsLimit", Int64)
        .pointer()
        .flag("pod-max-pids")
        .default("-1")
        .acts()
        .doc("How many processes a pod may have. -1 means as many as the node can allocate."),
    field("crashLoopBackOff.maxContainerRestartPeriod", Duration)
        .pointer()
        .live()
        .doc("The longest pause before a crashing container is started again, from 1s to 5m (the default)."),
    field("cpuCFSQuota", Bool)
        .pointer()
        .flag("cpu-cfs-quota")
        .default("true")
        .live()
        .doc("Enforce CPU limits."),
    field("cpuCFSQuotaPeriod", Duration)
        .pointer()
        .flag("cpu-cfs-quota-period")
        .default("100ms")
        .acts()
        .doc("The period over which CPU limits are enforced, from 1ms to 1s."),
    field("seccompDefault", Bool)
        .pointer()
        .default("false")
        .live()
        .doc("Containers that name no seccomp profile get the runtime's. Said by either the field or --seccomp-default, it holds."),
    flag("seccomp-default", Bool)
        .default("false")
        .acts()
        .doc("As the field seccompDefault. Said by either, it holds."),
    field("allowedUnsafeSysctls", TextList("PATTERN"))
        .flag("allowed-unsafe-sysctls")
        .acts()
        .doc("Unsafe sysctls that pods may set. A name may end in `*`."),
    field("podLogsDir", Path)
        .default("/var/log/pods")
        .acts()
        .doc("Where the runtime writes the logs of containers."),
    flag("container-logs-dir", Path)
        .default("/var/log/containers")
        .acts()
        .doc("Where links to the logs are kept for log collectors. Crablet's own flag: upstream cannot move them."),
    field("containerLogMaxSize", Text("SIZE"))
        .flag("container-log-max-size")
        .default("10Mi")
        .doc("How large a container's log may become before it is rotated. Negative means never."),
    field("containerLogMaxFiles", Int32)
        .pointer()
        .flag("container-log-max-files")
        .default("5")
        .doc("How many log files a container may have, at least 2."),
    field("containerLogMaxWorkers", Int32)
        .pointer()
        .default("1")
        .doc("How many logs are rotated at once."),
    field("containerLogMonitorInterval", Duration)
        .pointer()
        .default("10s")
        .doc("How often the sizes of logs are looked at, at least 3s."),
    field("volumePluginDir", Path)
        .flag("volume-plugin-dir")
        .default("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
        .doc("Where FlexVolume drivers are looked for."),
    field("volumeStatsAggPeriod", Duration)
        .flag("volume-stats-agg-period")
        .default("1m0s")
        .doc("How often the sizes of volumes are measured. Negative means never."),
    field("enableControllerAttachDetach", Bool)
        .pointer()
        .flag("enable-controller-attach-detach")
        .default("true")
        .acts()
        .doc("The control plane attaches and detaches volumes, not the node."),
    field("configMapAndSecretChangeDetectionStrategy", Text("STRATEGY"))
        .default("Watch")
        .acts()
        .doc("How changes of config maps and secrets are noticed: Get, Cache or Watch."),
    field("userNamespaces.idsPerPod", Int64)
        .pointer()
        .acts()
        .doc("How many user ids a pod with a user namespace gets: a multiple of 65536 (the default)."),
    field("shutdownGracePeriod", Duration)
        .default("0s")
        .doc("How long the machine's shutdown waits for pods. 0s means not at all."),
    field("shutdownGracePeriodCriticalPods", Duration)
        .default("0s")
        .doc("The part of shutdownGracePeriod that is kept for critical pods."),
    field("shutdownGracePeriodByPodPriority", Objects(Items::ShutdownByPriority))
        .doc("How long the machine's shutdown waits for pods, by their priority. Instead of the two above."),
];
