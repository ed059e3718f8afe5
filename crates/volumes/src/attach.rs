//! Volumes that a controller attaches to the node.
//!
//! The node says which volumes it needs in `status.volumesInUse`, the controller which are there in
//! `status.volumesAttached`. It never takes away what is in use; so a volume counts only once the cluster has been seen
//! to know that it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_model::PodUid;
use tokio::sync::watch;

use crate::failure::{Failure, Step};

/// What the Node object says, as far as volumes care.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStorage {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The devices of attached volumes by the volumes' unique names; a device may be unknown.
    pub attached: BTreeMap<String, String>,
    pub in_use: BTreeSet<String>,
    /// There is a Node object.
    pub known: bool,
}

pub(crate) struct Attachments {
    users: Mutex<Users>,
    /// What drivers still have staged, whoever needs it.
    held: watch::Receiver<Arc<BTreeSet<String>>>,
    /// None: not known yet, so the Node says what it said before.
    told: watch::Sender<Option<Arc<Vec<String>>>>,
}

#[derive(Default)]
struct Users {
    volumes: BTreeMap<String, BTreeSet<PodUid>>,
    /// Pods that an earlier life of the agent has left. Until each was looked at, what the Node said then stays in use.
    strangers: BTreeSet<PodUid>,
    before: BTreeSet<String>,
    /// Those that no pod needs any more: in use until their drivers have let go of them.
    leaving: BTreeSet<String>,
    started: bool,
}

impl Attachments {
    pub fn new(
        told: watch::Sender<Option<Arc<Vec<String>>>>,
        held: watch::Receiver<Arc<BTreeSet<String>>>,
    ) -> Self {
        Self { users: Mutex::default(), held, told }
    }

    /// Drivers have staged something, or let go of it.
    pub fn held_changed(&self) {
        self.tell(&mut self.users());
    }

    /// What was found on disk and on the Node when the agent started.
    pub fn start(&self, strangers: BTreeSet<PodUid>, before: &BTreeSet<String>) {
        let mut users = self.users();
        if !strangers.is_empty() {
            users.before.clone_from(before);
        }
        users.leaving.extend(before.iter().cloned());
        users.strangers = strangers;
        users.started = true;
        self.tell(&mut users);
    }

    pub fn is_started(&self) -> bool {
        self.users().started
    }

    /// The pod needs the volume from now on.
    pub fn want(&self, volume: &str, pod: &PodUid) {
        let mut users = self.users();
        if users.volumes.entry(volume.to_owned()).or_default().insert(pod.clone()) {
            self.tell(&mut users);
        }
    }

    /// All volumes of the pod are set up, so all that it needs is known.
    pub fn met(&self, pod: &PodUid) {
        let mut users = self.users();
        if users.strangers.remove(pod) {
            self.tell(&mut users);
        }
    }

    /// The pod needs none any more.
    pub fn release(&self, pod: &PodUid) {
        let mut users = self.users();
        users.strangers.remove(pod);
        let unused = users.volumes.extract_if(.., |_, pods| {
            pods.remove(pod);
            pods.is_empty()
        });
        let unused: Vec<String> = unused.map(|(volume, _)| volume).collect();
        users.leaving.extend(unused);
        self.tell(&mut users);
    }

    fn tell(&self, users: &mut Users) {
        if !users.started {
            return;
        }
        {
            let held = self.held.borrow();
            users.leaving.retain(|volume| held.contains(volume));
        }
        let before = users.before.iter().filter(|_| !users.strangers.is_empty());
        let all: BTreeSet<&String> = users.volumes.keys().chain(before).chain(&users.leaving).collect();
        let all: Vec<String> = all.into_iter().cloned().collect();
        self.told.send_if_modified(|told| {
            let is_new = told.as_deref() != Some(&all);
            if is_new {
                *told = Some(Arc::new(all));
            }
            is_new
        });
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device of an attached volume; may be empty.
pub(crate) fn check(node: &NodeStorage, volume: &str) -> Result<String, Failure> {
    let waits = |text: String| Err(Failure::at(Step::Attach, text).waiting());
    if !node.in_use.contains(volume) {
        return waits(format!("volume {volume} is not yet reported as in use by the node"));
    }
    match node.attached.get(volume) {
        Some(device) => Ok(device.clone()),
        None => waits(format!("volume {volume} is not yet in node's status")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(all: &watch::Receiver<Option<Arc<Vec<String>>>>) -> Option<String> {
        all.borrow().as_ref().map(|all| all.join(" "))
    }

    #[test]
    fn what_the_last_life_used_stays_until_every_pod_was_met() {
        let (sender, all) = watch::channel(None);
        let (_held, nothing) = watch::channel(Arc::default());
        let attachments = Attachments::new(sender, nothing);
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        attachments.want("new", &a);
        assert_eq!(told(&all), None, "the Node says what it said before");
        attachments.start([a.clone(), b.clone()].into(), &["old".to_owned()].into());
        assert_eq!(told(&all).unwrap(), "new old");
        attachments.met(&a);
        assert_eq!(told(&all).unwrap(), "new old");
        attachments.release(&b);
        assert_eq!(told(&all).unwrap(), "new");
        attachments.release(&a);
        assert_eq!(told(&all).unwrap(), "");
    }

    #[test]
    fn what_a_driver_still_has_stays_in_use() {
        let (sender, all) = watch::channel(None);
        let (held, are_held) = watch::channel(Arc::new(["v".to_owned(), "old".to_owned()].into()));
        let attachments = Attachments::new(sender, are_held);
        let pod = PodUid::new("a");
        attachments.start(BTreeSet::new(), &["old".to_owned(), "gone".to_owned()].into());
        attachments.want("v", &pod);
        attachments.want("w", &pod);
        assert_eq!(told(&all).unwrap(), "old v w", "nobody has staged what is gone");
        attachments.release(&pod);
        assert_eq!(told(&all).unwrap(), "old v");
        held.send_replace(Arc::new(["old".to_owned()].into()));
        attachments.held_changed();
        assert_eq!(told(&all).unwrap(), "old");
    }

    #[test]
    fn a_volume_counts_once_the_cluster_knows_that_it_is_used() {
        let mut node =
            NodeStorage { attached: [("v".to_owned(), "/dev/x".to_owned())].into(), ..Default::default() };
        assert!(check(&node, "v").unwrap_err().waits);
        node.in_use.insert("v".to_owned());
        assert_eq!(check(&node, "v").unwrap(), "/dev/x");
        node.attached.clear();
        assert_eq!(check(&node, "v").unwrap_err().text, "volume v is not yet in node's status");
    }
}
