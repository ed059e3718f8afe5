//! Kubernetes' own programs at one pinned version: the control plane, the kubelet to compare with, the suites that judge
//! both. Built from the Go module in `go/kube`.

use std::path::PathBuf;

use anyhow::Result;

use crate::gobuild::{Module, Program};

/// The version that `go/kube/go.mod` pins.
pub const VERSION: &str = "v1.36.4";

const MODULE: Module = Module {
    name: "kube",
    go_mod: include_str!("../go/kube/go.mod"),
    go_sum: include_str!("../go/kube/go.sum"),
};

const CRI_TOOLS: Module = Module {
    name: "cri-tools",
    go_mod: include_str!("../go/cri-tools/go.mod"),
    go_sum: include_str!("../go/cri-tools/go.sum"),
};

/// Without these the programs call themselves `v0.0.0-master`, which version checks between them refuse.
const STAMP: &str = "-X k8s.io/component-base/version.gitVersion=v1.36.4 \
                     -X k8s.io/component-base/version.gitMajor=1 \
                     -X k8s.io/component-base/version.gitMinor=36";

pub const KUBELET: Program = stamped("kubelet", "k8s.io/kubernetes/cmd/kubelet", "4 minutes");
pub const APISERVER: Program = stamped("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "4 minutes");
pub const CONTROLLER_MANAGER: Program =
    stamped("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "1 minute");
pub const SCHEDULER: Program = stamped("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "seconds");
pub const KUBECTL: Program = stamped("kubectl", "k8s.io/kubernetes/cmd/kubectl", "half a minute");
pub const PROXY: Program = stamped("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", "seconds");
/// Makes clusters of machines, and machines nodes.
pub const KUBEADM: Program = stamped("kubeadm", "k8s.io/kubernetes/cmd/kubeadm", "half a minute");
/// The many-in-one server that the suites run in their pods.
pub const AGNHOST: Program = stamped("agnhost", "k8s.io/kubernetes/test/images/agnhost", "seconds");
/// Tells its effective user; the suites run it with its set-uid bit.
pub const NONEWPRIVS: Program = stamped("nonewprivs", "k8s.io/kubernetes/test/images/nonewprivs", "seconds");
/// Listens for the packets that broke connections in issue 74839.
pub const REGRESSION_ISSUE_74839: Program =
    stamped("regression-issue-74839", "k8s.io/kubernetes/test/images/regression-issue-74839", "seconds");
/// Offers devices that are not there.
pub const SAMPLE_DEVICE_PLUGIN: Program =
    stamped("sample-device-plugin", "k8s.io/kubernetes/test/images/sample-device-plugin", "seconds");
pub const GINKGO: Program = Program::plain("ginkgo", "github.com/onsi/ginkgo/v2/ginkgo", "seconds");
/// The suite that needs a cluster.
pub const E2E: Program =
    Program { is_test: true, ..stamped("e2e.test", "k8s.io/kubernetes/test/e2e", "10 minutes") };
/// The suite that starts its own kubelet.
pub const E2E_NODE: Program =
    Program { is_test: true, ..stamped("e2e_node.test", "k8s.io/kubernetes/test/e2e_node", "1 minute") };
pub const CRICTL: Program = Program::plain("crictl", "sigs.k8s.io/cri-tools/cmd/crictl", "1 minute");

pub const CONTROL_PLANE: &[Program] = &[APISERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL];

const fn stamped(name: &'static str, package: &'static str, takes: &'static str) -> Program {
    Program { link_flags: STAMP, ..Program::plain(name, package, takes) }
}

/// Builds what is missing of Kubernetes' programs and gives the folder that holds them.
pub fn ensure(programs: &[Program]) -> Result<PathBuf> {
    MODULE.ensure(programs)
}

/// Whether all of them are built.
pub fn has(programs: &[Program]) -> bool {
    MODULE.has(programs)
}

/// `crictl`, for looking at a runtime with the eyes of a person.
pub fn ensure_crictl() -> Result<PathBuf> {
    Ok(CRI_TOOLS.ensure(&[CRICTL])?.join(CRICTL.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_and_the_pinned_version_are_one() {
        assert!(MODULE.go_mod.contains(&format!("k8s.io/kubernetes {VERSION}")));
        assert!(STAMP.contains(&format!("gitVersion={VERSION} ")));
    }
}
