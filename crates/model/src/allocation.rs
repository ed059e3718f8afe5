//! What a pod was granted, beside what its specification asks for.
//!
//! ```text
//!  specification ──(the node has room)──> allocated ──(runtime and cgroups were told)──> actuated
//! ```
//!
//! The same type holds both, in the form in which upstream's agent keeps them on disk.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::{Container, PodSpec, ResourceRequirements};
use crate::quantity::{Format, Quantity};
use crate::resources::{limit, request};

/// Resources of a pod's init and regular containers by name, and those of the pod as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    #[serde(rename = "ContainerResources", default, deserialize_with = "null_is_empty")]
    pub containers: BTreeMap<String, ResourceRequirements>,
    #[serde(rename = "PodLevelResources", default)]
    pub pod: Option<ResourceRequirements>,
}

fn null_is_empty<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, ResourceRequirements>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Allocation {
    /// All that a specification asks for.
    pub fn of(spec: &PodSpec) -> Self {
        let granted = |c: &Container| (c.name.clone(), c.resources.clone().unwrap_or_default());
        Self { containers: containers(spec).map(granted).collect(), pod: spec.resources.clone() }
    }

    /// The same from a pod's JSON, of which nothing else is decoded.
    pub fn of_json(pod: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Pod {
            spec: Spec,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            #[serde(default)]
            resources: Option<ResourceRequirements>,
            containers: Vec<Named>,
            #[serde(default)]
            init_containers: Option<Vec<Named>>,
        }
        #[derive(Deserialize)]
        struct Named {
            name: String,
            #[serde(default)]
            resources: Option<ResourceRequirements>,
        }
        let Pod { spec } = serde_json::from_slice(pod).ok()?;
        let all = spec.init_containers.into_iter().flatten().chain(spec.containers);
        let containers = all.map(|c| (c.name, c.resources.unwrap_or_default())).collect();
        Some(Self { containers, pod: spec.resources })
    }

    /// What each container has in the end: the pod's own limits hold where a container has none.
    pub fn actuated(spec: &PodSpec) -> Self {
        let given = |c: &Container| (c.name.clone(), actuated(spec, c));
        Self { containers: containers(spec).map(given).collect(), pod: spec.resources.clone() }
    }

    /// Puts what was granted in the place of what is asked for. Says whether that made a difference.
    pub fn overlay(&self, spec: &mut PodSpec) -> bool {
        let mut differs = !same(spec.resources.as_ref(), self.pod.as_ref());
        if differs {
            spec.resources.clone_from(&self.pod);
        }
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let Some(granted) = self.containers.get(&container.name) else { continue };
            if !same(container.resources.as_ref(), Some(granted)) {
                container.resources = Some(granted.clone());
                differs = true;
            }
        }
        differs
    }

    /// Whether both grant the same amounts. Containers that only one of them names do not count.
    pub fn is_same(&self, other: &Self) -> bool {
        let shared =
            self.containers.iter().filter_map(|(name, own)| Some((own, other.containers.get(name)?)));
        same(self.pod.as_ref(), other.pod.as_ref())
            && shared.into_iter().all(|(own, other)| same(Some(own), Some(other)))
    }
}

/// Init containers and regular ones: those that can be resized.
fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// What a container has in the end: the pod's own limits hold where it has none.
pub fn actuated(spec: &PodSpec, container: &Container) -> ResourceRequirements {
    let mut own = container.resources.clone().unwrap_or_default();
    for name in ["cpu", "memory"] {
        let whole = limit(spec.resources.as_ref(), name).filter(|amount| !amount.is_zero());
        let is_limited = limit(Some(&own), name).is_some_and(|amount| !amount.is_zero());
        if let Some(whole) = whole.filter(|_| !is_limited) {
            own.limits.get_or_insert_default().insert(name.to_owned(), whole.into());
        }
    }
    own
}

fn same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    let amounts = |list: Option<&BTreeMap<String, ApiQuantity>>| -> BTreeMap<String, Quantity> {
        let parse =
            |(name, text): (&String, &ApiQuantity)| Some((name.clone(), Quantity::try_from(text).ok()?));
        list.into_iter().flatten().filter_map(parse).collect()
    };
    let of = |it: Option<&ResourceRequirements>| {
        (amounts(it.and_then(|r| r.requests.as_ref())), amounts(it.and_then(|r| r.limits.as_ref())))
    };
    of(a) == of(b)
}

/// The amounts of a container, or of a pod as a whole, that can change while it runs. Zero: not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Thousandths of a CPU.
    pub cpu_request: i64,
    pub cpu_limit: i64,
    /// Bytes.
    pub memory_request: i64,
    pub memory_limit: i64,
}

