//! What keeps ending waits before it is started again: nothing the first time, then 10 s, 20 s, up to 5 min;
//! afresh ten minutes after its last restart.

use std::collections::BTreeMap;

use crablet_planner::pod::Action;
use jiff::Timestamp;

use super::super::World;

const FIRST: i64 = 10;
const LONGEST: i64 = 300;
const RESET: i64 = 600;

/// By container name.
#[derive(Default)]
pub struct Chains(BTreeMap<String, Chain>);

struct Chain {
    delay: i64,
    raised_at: Timestamp,
    /// The end after which it was raised.
    of: String,
}

impl Chains {
    /// The container is another one from now on.
    pub fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl World {
    pub(super) fn watch_back_off(&mut self, action: &Action) {
        let Action::StartContainer { container, sandbox_id, .. } = action else { return };
        let newest = self.runtime.instances(container).next();
        let Some(exited) = newest.filter(|c| c.state.exit().is_some() && c.sandbox_id == *sandbox_id) else {
            return;
        };
        let ended = exited.state.exit().map_or(self.now, |exit| exit.finished_at);
        let (id, now) = (exited.id.clone(), self.now);
        let chain = self.laws.back_off.0.get(container);
        if chain.is_some_and(|chain| chain.of == id) {
            return;
        }
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs();
        let delay = match chain {
            Some(chain) if seconds(chain.raised_at, now.max(ended)) <= RESET => {
                // On a clock that was set back nobody can tell how long it was.
                if !self.was_set_back && seconds(ended, now) < chain.delay {
                    let waited = seconds(ended, now);
                    self.broken.push(format!("{container} waits {waited} s and not {}", chain.delay));
                }
                (chain.delay * 2).min(LONGEST)
            }
            _ => FIRST,
        };
        self.laws.back_off.0.insert(container.clone(), Chain { delay, raised_at: now, of: id });
    }
}
