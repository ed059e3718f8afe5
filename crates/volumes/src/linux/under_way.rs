//! Calls that are under way. One that hangs keeps its thread; a second one in the same place would only hang as well, and
//! threads are not without number.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

type Place = (&'static str, PathBuf);

#[derive(Clone, Debug, Default)]
pub struct UnderWay {
    calls: Arc<Mutex<BTreeMap<Place, Timestamp>>>,
}

/// Held by the call until its end, whoever waits for it.
pub struct Ticket {
    calls: Arc<Mutex<BTreeMap<Place, Timestamp>>>,
    place: Place,
}

impl UnderWay {
    pub fn enter(&self, call: &'static str, path: &Path) -> io::Result<Ticket> {
        let place = (call, path.to_owned());
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = calls.get(&place) {
            let text = format!("an earlier call is stuck since {since:.0}");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        calls.insert(place.clone(), Timestamp::now());
        Ok(Ticket { calls: self.calls.clone(), place })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_in_the_same_place_is_told_so() {
        let calls = UnderWay::default();
        let first = calls.enter("mount", Path::new("/a")).unwrap();
        let error = calls.enter("mount", Path::new("/a")).err().unwrap().to_string();
        assert!(error.starts_with("an earlier call is stuck since 2"), "{error}");
        assert!(calls.enter("unmount", Path::new("/a")).is_ok());
        assert!(calls.enter("mount", Path::new("/b")).is_ok());
        drop(first);
        assert!(calls.enter("mount", Path::new("/a")).is_ok());
    }
}
