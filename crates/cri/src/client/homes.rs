//! Which sandbox a container lives in.
//!
//! CRI says it in listings only, and an inspection asks for a status right after a listing, so what the listing said is
//! kept. A container never moves, so the answer cannot be wrong; each full listing throws out what is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct Homes(Mutex<HashMap<Box<str>, Arc<str>>>);

impl Homes {
    pub fn get(&self, container: &str) -> Option<String> {
        self.lock().get(container).map(|sandbox| sandbox.to_string())
    }

    pub fn remember(&self, container: &str, sandbox: &str) {
        self.remember_all([(container, sandbox)]);
    }

    pub fn remember_all<'a>(&self, homes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut known = self.lock();
        for (container, sandbox) in homes {
            if !known.contains_key(container) {
                known.insert(container.into(), sandbox.into());
            }
        }
    }

    /// These are all containers that there are.
    pub fn replace<'a>(&self, homes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let fresh =
            homes.into_iter().map(|(container, sandbox)| (container.into(), sandbox.into())).collect();
        *self.lock() = fresh;
    }

    pub fn forget(&self, container: &str) {
        self.lock().remove(container);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_listing_throws_out_what_is_gone() {
        let homes = Homes::default();
        homes.remember("a", "s1");
        homes.remember_all([("b", "s1"), ("c", "s2")]);
        homes.forget("b");
        assert_eq!([homes.get("a"), homes.get("b")], [Some("s1".into()), None]);
        homes.replace([("c", "s2")]);
        assert_eq!([homes.get("a"), homes.get("c")], [None, Some("s2".into())]);
    }
}
