//! Which seccomp and AppArmor profile a container runs under.

use crablet_model::api;
use crablet_model::runtime::SecurityProfile;

use super::super::facts::NodeFacts;
use super::ConfigError;

/// How AppArmor profiles were asked for before there was a field; static manifests may still say it so.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const APPARMOR_LOCALHOST: &str = "localhost/";

pub(super) fn seccomp(
    spec: &api::PodSpec,
    container: &api::Container,
    node: &NodeFacts,
) -> Result<SecurityProfile, ConfigError> {
    let own = container.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref());
    let profile = own.or(spec.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref()));
    match profile.map(|p| (p.type_.as_str(), p.localhost_profile.as_deref().unwrap_or_default())) {
        Some(("RuntimeDefault", _)) => Ok(SecurityProfile::RuntimeDefault),
        Some(("Localhost", "")) => {
            Err(ConfigError::new("localhostProfile must be set if seccompProfile type is Localhost."))
        }
        Some(("Localhost", file)) => {
            let root = node.root_dir.trim_end_matches('/');
            Ok(SecurityProfile::Localhost(format!("{root}/seccomp/{}", file.trim_start_matches('/'))))
        }
        None if node.seccomp_default => Ok(SecurityProfile::RuntimeDefault),
        _ => Ok(SecurityProfile::Unconfined),
    }
}

/// The container's field, else the annotation, else the pod's field. `None` leaves it to the runtime.
pub(super) fn apparmor(
    pod: &api::Pod,
    spec: &api::PodSpec,
    container: &api::Container,
) -> Result<Option<SecurityProfile>, ConfigError> {
    let own = container.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    if let Some(profile) = own {
        return of_field(profile).map(Some);
    }
    let key = format!("{APPARMOR_ANNOTATION}{}", container.name);
    if let Some(profile) =
        pod.metadata.annotations.as_ref().and_then(|all| all.get(&key)).and_then(|text| of_annotation(text))
    {
        return Ok(Some(profile));
    }
    let of_pod = spec.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    of_pod.map(of_field).transpose()
}

fn of_field(profile: &api::AppArmorProfile) -> Result<SecurityProfile, ConfigError> {
    match (profile.type_.as_str(), profile.localhost_profile.as_ref()) {
        ("RuntimeDefault", _) => Ok(SecurityProfile::RuntimeDefault),
        ("Unconfined", _) => Ok(SecurityProfile::Unconfined),
        ("Localhost", Some(name)) => Ok(SecurityProfile::Localhost(name.clone())),
        ("Localhost", None) => Err(ConfigError::new("missing localhost apparmor profile name")),
        (other, _) => Err(ConfigError(format!("unknown apparmor profile type: {other:?}"))),
    }
}

/// An annotation that means nothing is as good as none.
fn of_annotation(text: &str) -> Option<SecurityProfile> {
    match text {
        "runtime/default" => Some(SecurityProfile::RuntimeDefault),
        "unconfined" => Some(SecurityProfile::Unconfined),
        other => {
            other.strip_prefix(APPARMOR_LOCALHOST).map(|name| SecurityProfile::Localhost(name.to_owned()))
        }
    }
}
