//! Labels, annotations, reasons and constants that other programs read. Equal to upstream v1.36's.

/// Annotations on pods.
pub mod annotation {
    pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
    pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
    pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
    pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

    /// Annotations on containers, by which a restarted agent recognises what it started.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub const CONTAINER_TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub const CONTAINER_TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
    pub const CONTAINER_PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
    pub const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
    pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}

/// Labels on sandboxes and containers.
pub mod label {
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// Reasons of a container's waiting and terminated states.
pub mod container_reason {
    pub const CONTAINER_CREATING: &str = "ContainerCreating";
    pub const POD_INITIALIZING: &str = "PodInitializing";
    pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";
    pub const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";
    pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
    pub const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";
    pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
    pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
    pub const RUN_CONTAINER_ERROR: &str = "RunContainerError";
    pub const POST_START_HOOK_ERROR: &str = "PostStartHookError";
    pub const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
    pub const CONTAINER_CANNOT_RUN: &str = "ContainerCannotRun";
    pub const COMPLETED: &str = "Completed";
    pub const ERROR: &str = "Error";
    pub const OOM_KILLED: &str = "OOMKilled";
    pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
}

/// Pod conditions and their reasons.
pub mod condition {
    pub const POD_SCHEDULED: &str = "PodScheduled";
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    pub const INITIALIZED: &str = "Initialized";
    pub const READY: &str = "Ready";
    pub const CONTAINERS_READY: &str = "ContainersReady";
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    pub const POD_RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";

    pub const REASON_CONTAINERS_NOT_READY: &str = "ContainersNotReady";
    pub const REASON_CONTAINERS_NOT_INITIALIZED: &str = "ContainersNotInitialized";
    pub const REASON_POD_COMPLETED: &str = "PodCompleted";
    pub const REASON_POD_FAILED: &str = "PodFailed";
    pub const REASON_UNKNOWN_CONTAINER_STATUSES: &str = "UnknownContainerStatuses";
    pub const REASON_READINESS_GATES_NOT_READY: &str = "ReadinessGatesNotReady";
    pub const REASON_RESIZE_DEFERRED: &str = "Deferred";
    pub const REASON_RESIZE_INFEASIBLE: &str = "Infeasible";
    pub const REASON_RESIZE_ERROR: &str = "Error";
    pub const REASON_RESTART_ALL_CONTAINERS_STARTED: &str = "RestartAllContainersStarted";
}

/// Reasons of events.
pub mod event_reason {
    pub const BACK_OFF: &str = "BackOff";
    pub const CREATED: &str = "Created";
    pub const STARTED: &str = "Started";
    pub const KILLING: &str = "Killing";
    pub const FAILED: &str = "Failed";
    pub const PULLING: &str = "Pulling";
    pub const PULLED: &str = "Pulled";
    pub const INSPECT_FAILED: &str = "InspectFailed";
    pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    pub const SANDBOX_CHANGED: &str = "SandboxChanged";
    pub const FAILED_CREATE_POD_SANDBOX: &str = "FailedCreatePodSandBox";
    pub const FAILED_CREATE_POD_CONTAINER: &str = "FailedCreatePodContainer";
    pub const FAILED_TO_MAKE_DIRECTORIES: &str = "FailedToMakePodDataDirectories";
    pub const FAILED_KILL_POD: &str = "FailedKillPod";
    pub const FAILED_SYNC: &str = "FailedSync";
    pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
    pub const FAILED_PRE_STOP_HOOK: &str = "FailedPreStopHook";
    pub const LIFECYCLE_HTTP_FALLBACK: &str = "LifecycleHTTPFallback";
    pub const UNHEALTHY: &str = "Unhealthy";
    pub const PROBE_WARNING: &str = "ProbeWarning";
    pub const FAILED_VALIDATION: &str = "FailedValidation";
    pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
    pub const MISSING_CLUSTER_DNS: &str = "MissingClusterDNS";
    pub const DNS_CONFIG_FORMING: &str = "DNSConfigForming";
    pub const CHECK_LIMITS_FOR_RESOLV_CONF: &str = "CheckLimitsForResolvConf";
    pub const RESIZE_STARTED: &str = "ResizeStarted";
    pub const RESIZE_COMPLETED: &str = "ResizeCompleted";
    pub const RESIZE_DEFERRED: &str = "ResizeDeferred";
    pub const RESIZE_INFEASIBLE: &str = "ResizeInfeasible";
    pub const RESIZE_ERROR: &str = "ResizeError";
    pub const STARTING: &str = "Starting";
    pub const NODE_ALLOCATABLE_ENFORCED: &str = "NodeAllocatableEnforced";
    pub const FAILED_NODE_ALLOCATABLE_ENFORCEMENT: &str = "FailedNodeAllocatableEnforcement";
    pub const CGROUP_V1: &str = "CgroupV1";
    pub const POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK: &str = "PossibleMemoryBackedVolumesOnDisk";
}

/// Pod phases.
pub mod phase {
    pub const PENDING: &str = "Pending";
    pub const RUNNING: &str = "Running";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const FAILED: &str = "Failed";

    pub fn is_terminal(phase: &str) -> bool {
        phase == SUCCEEDED || phase == FAILED
    }
}

/// Where a pod came from, as `kubernetes.io/config.source` says it.
pub mod source {
    pub const FILE: &str = "file";
    pub const HTTP: &str = "http";
    pub const API: &str = "api";
}
