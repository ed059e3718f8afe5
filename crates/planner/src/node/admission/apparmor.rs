//! Profiles that the host must be able to enforce.

use crablet_model::api::{AppArmorProfile, Pod};
use crablet_model::roster::roster;

use super::Rejection;

const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const UNCONFINED: &str = "Unconfined";

pub fn check(pod: &Pod, enabled: bool) -> Result<(), Rejection> {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
    if phase != "Pending" || !is_wanted(pod) {
        return Ok(());
    }
    let refuse = |why: String| Err(Rejection::new("AppArmor", format!("Cannot enforce AppArmor: {why}")));
    if !enabled {
        return refuse("AppArmor is not enabled on the host".to_owned());
    }
    let Some(spec) = &pod.spec else { return Ok(()) };
    for (_, container) in roster(spec) {
        if localhost_profile(pod, &container).is_some_and(|name| name.trim().is_empty()) {
            return refuse("invalid empty AppArmor profile name".to_owned());
        }
    }
    Ok(())
}

fn is_wanted(pod: &Pod) -> bool {
    let confines = |profile: &AppArmorProfile| profile.type_ != UNCONFINED;
    let Some(spec) = &pod.spec else { return false };
    let of_pod = spec.security_context.as_ref().and_then(|s| s.app_armor_profile.as_ref());
    let of_containers = || {
        roster(spec).any(|(_, container)| {
            let own = container.security_context.as_ref().and_then(|s| s.app_armor_profile.as_ref());
            own.is_some_and(confines)
        })
    };
    let annotated = || {
        let mut all = pod.metadata.annotations.iter().flatten();
        all.any(|(key, value)| key.starts_with(ANNOTATION) && value != "unconfined")
    };
    of_pod.is_some_and(confines) || of_containers() || annotated()
}

/// The name of the profile where it is one of the host's own.
fn localhost_profile(pod: &Pod, container: &crablet_model::api::Container) -> Option<String> {
    let named = |profile: &AppArmorProfile| {
        (profile.type_ == "Localhost").then(|| profile.localhost_profile.clone().unwrap_or_default())
    };
    if let Some(own) = container.security_context.as_ref().and_then(|s| s.app_armor_profile.as_ref()) {
        return named(own);
    }
    let key = format!("{ANNOTATION}{}", container.name);
    if let Some(noted) = pod.metadata.annotations.as_ref().and_then(|all| all.get(&key)) {
        return noted.strip_prefix("localhost/").map(str::to_owned);
    }
    let of_pod = pod.spec.as_ref()?.security_context.as_ref()?.app_armor_profile.as_ref()?;
    named(of_pod)
}
