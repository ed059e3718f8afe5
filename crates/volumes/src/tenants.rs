//! Which pods have which persistent volume. Some volumes are for one pod at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crablet_model::PodUid;

#[derive(Default)]
pub(crate) struct Tenants {
    pods: Mutex<BTreeMap<String, BTreeSet<PodUid>>>,
}

impl Tenants {
    /// Whether the pod may have the volume; then it has it.
    pub fn enter(&self, volume: &str, pod: &PodUid, alone: bool) -> bool {
        let mut pods = self.pods();
        let tenants = pods.entry(volume.to_owned()).or_default();
        if alone && tenants.iter().any(|tenant| tenant != pod) {
            return false;
        }
        tenants.insert(pod.clone());
        true
    }

    pub fn leave(&self, pod: &PodUid) {
        self.pods().retain(|_, tenants| {
            tenants.remove(pod);
            !tenants.is_empty()
        });
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<PodUid>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_for_one_pod_waits_until_the_first_has_left() {
        let tenants = Tenants::default();
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        assert!(tenants.enter("v", &a, true));
        assert!(tenants.enter("v", &a, true), "it is its own");
        assert!(!tenants.enter("v", &b, true));
        assert!(tenants.enter("shared", &b, false) && tenants.enter("shared", &a, false));
        tenants.leave(&a);
        assert!(tenants.enter("v", &b, true));
    }
}
