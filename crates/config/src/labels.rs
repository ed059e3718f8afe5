//! What Kubernetes accepts as labels, taints and names.

/// What Kubernetes accepts as the name of most objects.
pub fn is_dns_subdomain(name: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').map(str::as_bytes).all(|label| {
            label.first().copied().is_some_and(alphanumeric)
                && label.last().copied().is_some_and(alphanumeric)
                && label.iter().all(|c| alphanumeric(*c) || *c == b'-')
        })
}

pub fn is_effect(effect: &str) -> bool {
    matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute")
}

/// At most 63 letters, digits, `-`, `_` and `.`, the first and last a letter or a digit.
fn is_part(text: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && alphanumeric(text.chars().next())
        && alphanumeric(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// What is wrong with the key of a label or taint, if anything.
pub fn key_problem(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.rsplit_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Some("what comes before the `/` must be a DNS subdomain");
    }
    (!is_part(name)).then_some(
        "a name must be at most 63 letters, digits, `-`, `_` and `.`, and start and end with a letter or a digit",
    )
}

/// What is wrong with the value of a label or taint, if anything.
pub fn value_problem(value: &str) -> Option<&'static str> {
    (!value.is_empty() && !is_part(value)).then_some(
        "a value must be at most 63 letters, digits, `-`, `_` and `.`, and start and end with a letter or a digit",
    )
}

/// Namespaces of labels that a node may give itself.
const OWN_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Other labels that a node may give itself.
const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Is this a label of Kubernetes that a node may not give itself?
pub fn is_reserved(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else { return false };
    let within = |domain: &str| {
        namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    (within("kubernetes.io") || within("k8s.io"))
        && !OWN_LABELS.contains(&key)
        && !OWN_NAMESPACES.into_iter().any(within)
}

/// What upstream adds when a label is reserved.
pub fn allowed() -> String {
    format!(
        "--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix ({}) or be in the specifically allowed set ({})",
        OWN_NAMESPACES.join(", "),
        OWN_LABELS.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_nodes_may_give_themselves() {
        for (key, reserved) in [
            ("a", false),
            ("example.com/a", false),
            ("foo.kubernetes.io/a", true),
            ("kubernetes.io/a", true),
            ("k8s.io/a", true),
            ("notkubernetes.io/a", false),
            ("kubernetes.io/os", false),
            ("node.kubernetes.io/a", false),
            ("a.node.kubernetes.io/a", false),
            ("node-role.kubernetes.io/a", true),
        ] {
            assert_eq!(is_reserved(key), reserved, "{key}");
        }
    }
}
