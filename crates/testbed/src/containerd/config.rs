//! containerd's configuration file: everything it would put into shared folders is moved into the scratch folder.

use std::path::Path;

use crate::images;
use crate::scratch::Scratch;

/// What the text depends on besides the folder.
pub struct Inputs<'a> {
    pub major_version: u32,
    pub runc: &'a Path,
    pub cni_plugins: &'a Path,
    pub snapshotter: &'a str,
}

pub fn text(scratch: &Scratch, inputs: &Inputs<'_>) -> String {
    if inputs.major_version >= 2 { version_3(scratch, inputs) } else { version_2(scratch, inputs) }
}

/// For containerd 1.x. The test machines lack CAP_SYS_RESOURCE: without `restrict_oom_score_adj` runc dies when it
/// lowers a sandbox's score ("can't get final child's PID from pipe: EOF").
fn version_2(scratch: &Scratch, inputs: &Inputs<'_>) -> String {
    format!(
        r#"version = 2
root = {root:?}
state = {state:?}
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = {socket:?}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = {cni_plugins:?}
  conf_dir = {cni_conf:?}

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = {registry_hosts:?}

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{snapshotter}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = {runc:?}
  Root = {runc_root:?}

# The handler that upstream's suites expect of a node, beside its usual one.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.test-handler]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.test-handler.options]
  BinaryName = {runc:?}
  Root = {runc_root:?}
"#,
        root = scratch.root(),
        state = scratch.state(),
        socket = scratch.socket(),
        pause = images::PAUSE,
        registry_hosts = scratch.registry_hosts(),
        cni_plugins = inputs.cni_plugins,
        cni_conf = scratch.cni_conf(),
        snapshotter = inputs.snapshotter,
        runc = inputs.runc,
        runc_root = scratch.runc_root(),
    )
}

/// For containerd 2.x. NRI is off because its socket has one fixed place on a machine.
fn version_3(scratch: &Scratch, inputs: &Inputs<'_>) -> String {
    format!(
        r#"version = 3
root = {root:?}
state = {state:?}
disabled_plugins = [
  "io.containerd.image-verifier.v1.bindir",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = {socket:?}

[plugins.'io.containerd.metadata.v1.bolt']
  # A scratch folder need not survive a power cut.
  no_sync = true

[plugins.'io.containerd.shim.v1.manager']
  socket_dir = {shim_sockets:?}

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "{snapshotter}"

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = {registry_hosts:?}

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  enable_cdi = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [{cni_plugins:?}]
  conf_dir = {cni_conf:?}

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = {runc:?}
  Root = {runc_root:?}

# The handler that upstream's suites expect of a node, beside its usual one.
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler.options]
  BinaryName = {runc:?}
  Root = {runc_root:?}
"#,
        root = scratch.root(),
        state = scratch.state(),
        socket = scratch.socket(),
        shim_sockets = scratch.shim_sockets(),
        snapshotter = inputs.snapshotter,
        pause = images::PAUSE,
        registry_hosts = scratch.registry_hosts(),
        cni_plugins = inputs.cni_plugins,
        cni_conf = scratch.cni_conf(),
        runc = inputs.runc,
        runc_root = scratch.runc_root(),
    )
}
