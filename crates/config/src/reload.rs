//! What a new configuration means for an agent that runs with an older one.

use serde_json::Value;

use crate::Settings;
use crate::schema;

/// The fields that changed, by path (`logging.verbosity`), and what that needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Can be applied to the running agent.
    pub now: Vec<&'static str>,
    pub needs_restart: Vec<&'static str>,
}

impl Reload {
    pub fn is_empty(&self) -> bool {
        self.now.is_empty() && self.needs_restart.is_empty()
    }
}

/// Compares the running configuration with a new one. Flags cannot change while the process lives, so fields are all there
/// is to compare.
pub fn reload_diff(old: &Settings, new: &Settings) -> Reload {
    let mut reload = Reload::default();
    if old.configz == new.configz {
        return reload;
    }
    let tree = |settings: &Settings| serde_json::from_str::<Value>(&settings.configz).unwrap_or_default();
    let (old, new) = (tree(old), tree(new));
    for (path, setting) in schema::fields() {
        if at(&old, path) != at(&new, path) {
            if setting.live { &mut reload.now } else { &mut reload.needs_restart }.push(path);
        }
    }
    reload
}

fn at<'a>(tree: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(tree, |value, name| value.get(name))
}
