//! A container that keeps ending waits before each restart, as long as upstream lets it wait, over all lives of the
//! agent: nothing before the first restart, then 10 s, 20 s, 40 s, up to 5 min; afresh 10 min after the last.

use std::collections::BTreeMap;

use crablet_cri::fake::{Subject, What};
use jiff::{SignedDuration, Timestamp};

use super::{Broken, History, UNDER_WAY, is_agent_start};

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(300);
const RESET: SignedDuration = SignedDuration::from_secs(600);

#[derive(Default)]
struct Chain {
    /// When the last instance ended.
    ended: Option<Timestamp>,
    /// The same, from the beginning of the night.
    ended_at: std::time::Duration,
    /// When it was started.
    started_at: std::time::Duration,
    /// What the next restart has to wait, and since when at the earliest.
    delay: Option<(SignedDuration, Timestamp)>,
    /// The instance was started right after an edit, perhaps still in the old form, whose ends do not count.
    is_of_old_form: bool,
    /// The form of the pod that all this is about.
    wanted_since: Option<std::time::Duration>,
}

/// `remembers`: what one life of the agent wrote down is known to the next.
pub fn check(history: &History<'_>, remembers: bool) -> Vec<Broken> {
    let mut chains: BTreeMap<(String, String), Chain> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in history.trace {
        match &entry.what {
            What::Note(_) if is_agent_start(&entry.what) && !remembers => chains.clear(),
            What::ContainerStarted { container } | What::ContainerNotStarted { container, .. } => {
                let chain = chain(&mut chains, container);
                let wanted_since =
                    container.uid.as_ref().and_then(|uid| history.wanted_since(uid, entry.elapsed));
                if chain.wanted_since != wanted_since {
                    // Deleted and put back, or edited: a new chain, or a container with another image.
                    *chain = Chain { wanted_since, ..Chain::default() };
                    let before = entry.elapsed.saturating_sub(UNDER_WAY);
                    chain.is_of_old_form = container
                        .uid
                        .as_ref()
                        .is_some_and(|uid| history.edited_between(uid, before, entry.elapsed));
                }
                let uid = container.uid.as_ref();
                let reset = uid.and_then(|uid| history.reset_before(uid, entry.elapsed));
                if reset.is_some_and(|reset| chain.started_at <= reset + UNDER_WAY) {
                    *chain = Chain { wanted_since: chain.wanted_since, ..Chain::default() };
                }
                chain.started_at = entry.elapsed;
                if uid.is_some_and(|uid| history.news_after(uid, chain.ended_at, entry.elapsed)) {
                    *chain = Chain {
                        wanted_since: chain.wanted_since,
                        started_at: entry.elapsed,
                        ..Chain::default()
                    };
                }
                if uid.is_some_and(|uid| history.was_resized(uid, &container.container, entry.elapsed)) {
                    continue;
                }
                if let Err(text) = restarted(chain, entry.at) {
                    broken.push(Broken::new("restarts wait for their back-off", format!("{entry}: {text}")));
                }
                if let What::ContainerNotStarted { .. } = entry.what {
                    (chain.ended, chain.ended_at) = (Some(entry.at), entry.elapsed);
                }
            }
            // The first sandbox of a pod that was deleted and put back. In any new one init containers begin afresh.
            What::SandboxReady { sandbox } => {
                let uid = sandbox.uid.as_ref().map(ToString::to_string).unwrap_or_default();
                chains.retain(|(of, name), _| *of != uid || sandbox.attempt > 0 && !name.starts_with('i'));
            }
            What::ContainerExited { container, .. } => {
                let chain = chain(&mut chains, container);
                (chain.ended, chain.ended_at) = (Some(entry.at), entry.elapsed);
            }
            _ => {}
        }
    }
    broken
}

fn chain<'a>(chains: &'a mut BTreeMap<(String, String), Chain>, container: &Subject) -> &'a mut Chain {
    let uid = container.uid.as_ref().map(ToString::to_string).unwrap_or_default();
    chains.entry((uid, container.container.to_string())).or_default()
}

fn restarted(chain: &mut Chain, now: Timestamp) -> Result<(), String> {
    let Some(ended) = chain.ended.take() else { return Ok(()) };
    if std::mem::take(&mut chain.is_of_old_form) {
        return Ok(());
    }
    let Some((delay, raised)) = chain.delay else {
        chain.delay = Some((FIRST, ended));
        return Ok(());
    };
    // The agent may have forgotten all that when it decided on this start.
    if now.duration_since(raised) > RESET {
        chain.delay = Some((FIRST, ended));
        return Ok(());
    }
    chain.delay = Some(((delay * 2).min(LONGEST), ended + delay));
    let waited = now.duration_since(ended);
    if waited >= delay { Ok(()) } else { Err(format!("waited {waited:#} and not {delay:#}")) }
}
