//! Which handler of the runtime a pod's runtime class means. What the status says of mounts depends on it.

use crablet_apiserver::ObjectError;
use crablet_model::api;
use crablet_model::roster::roster;
use futures_util::FutureExt;
use tokio::task::unconstrained;

use super::Worker;

impl Worker {
    /// Looks the handler up, once: neither the class of a pod nor the handler of a class can be changed.
    /// Nobody waits for the API server here, so this says whether there is nothing left to ask.
    pub(super) fn find_handler(&mut self, pod: Option<&api::Pod>) -> bool {
        let Some(class) = pod.and_then(class_in_question) else { return true };
        if self.session.runtime_handler.is_some() {
            return true;
        }
        let answer = unconstrained(self.shared.hands.objects.runtime_handler(class)).now_or_never();
        match answer {
            Some(Ok(handler)) => {
                self.session.runtime_handler = Some(handler);
                true
            }
            // Without its class a pod gets no sandbox, and each try to make one asks again.
            Some(Err(ObjectError::NotFound(_))) => true,
            Some(Err(ObjectError::Unavailable(_))) | None => false,
        }
    }
}

/// The pod's runtime class, if any of its mounts asks for what not every handler can do.
fn class_in_question(pod: &api::Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    let class = spec.runtime_class_name.as_deref().filter(|class| !class.is_empty())?;
    roster(spec).any(|(_, c)| c.volume_mounts.iter().flatten().any(is_recursive)).then_some(class)
}

fn is_recursive(mount: &api::VolumeMount) -> bool {
    mount.recursive_read_only.as_deref().is_some_and(|mode| mode != "Disabled")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_is_looked_up_only_for_mounts_that_depend_on_it() {
        let class = |class: &str, mode: Option<&str>| {
            let mount = json!({"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode});
            let container = json!({"name": "c", "volumeMounts": [mount]});
            let spec = json!({"runtimeClassName": class, "containers": [{"name": "o"}, container]});
            let pod: api::Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            class_in_question(&pod).map(str::to_owned)
        };
        assert_eq!(class("heavy", Some("Enabled")).as_deref(), Some("heavy"));
        assert_eq!(class("heavy", Some("IfPossible")).as_deref(), Some("heavy"));
        assert_eq!(class("heavy", Some("Disabled")), None);
        assert_eq!(class("heavy", None), None);
        assert_eq!(class("", Some("Enabled")), None);
    }
}
