//! What a pod as a whole asks for where it does not say, as upstream v1.36 adds it up from its containers.
//!
//! `defaults` does the same in plain amounts. Here it is what the sums look like in memory that counts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::amount::Amount;

type Amounts = BTreeMap<String, Amount>;

pub(super) fn fill_in(spec: &mut Map<String, Value>) {
    let Some(resources) = spec.get("resources").filter(|resources| resources.is_object()) else { return };
    let mut limits = amounts(resources, "limits");
    let mut requests = amounts(resources, "requests");
    let says_something = !limits.is_empty() || !requests.is_empty();
    if says_something {
        let of_all = of_containers(spec, "limits");
        for (name, amount) in of_all.into_iter().filter(|(name, _)| is_huge(name)) {
            if !requests.contains_key(&name) {
                limits.entry(name).or_insert(amount);
            }
        }
    }
    if !limits.is_empty() {
        for (name, amount) in of_containers(spec, "requests") {
            if ["cpu", "memory"].contains(&name.as_str()) {
                requests.entry(name).or_insert(amount);
            }
        }
        for (name, limit) in &limits {
            if is_huge(name) || ["cpu", "memory"].contains(&name.as_str()) {
                requests.entry(name.clone()).or_insert_with(|| limit.clone());
            }
        }
    }
    for (key, list) in [("limits", limits), ("requests", requests)] {
        if let (false, Some(Value::Object(resources))) = (list.is_empty(), spec.get_mut("resources")) {
            resources.insert(key.to_owned(), serde_json::to_value(list).unwrap_or_default());
        }
    }
}

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn amounts(resources: &Value, key: &str) -> Amounts {
    let list = resources.get(key).and_then(Value::as_object);
    let amount = |(name, value): (&String, &Value)| Some((name.clone(), Amount::parse(value.as_str()?)?));
    list.into_iter().flatten().filter_map(amount).collect()
}

/// All containers together, or the most that they need while the pod begins. Not rounded yet.
fn of_containers(spec: &Map<String, Value>, key: &str) -> Amounts {
    let of = |list: &str| spec.get(list).and_then(Value::as_array).into_iter().flatten();
    let own = |container: &Value| container.get("resources").map(|own| amounts(own, key)).unwrap_or_default();
    let mut all = Amounts::new();
    for container in of("containers") {
        add(&mut all, &own(container));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in of("initContainers") {
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut all, &own(container));
            add(&mut sidecars, &own(container));
            raise(&mut most, &sidecars);
        } else {
            let mut meanwhile = own(container);
            add(&mut meanwhile, &sidecars);
            raise(&mut most, &meanwhile);
        }
    }
    raise(&mut all, &most);
    all
}

fn add(list: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match list.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => {
                list.insert(name.clone(), amount.clone());
            }
        }
    }
}

fn raise(list: &mut Amounts, to: &Amounts) {
    for (name, amount) in to {
        let mut amount = amount.clone();
        if list.get(name).is_none_or(|known| amount.compare(known) == Ordering::Greater) {
            list.insert(name.clone(), amount);
        }
    }
}
