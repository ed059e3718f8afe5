//! Cgroups of pods: how they are called, and what they are allowed.
//!
//! | module | what it is |
//! |---|---|
//! | this one | names: a cgroup's components, and its path for either driver |
//! | [`limits`] | the numbers of a pod's cgroup, and the conversions between the units that files take |
//! | [`effective`] | what a pod asks for as a whole: containers, sidecars, init containers, pod level, overhead |
//!
//! A cgroup is a list of components. The cgroupfs driver joins them with `/`; systemd makes of each a slice whose name
//! repeats its parents' (`/kubepods.slice/kubepods-burstable.slice`), for which dashes in components become underscores.

pub mod effective;
pub mod limits;

use std::fmt;

use crate::api::Pod;
use crate::ids::PodUid;
use crate::qos::{QosClass, qos_class};

const KUBEPODS: &str = "kubepods";
const POD_PREFIX: &str = "pod";
const SLICE: &str = ".slice";

/// Who makes cgroups, which decides how they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

/// One cgroup, the same in every hierarchy.
#[derive(Clone, PartialEq, Eq)]
pub struct Cgroup {
    components: Vec<String>,
    driver: CgroupDriver,
}

impl Cgroup {
    /// From a path in cgroupfs form, as people configure it: `/`, `/foo/bar`.
    pub fn new(path: &str, driver: CgroupDriver) -> Self {
        let components = path.split('/').filter(|part| !part.is_empty()).map(str::to_string).collect();
        Self { components, driver }
    }

    pub fn child(&self, component: &str) -> Self {
        let mut child = self.clone();
        child.components.push(component.to_string());
        child
    }

    pub fn driver(&self) -> CgroupDriver {
        self.driver
    }

    /// Below each hierarchy's mount, with a leading slash. This is also what a runtime is told as a sandbox's parent.
    pub fn path(&self) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", self.components.join("/")),
            CgroupDriver::Systemd if self.components.is_empty() => "/".to_string(),
            CgroupDriver::Systemd => {
                (1..=self.components.len()).map(|depth| format!("/{}", self.slice(depth))).collect()
            }
        }
    }

    /// The unit that systemd knows the cgroup as.
    pub fn unit(&self) -> String {
        self.slice(self.components.len())
    }

    /// The unit above: `-.slice` is systemd's root.
    pub fn parent_unit(&self) -> String {
        self.slice(self.components.len().saturating_sub(1))
    }

    fn slice(&self, depth: usize) -> String {
        let parts: Vec<_> = self.components[..depth].iter().map(|part| part.replace('-', "_")).collect();
        if parts.is_empty() { format!("-{SLICE}") } else { format!("{}{SLICE}", parts.join("-")) }
    }

    /// The components as upstream's messages print them where names are quoted: `["kubepods" "burstable"]`.
    pub fn quoted(&self) -> String {
        let parts: Vec<_> = self.components.iter().map(|part| format!("{part:?}")).collect();
        format!("[{}]", parts.join(" "))
    }
}

/// As upstream's messages print a cgroup: `[kubepods burstable]`.
impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.components.join(" "))
    }
}

impl fmt::Debug for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// The cgroups that hold all pods of the node.
#[derive(Clone, Debug)]
pub struct PodCgroups {
    root: Cgroup,
    kubepods: Cgroup,
}

impl PodCgroups {
    /// `root` is the configured `cgroupRoot`.
    pub fn new(root: &str, driver: CgroupDriver) -> Self {
        let root = Cgroup::new(root, driver);
        Self { kubepods: root.child(KUBEPODS), root }
    }

    /// Where the administrator put us.
    pub fn root(&self) -> &Cgroup {
        &self.root
    }

    pub fn kubepods(&self) -> &Cgroup {
        &self.kubepods
    }

    /// Where pods of a class are. Guaranteed ones have no cgroup of their own class.
    pub fn class(&self, class: QosClass) -> Cgroup {
        match class {
            QosClass::Guaranteed => self.kubepods.clone(),
            QosClass::Burstable => self.kubepods.child("burstable"),
            QosClass::BestEffort => self.kubepods.child("besteffort"),
        }
    }

    pub fn pod(&self, class: QosClass, uid: &PodUid) -> Cgroup {
        self.class(class).child(&format!("{POD_PREFIX}{uid}"))
    }

    /// Whose cgroup `folder` is, directly below the cgroup of `class`.
    pub fn pod_in(&self, class: QosClass, folder: &str) -> Option<PodUid> {
        let parent = self.class(class);
        let component = match parent.driver {
            CgroupDriver::Cgroupfs => folder.to_string(),
            CgroupDriver::Systemd => {
                let unit = folder.strip_suffix(SLICE)?;
                let own = unit.strip_prefix(parent.unit().strip_suffix(SLICE)?)?.strip_prefix('-')?;
                // Anything deeper would be a child of a pod, or of nobody we know.
                (!own.contains('-')).then(|| own.replace('_', "-"))?
            }
        };
        component.strip_prefix(POD_PREFIX).filter(|uid| !uid.is_empty()).map(PodUid::new)
    }
}

