//! Cgroups, and the resources that are kept back or handed out whole.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "Cgroups and resources", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("cgroupsPerQOS", Bool)
        .pointer()
        .flag("cgroups-per-qos")
        .default("true")
        .acts()
        .doc("Give every pod and every quality of service a cgroup."),
    field("cgroupDriver", Text("DRIVER"))
        .flag("cgroup-driver")
        .default("cgroupfs")
        .acts()
        .doc("cgroupfs or systemd. What the runtime says wins."),
    field("cgroupRoot", Text("CGROUP"))
        .flag("cgroup-root")
        .acts()
        .doc("The cgroup below which pods run."),
    field("kubeletCgroups", Text("CGROUP"))
        .flag("kubelet-cgroups")
        .doc("The cgroup to run the agent in."),
    field("systemCgroups", Text("CGROUP"))
        .flag("system-cgroups")
        .doc("The cgroup for processes that are in none. Needs --cgroup-root."),
    flag("runtime-cgroups", Text("CGROUP"))
        .doc("The cgroup that the container runtime runs in."),
    field("systemReserved", TextMap(Pairs::Equals))
        .flag("system-reserved")
        .acts()
        .doc("Resources kept back for the system: cpu, memory, ephemeral-storage, pid."),
    field("kubeReserved", TextMap(Pairs::Equals))
        .flag("kube-reserved")
        .acts()
        .doc("Resources kept back for Kubernetes: cpu, memory, ephemeral-storage, pid."),
    field("reservedSystemCPUs", Text("CPUS"))
        .flag("reserved-cpus")
        .acts()
        .doc("CPUs kept back for the system and Kubernetes, such as `0-1,8`."),
    field("systemReservedCgroup", Text("CGROUP"))
        .flag("system-reserved-cgroup")
        .doc("The cgroup of the system's processes."),
    field("kubeReservedCgroup", Text("CGROUP"))
        .flag("kube-reserved-cgroup")
        .doc("The cgroup of Kubernetes' own processes."),
    field("enforceNodeAllocatable", TextList("LEVEL"))
        .flag("enforce-node-allocatable")
        .default("pods")
        .acts()
        .doc("Whose limits are enforced: none, pods, system-reserved, system-reserved-compressible, kube-reserved, kube-reserved-compressible."),
    field("qosReserved", TextMap(Pairs::Equals))
        .flag("qos-reserved")
        .doc("How much of what pods requested is kept from lower classes, such as `memory=50%`. Needs the gate QOSReserved."),
    field("cpuManagerPolicy", Text("POLICY"))
        .flag("cpu-manager-policy")
        .default("none")
        .doc("none or static."),
    field("cpuManagerPolicyOptions", TextMap(Pairs::One))
        .flag("cpu-manager-policy-options")
        .doc("Options of the CPU manager's policy, one per flag."),
    field("cpuManagerReconcilePeriod", Duration)
        .flag("cpu-manager-reconcile-period")
        .default("10s")
        .doc("How often the CPU manager looks at what is."),
    field("memoryManagerPolicy", Text("POLICY"))
        .flag("memory-manager-policy")
        .default("None")
        .doc("None or Static."),
    field("reservedMemory", Objects(Items::ReservedMemory))
        .flag("reserved-memory")
        .doc("Memory kept back per NUMA node, as `0:memory=1Gi,hugepages-2Mi=2Gi;1:...`."),
    field("topologyManagerPolicy", Text("POLICY"))
        .flag("topology-manager-policy")
        .default("none")
        .doc("none, best-effort, restricted or single-numa-node."),
    field("topologyManagerScope", Text("SCOPE"))
        .flag("topology-manager-scope")
        .default("container")
        .doc("container or pod."),
    field("topologyManagerPolicyOptions", TextMap(Pairs::Equals))
        .flag("topology-manager-policy-options")
        .doc("Options of the topology manager's policy."),
    field("memorySwap.swapBehavior", Text("BEHAVIOUR"))
        .doc("NoSwap (the default) or LimitedSwap."),
    field("memoryThrottlingFactor", Float)
        .pointer()
        .default("0.9")
        .doc("At which part of its memory limit a container is slowed down. Needs the gate MemoryQoS."),
    field("memoryReservationPolicy", Text("POLICY"))
        .default("None")
        .doc("None or TieredReservation. Needs the gate MemoryQoS."),
    field("singleProcessOOMKill", Bool)
        .pointer()
        .acts()
        .doc("Out of memory ends one process of a container, not all. True on cgroup v1, false on v2."),
];