impl Sizes {
    pub fn of(resources: Option<&ResourceRequirements>) -> Self {
        let milli = |amount: Option<Quantity>| amount.map_or(0, |amount| amount.milli_value());
        let bytes = |amount: Option<Quantity>| amount.map_or(0, |amount| amount.value());
        Self {
            cpu_request: milli(request(resources, "cpu")),
            cpu_limit: milli(limit(resources, "cpu")),
            memory_request: bytes(request(resources, "memory")),
            memory_limit: bytes(limit(resources, "memory")),
        }
    }

    /// With the CPU of another.
    pub fn with_cpu_of(self, other: Self) -> Self {
        Self { cpu_request: other.cpu_request, cpu_limit: other.cpu_limit, ..self }
    }

    /// These amounts, and all else that `base` names.
    pub fn into_requirements(self, base: &ResourceRequirements) -> ResourceRequirements {
        let mut made = base.clone();
        let cpu = |milli| Quantity::from_milli(milli, Format::Decimal);
        let memory = |bytes| Quantity::from_value(bytes, Format::Binary);
        let lists = [
            (&mut made.requests, cpu(self.cpu_request), memory(self.memory_request)),
            (&mut made.limits, cpu(self.cpu_limit), memory(self.memory_limit)),
        ];
        for (list, cpu, memory) in lists {
            for (name, amount) in [("cpu", cpu), ("memory", memory)] {
                if amount.is_zero() {
                    list.as_mut().and_then(|list| list.remove(name));
                } else {
                    list.get_or_insert_default().insert(name.to_owned(), amount.into());
                }
            }
            if list.as_ref().is_some_and(BTreeMap::is_empty) {
                *list = None;
            }
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(json: serde_json::Value) -> PodSpec {
        serde_json::from_value(json).expect("a pod spec")
    }

    fn plain(cpu: &str) -> PodSpec {
        spec(json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}],
            "initContainers": [{"name": "i", "resources": {"limits": {"memory": "1Gi"}}}],
        }))
    }

    #[test]
    fn what_was_granted_takes_the_place_of_what_is_asked_for() {
        let granted = Allocation::of(&plain("100m"));
        let mut wanted = plain("200m");
        assert!(!granted.is_same(&Allocation::of(&wanted)));
        assert!(granted.overlay(&mut wanted));
        assert_eq!(wanted, plain("100m"));
        assert!(!granted.overlay(&mut wanted), "the second time there is nothing to do");
        assert!(!granted.overlay(&mut plain("0.1")), "another way to write the same");
    }

    #[test]
    fn resources_of_the_pod_as_a_whole_count() {
        let of =
            |cpu: &str| spec(json!({"resources": {"limits": {"cpu": cpu}}, "containers": [{"name": "a"}]}));
        let granted = Allocation::of(&of("1"));
        let mut wanted = of("2");
        assert!(granted.overlay(&mut wanted));
        assert_eq!(wanted, of("1"));
        let given = Allocation::actuated(&wanted);
        assert_eq!(Sizes::of(given.containers.get("a")).cpu_limit, 1000, "its container is held by it");
    }

    #[test]
    fn json_is_read_as_the_pod_is() {
        let spec = plain("3");
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        let read = Allocation::of_json(pod.to_string().as_bytes());
        assert_eq!(read, Some(Allocation::of(&spec)));
        assert_eq!(Allocation::of_json(b"{}"), None);
    }

    #[test]
    fn upstreams_form_is_read_and_written() {
        let text = r#"{"ContainerResources":{"c":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}},"PodLevelResources":null}"#;
        let read: Allocation = serde_json::from_str(text).expect("an allocation");
        assert_eq!(Sizes::of(read.containers.get("c")).cpu_limit, 1000);
        assert_eq!(serde_json::to_string(&read).expect("json"), text);
        let none: Allocation = serde_json::from_str(r#"{"ContainerResources":null}"#).expect("an allocation");
        assert_eq!(none, Allocation::default());
    }

    #[test]
    fn amounts_become_requirements_again() {
        let base: ResourceRequirements = serde_json::from_value(json!({
            "requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"cpu": "2"},
        }))
        .expect("requirements");
        let sizes = Sizes { cpu_request: 1500, memory_limit: 1 << 30, ..Sizes::default() };
        let made = serde_json::to_value(sizes.into_requirements(&base)).expect("json");
        assert_eq!(
            made,
            json!({"requests": {"cpu": "1500m", "example.com/gpu": "1"}, "limits": {"memory": "1Gi"}})
        );
    }
}
