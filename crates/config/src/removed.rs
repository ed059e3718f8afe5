//! Flags that older kubelets had. Who still uses one made no typing mistake, and is told what came instead.

const REMOVED: &[(&str, &str)] = &[
    ("allow-privileged", "it was removed in 1.15: privileged pods are a matter of admission"),
    ("azure-container-registry-config", "use `--image-credential-provider-config` and an external provider"),
    ("cadvisor-port", "it was removed in 1.12: container metrics are served on `--port`"),
    ("chaos-chance", "it was removed in 1.25"),
    ("cloud-config", "cloud providers are external programs now; take it out"),
    ("cni-bin-dir", "the network is configured in the container runtime"),
    ("cni-cache-dir", "the network is configured in the container runtime"),
    ("cni-conf-dir", "the network is configured in the container runtime"),
    ("container-runtime", "it was removed in 1.27: `--container-runtime-endpoint` is enough"),
    ("docker", "there is no docker any more; use `--container-runtime-endpoint`"),
    ("docker-endpoint", "there is no dockershim any more; use `--container-runtime-endpoint`"),
    ("docker-root", "there is no docker any more; take it out"),
    ("docker-only", "there is no docker any more; take it out"),
    ("dynamic-config-dir", "it was removed in 1.24: use `--config` and `--config-dir`"),
    ("enable-custom-metrics", "it was removed in 1.11; take it out"),
    ("experimental-bootstrap-kubeconfig", "it is called `--bootstrap-kubeconfig` now"),
    ("experimental-check-node-capabilities-before-mount", "it was removed in 1.22; take it out"),
    ("experimental-dockershim-root-directory", "there is no dockershim any more; take it out"),
    ("experimental-kernel-memcg-notification", "it is called `--kernel-memcg-notification` now"),
    ("experimental-logging-sanitization", "it was removed in 1.24; take it out"),
    ("image-pull-progress-deadline", "it was removed with dockershim: set it in the container runtime"),
    ("iptables-drop-bit", "it was removed in 1.28; the field `iptablesDropBit` is accepted, without effect"),
    (
        "iptables-masquerade-bit",
        "it was removed in 1.28; the field `iptablesMasqueradeBit` is accepted, without effect",
    ),
    ("keep-terminated-pod-volumes", "it was removed in 1.36; take it out"),
    ("master-service-namespace", "it was removed in 1.27; take it out"),
    ("network-plugin", "it was removed in 1.24: the network is configured in the container runtime"),
    ("network-plugin-mtu", "it was removed in 1.24: the network is configured in the container runtime"),
    (
        "node-status-report-frequency",
        "set the field `nodeStatusReportFrequency` in the file behind `--config`",
    ),
    ("non-masquerade-cidr", "it was removed with dockershim: masquerading is the network plugin's business"),
    (
        "pod-infra-container-image",
        "it was removed in 1.35: the pause image is configured in the container runtime",
    ),
    ("register-schedulable", "it was removed in 1.24: use `--register-with-taints`"),
    ("redirect-container-streaming", "it was removed in 1.22; take it out"),
    ("really-crash-for-testing", "it was removed in 1.25"),
    ("require-kubeconfig", "it was removed in 1.10: `--kubeconfig` is enough"),
    ("api-servers", "it was removed in 1.8: use `--kubeconfig`"),
    ("seccomp-profile-root", "it was removed in 1.23: profiles are in `seccomp` below `--root-dir`"),
    ("storage-driver", "it was removed; take it out"),
    ("streaming-bind-addr", "it was removed; streaming is the container runtime's business"),
    ("log-dir", "klog's file flags were removed in 1.26: the log goes to stderr; let the supervisor keep it"),
    (
        "log-file",
        "klog's file flags were removed in 1.26: the log goes to stderr; let the supervisor keep it",
    ),
    ("log-file-max-size", "klog's file flags were removed in 1.26: the log goes to stderr"),
    ("log-backtrace-at", "klog's extra flags were removed in 1.26; take it out"),
    ("logtostderr", "klog's extra flags were removed in 1.26: the log always goes to stderr"),
    ("alsologtostderr", "klog's extra flags were removed in 1.26: the log always goes to stderr"),
    ("stderrthreshold", "klog's extra flags were removed in 1.26: the log always goes to stderr"),
    ("one-output", "klog's extra flags were removed in 1.26; take it out"),
    ("skip-headers", "klog's extra flags were removed in 1.26; take it out"),
    ("skip-log-headers", "klog's extra flags were removed in 1.26; take it out"),
    ("add-dir-header", "klog's extra flags were removed in 1.26; take it out"),
    ("windows-service", "it exists on Windows only"),
    ("windows-priorityclass", "it exists on Windows only"),
];

/// What to do instead of using a flag that is gone.
pub fn instead_of(flag: &str) -> Option<&'static str> {
    let exact = REMOVED.iter().find(|(name, _)| *name == flag).map(|(_, instead)| *instead);
    exact.or_else(|| flag.starts_with("docker-").then_some("there is no docker any more; take it out"))
}
