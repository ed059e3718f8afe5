//! What happens when the machine runs out of something.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "Eviction", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("evictionHard", TextMap(Pairs::Less))
        .flag("eviction-hard")
        .acts()
        .doc("Thresholds at which pods are evicted at once, such as `memory.available<100Mi`. With --config, the default is `imagefs.available<15%,imagefs.inodesFree<5%,memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%`. This version keeps these amounts from pods and does not evict yet."),
    field("evictionSoft", TextMap(Pairs::Less))
        .flag("eviction-soft")
        .doc("Thresholds at which pods are evicted after a grace period."),
    field("evictionSoftGracePeriod", TextMap(Pairs::Equals))
        .flag("eviction-soft-grace-period")
        .doc("The grace periods of --eviction-soft."),
    field("evictionPressureTransitionPeriod", Duration)
        .flag("eviction-pressure-transition-period")
        .default("5m0s")
        .doc("How long pressure must be gone before the node says so."),
    field("evictionMaxPodGracePeriod", Int32)
        .flag("eviction-max-pod-grace-period")
        .doc("The longest grace period, in seconds, of pods that --eviction-soft evicts."),
    field("evictionMinimumReclaim", TextMap(Pairs::Equals))
        .flag("eviction-minimum-reclaim")
        .doc("How much is reclaimed at least."),
    field("mergeDefaultEvictionSettings", Bool)
        .pointer()
        .default("false")
        .acts()
        .doc("Thresholds that evictionHard of the file leaves out keep their defaults."),
    field("kernelMemcgNotification", Bool)
        .flag("kernel-memcg-notification")
        .doc("Let the kernel tell when memory runs short."),
    field("localStorageCapacityIsolation", Bool)
        .pointer()
        .flag("local-storage-capacity-isolation")
        .default("true")
        .acts()
        .doc("Measure and limit the local storage of pods."),
];