/// The class that the API server decided when the pod was made, else the one that its spec has.
pub fn class_of(pod: &Pod) -> QosClass {
    match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        Some("Guaranteed") => QosClass::Guaranteed,
        Some("Burstable") => QosClass::Burstable,
        Some("BestEffort") => QosClass::BestEffort,
        _ => pod.spec.as_ref().map_or(QosClass::BestEffort, qos_class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CgroupDriver::{Cgroupfs, Systemd};
    use QosClass::{BestEffort, Burstable, Guaranteed};

    const UID: &str = "6c1a4e95-6bb6-11e6-bc26-28d2444e470d";

    #[test]
    fn paths_are_upstreams() {
        for (path, driver, expected) in [
            ("/", Cgroupfs, "/"),
            ("/", Systemd, "/"),
            ("", Systemd, "/"),
            ("/kubepods", Cgroupfs, "/kubepods"),
            ("/kubepods", Systemd, "/kubepods.slice"),
            ("/Burstable/pod-123", Cgroupfs, "/Burstable/pod-123"),
            ("/Burstable/pod-123", Systemd, "/Burstable.slice/Burstable-pod_123.slice"),
            ("/test/a/b", Systemd, "/test.slice/test-a.slice/test-a-b.slice"),
            ("/my-root/", Systemd, "/my_root.slice"),
        ] {
            assert_eq!(Cgroup::new(path, driver).path(), expected, "{path} {driver:?}");
        }
        assert_eq!(Cgroup::new("/a/b", Cgroupfs).to_string(), "[a b]");
        assert_eq!(Cgroup::new("/a/b", Cgroupfs).quoted(), r#"["a" "b"]"#);
    }

    #[test]
    fn pods_are_where_upstream_puts_them_and_are_found_there() {
        let long = "6c1a4e95_6bb6_11e6_bc26_28d2444e470d";
        for (root, driver, class, expected) in [
            ("/", Cgroupfs, Guaranteed, format!("/kubepods/pod{UID}")),
            ("/", Cgroupfs, Burstable, format!("/kubepods/burstable/pod{UID}")),
            ("/", Cgroupfs, BestEffort, format!("/kubepods/besteffort/pod{UID}")),
            ("/foo", Cgroupfs, BestEffort, format!("/foo/kubepods/besteffort/pod{UID}")),
            ("/", Systemd, Guaranteed, format!("/kubepods.slice/kubepods-pod{long}.slice")),
            (
                "/",
                Systemd,
                Burstable,
                format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{long}.slice"),
            ),
            (
                "/foo",
                Systemd,
                Guaranteed,
                format!("/foo.slice/foo-kubepods.slice/foo-kubepods-pod{long}.slice"),
            ),
        ] {
            let cgroups = PodCgroups::new(root, driver);
            let uid = PodUid::new(UID);
            let pod = cgroups.pod(class, &uid);
            assert_eq!(pod.path(), expected);
            let (parent, folder) = expected.rsplit_once('/').expect("a slash");
            assert_eq!(cgroups.class(class).path(), parent);
            assert_eq!(cgroups.pod_in(class, folder), Some(uid), "{folder}");
        }
    }

    #[test]
    fn units_name_their_parents() {
        let burstable = PodCgroups::new("/", Systemd).class(Burstable);
        assert_eq!(
            (burstable.unit(), burstable.parent_unit()),
            ("kubepods-burstable.slice".into(), "kubepods.slice".into())
        );
        let kubepods = PodCgroups::new("/", Systemd).kubepods().clone();
        assert_eq!((kubepods.unit(), kubepods.parent_unit()), ("kubepods.slice".into(), "-.slice".into()));
    }

    #[test]
    fn other_folders_are_nobodys() {
        let plain = PodCgroups::new("/", Cgroupfs);
        let systemd = PodCgroups::new("/", Systemd);
        for folder in ["burstable", "besteffort", "pod", "crio-abc"] {
            assert_eq!(plain.pod_in(Guaranteed, folder), None, "{folder}");
        }
        for folder in [
            "kubepods-burstable.slice",
            "kubepods-burstable-pod1.slice",
            "kubepods-pod.slice",
            "other-pod1.slice",
            "kubepods-pod1.scope",
        ] {
            assert_eq!(systemd.pod_in(Guaranteed, folder), None, "{folder}");
        }
    }

    #[test]
    fn the_api_servers_class_comes_first() {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }))
        .expect("a pod");
        assert_eq!(class_of(&pod), Burstable);
        pod.status.get_or_insert_default().qos_class = Some("Guaranteed".to_string());
        assert_eq!(class_of(&pod), Guaranteed);
    }
}
