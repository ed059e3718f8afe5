//! Containers.

use std::collections::BTreeSet;

use super::super::error::{Problems, quoted};
use super::{env, hooks, mounts, names, one_of, ports, resize, resources, restarts, security};
use crate::api::{Container, PodSpec};
use crate::roster::{Role, init_role};

pub(super) fn check_all(spec: &PodSpec, problems: &mut Problems) {
    if spec.containers.is_empty() {
        problems.add("spec.containers", "at least one container is required");
    }
    let mut seen = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = format!("spec.containers[{index}]");
        check_name(&path, &container.name, &mut seen, problems);
        check(&path, container, spec, problems);
        hooks::check(&path, container, spec, problems);
        restarts::check(&path, container, problems);
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{index}]");
        check_name(&path, &container.name, &mut seen, problems);
        check(&path, container, spec, problems);
        restarts::check(&path, container, problems);
        match init_role(container) {
            Role::Sidecar => hooks::check(&path, container, spec, problems),
            _ => {
                hooks::refuse(&path, container, problems);
                resize::refuse_restarts(&path, container, problems);
            }
        }
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        problems.add("spec.ephemeralContainers", "cannot be set on create; remove it");
    }
    ports::check_all(spec, problems);
}

fn check_name<'a>(path: &str, name: &'a str, seen: &mut BTreeSet<&'a str>, problems: &mut Problems) {
    let path = format!("{path}.name");
    if name.is_empty() {
        problems.add(path, "required");
    } else if let Err(rule) = names::dns_label(name) {
        problems.add(path, format!("{} {rule}", quoted(name)));
    } else if !seen.insert(name) {
        problems
            .add(path, format!("{} is the name of an earlier container; names must be unique", quoted(name)));
    }
}

fn check(path: &str, container: &Container, spec: &PodSpec, problems: &mut Problems) {
    // Whether it is the name of an image is found out, and told, when the container is to start.
    match container.image.as_deref().unwrap_or_default() {
        "" => problems.add(format!("{path}.image"), "required"),
        image if image.trim() != image => {
            problems.add(format!("{path}.image"), "must not have leading or trailing whitespace");
        }
        _ => {}
    }
    let pull = ["Always", "IfNotPresent", "Never"];
    one_of(format!("{path}.imagePullPolicy"), container.image_pull_policy.as_deref(), &pull, problems);
    let message = ["File", "FallbackToLogsOnError"];
    let policy = container.termination_message_policy.as_deref();
    one_of(format!("{path}.terminationMessagePolicy"), policy, &message, problems);
    env::check(path, container, spec, problems);
    mounts::check(path, container, spec, problems);
    mounts::check_devices(path, container, spec, problems);
    resources::check(path, container.resources.as_ref(), problems);
    resize::check(path, container, spec, problems);
    if let Some(context) = container.security_context.as_ref() {
        let host_users = spec.host_users.unwrap_or(true);
        security::check(&format!("{path}.securityContext"), context, host_users, problems);
    }
}
