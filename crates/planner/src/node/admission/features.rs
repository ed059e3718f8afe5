//! What not every node can do, and a pod needs.

use crablet_model::api::Pod;

use super::Rejection;

pub const RESTART_ALL_CONTAINERS: &str = "RestartAllContainersOnContainerExits";
pub const USER_NAMESPACES_HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

pub(super) fn check(pod: &Pod, declared: Option<&[String]>) -> Result<(), Rejection> {
    let Some(declared) = declared else { return Ok(()) };
    let missing: Vec<&str> =
        needed(pod).into_iter().filter(|feature| !declared.iter().any(|known| known == feature)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!("Pod requires node features that are not available: {}", missing.join(", "));
    Err(Rejection::new("PodFeatureUnsupported", text))
}

fn needed(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
    let host_network = spec.host_network == Some(true) && spec.host_users == Some(false);
    let needed = [(restarts_all, RESTART_ALL_CONTAINERS), (host_network, USER_NAMESPACES_HOST_NETWORK)];
    needed.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, feature)| feature).collect()
}
