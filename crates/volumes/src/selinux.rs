//! Mounts that carry their SELinux label (`-o context="…"`), so that nobody has to walk through all files to label them.
//!
//! A label is given to volumes of claims whose plugin can take it (CSI drivers that say so, iSCSI, FC), which are for one
//! pod only, or of any access mode with the gate `SELinuxMount`. All other volumes are labelled by the runtime, file by
//! file. A node without SELinux has none of this.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crablet_model::api;

use crate::failure::Failure;
use crate::pod;

/// Knows how files have to be labelled for a container.
pub trait SelinuxLabels: Send + Sync + 'static {
    /// `None` where the runtime chooses the label when it starts the container.
    fn file_label(&self, options: &api::SELinuxOptions) -> Option<String>;
}

/// Of a node with SELinux.
#[derive(Clone)]
pub struct Selinux {
    pub labels: Arc<dyn SelinuxLabels>,
    /// The gate `SELinuxMount`.
    pub every_access_mode: bool,
}

impl Selinux {
    /// The label to mount a volume with. `None`: the runtime labels the files.
    pub(crate) fn context(
        &self,
        spec: &api::PodSpec,
        volume: &str,
        access_modes: Option<&[String]>,
    ) -> Result<Option<String>, Failure> {
        let security = spec.security_context.as_ref();
        let of_pod = security.and_then(|context| context.se_linux_options.as_ref());
        let users = pod::containers(spec).filter(|c| c.mounts.iter().any(|mount| mount.name == volume));
        let labels: BTreeSet<Option<String>> = users
            .filter_map(|c| c.security.and_then(|own| own.se_linux_options.as_ref()).or(of_pod))
            .map(|options| self.labels.file_label(options))
            .collect();
        // More than one mode leaves open how this pod means to use it.
        let for_one_pod = access_modes == Some(&["ReadWriteOncePod".to_owned()]);
        if !self.every_access_mode && !for_one_pod {
            return Ok(None);
        }
        if labels.len() > 1 {
            let labels: Vec<String> = labels.into_iter().map(Option::unwrap_or_default).collect();
            let text = format!("multiple SELinux labels found: {}", labels.join(","));
            return Err(Failure { waits: false, ..Failure::process(text) });
        }
        let recursive =
            security.and_then(|context| context.se_linux_change_policy.as_deref()) == Some("Recursive");
        Ok(labels.into_iter().next().flatten().filter(|_| !recursive))
    }
}

/// The mount option, in quotes because labels may have commas.
pub(crate) fn option(label: &str) -> String {
    format!("context={label:?}")
}

/// The labels of this machine's policy.
pub struct PolicyLabels {
    /// User, role, type and level of containers' files.
    user: String,
    role_and_type: String,
}

impl PolicyLabels {
    /// `None` without SELinux, or where its policy knows no containers.
    pub fn read(root: &Path) -> Option<Self> {
        if !root.join("sys/fs/selinux/enforce").exists() {
            return None;
        }
        let config = std::fs::read_to_string(root.join("etc/selinux/config")).ok()?;
        let policy = value(&config, "SELINUXTYPE")?;
        let contexts = root.join("etc/selinux").join(policy).join("contexts/lxc_contexts");
        let contexts = std::fs::read_to_string(contexts).ok()?;
        let label = value(&contexts, "file")?;
        let mut parts = label.splitn(4, ':');
        let (user, role, kind) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { user: user.to_owned(), role_and_type: format!("{role}:{kind}") })
    }
}

/// `name = "value"` of a file of such lines.
fn value(text: &str, name: &str) -> Option<String> {
    let line = text.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == name)?;
    let value = line.1.trim().trim_matches('"');
    (!value.is_empty() && !value.contains('/')).then(|| value.to_owned())
}

impl SelinuxLabels for PolicyLabels {
    /// Files have the container's user and level, and a role and type of their own. A container without a level gets one
    /// from the runtime, which nobody knows before.
    fn file_label(&self, options: &api::SELinuxOptions) -> Option<String> {
        let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        let level = given(&options.level)?;
        let user = given(&options.user).unwrap_or_else(|| self.user.clone());
        Some(format!("{user}:{}:{level}", self.role_and_type))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy() -> (tempfile::TempDir, PolicyLabels) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("etc/selinux/config", "# a remark\nSELINUX=enforcing\nSELINUXTYPE=targeted\n");
        let contexts = "process = \"system_u:system_r:container_t:s0\"\n\
                        content = \"system_u:object_r:virt_var_lib_t:s0\"\n\
                        file = \"system_u:object_r:container_file_t:s0\"\n";
        write("etc/selinux/targeted/contexts/lxc_contexts", contexts);
        assert!(PolicyLabels::read(root.path()).is_none(), "it is off");
        write("sys/fs/selinux/enforce", "1");
        let labels = PolicyLabels::read(root.path()).unwrap();
        (root, labels)
    }

    fn context(every: bool, modes: &[&str], spec: Value) -> Result<Option<String>, String> {
        let selinux = Selinux { labels: Arc::new(policy().1), every_access_mode: every };
        let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
        let spec: api::PodSpec = serde_json::from_value(spec).unwrap();
        selinux.context(&spec, "v", Some(&modes)).map_err(|failure| failure.text)
    }

    fn container(name: &str, level: &str) -> Value {
        let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
        let security = json!({ "seLinuxOptions": { "level": level } });
        json!({ "name": name, "volumeMounts": mounts, "securityContext": security })
    }

    const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";

    #[test]
    fn a_volume_for_one_pod_is_mounted_with_the_pods_label() {
        let pod = json!({ "containers": [container("a", "s0:c1,c2")] });
        assert_eq!(context(false, &["ReadWriteOncePod"], pod.clone()), Ok(Some(LABEL.to_owned())));
        assert_eq!(context(false, &["ReadWriteOnce"], pod.clone()), Ok(None));
        assert_eq!(context(false, &["ReadWriteOncePod", "ReadWriteOnce"], pod.clone()), Ok(None));
        assert_eq!(context(true, &["ReadWriteMany"], pod), Ok(Some(LABEL.to_owned())));
        assert_eq!(option(LABEL), format!("context=\"{LABEL}\""));
    }

    #[test]
    fn the_pods_options_hold_where_a_container_has_none() {
        let options = json!({ "user": "staff_u", "type": "spc_t", "level": "s0:c3" });
        let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
        let mut pod = json!({
            "securityContext": { "seLinuxOptions": options },
            "containers": [{ "name": "a", "volumeMounts": mounts }, { "name": "other" }],
        });
        let label = "staff_u:object_r:container_file_t:s0:c3".to_owned();
        assert_eq!(context(false, &["ReadWriteOncePod"], pod.clone()), Ok(Some(label)));
        pod["securityContext"]["seLinuxChangePolicy"] = json!("Recursive");
        assert_eq!(context(false, &["ReadWriteOncePod"], pod.clone()), Ok(None), "it wants it otherwise");
        pod["securityContext"] = json!({});
        assert_eq!(context(false, &["ReadWriteOncePod"], pod), Ok(None), "the runtime chooses");
    }

    #[test]
    fn containers_that_disagree_cannot_share_such_a_volume() {
        let pod = json!({ "containers": [container("a", "s0:c1"), container("b", "s0:c2")] });
        let expected = "multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,\
                        system_u:object_r:container_file_t:s0:c2";
        assert_eq!(context(false, &["ReadWriteOncePod"], pod.clone()), Err(expected.to_owned()));
        assert_eq!(context(false, &["ReadWriteOnce"], pod), Ok(None), "where the runtime labels they can");
    }
}
