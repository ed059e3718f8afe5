//! Which lines are printed.

use std::sync::{Arc, PoisonError, RwLock};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::verbosity_of;

/// From here on the libraries below Crablet are heard too. They say much that only their authors understand; until then
/// they are heard when something is wrong.
const LIBRARIES: u32 = 8;

/// Shared by all who ask. Asked once for each place in the code that logs, and again after each change.
#[derive(Clone)]
pub struct Levels(Arc<RwLock<Rules>>);

struct Rules {
    verbosity: u32,
    vmodule: Vec<(String, u32)>,
}

impl Levels {
    pub fn new(verbosity: u32, vmodule: &[(String, u32)]) -> Self {
        Self(Arc::new(RwLock::new(Rules { verbosity, vmodule: vmodule.to_vec() })))
    }

    pub fn set(&self, verbosity: u32, vmodule: &[(String, u32)]) {
        let rules = Rules { verbosity, vmodule: vmodule.to_vec() };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Keeps what single files are allowed.
    pub fn set_verbosity(&self, verbosity: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).verbosity = verbosity;
    }

    fn allow(&self, metadata: &Metadata<'_>) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).allow(metadata)
    }
}

impl Rules {
    fn allow(&self, metadata: &Metadata<'_>) -> bool {
        if *metadata.level() <= Level::WARN {
            return true;
        }
        let is_own = metadata.target().starts_with("crablet");
        let needed = if is_own { verbosity_of(*metadata.level()) } else { LIBRARIES };
        needed <= self.verbosity || needed <= self.of_file(metadata.file().unwrap_or_default())
    }

    /// What `--vmodule` says of a file: the first pattern that fits counts. It only adds, as klog's does.
    fn of_file(&self, path: &str) -> u32 {
        let fits = |pattern: &str| names(path).any(|name| glob(pattern.as_bytes(), name.as_bytes()));
        self.vmodule.iter().find(|(pattern, _)| fits(pattern)).map_or(0, |(_, level)| *level)
    }
}

impl<S: Subscriber> Layer<S> for Levels {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.allow(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.allow(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let rules = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let most = rules.vmodule.iter().map(|(_, level)| *level).fold(rules.verbosity, u32::max);
        Some(match most {
            0..4 => LevelFilter::INFO,
            4..6 => LevelFilter::DEBUG,
            6.. => LevelFilter::TRACE,
        })
    }
}

/// What people know upstream's files by, where the same work is done here.
const UPSTREAM_NAMES: &[(&str, &[&str])] = &[
    ("events", &["event_recorder"]),
    ("folder", &["file", "file_linux"]),
    ("hands", &["kuberuntime_manager", "kuberuntime_container", "kuberuntime_sandbox"]),
    ("images", &["image_manager", "puller"]),
    ("mux", &["config"]),
    ("pleg", &["generic", "evented"]),
    ("registry", &["kubelet", "kubelet_pods"]),
    ("url", &["http"]),
    ("view", &["status_manager"]),
    ("worker", &["pod_workers", "kubelet"]),
];

/// The names that a file goes by: its own without `.rs`, its folder's for `mod.rs` and the like, and upstream's.
fn names(path: &str) -> impl Iterator<Item = &str> {
    let mut parts = path.rsplit(['/', '\\']);
    let file = parts.next().unwrap_or_default();
    let own = match file.strip_suffix(".rs").unwrap_or(file) {
        "mod" | "lib" => parts.find(|part| *part != "src").unwrap_or_default(),
        own => own,
    };
    let known = UPSTREAM_NAMES.iter().find(|(name, _)| *name == own);
    std::iter::once(own).chain(known.into_iter().flat_map(|(_, names)| names.iter().copied()))
}

/// Go's `filepath.Match` on names without separators: `*`, `?`, `[a-z]`, `[^a-z]`, `\` before any of them. Only the last
/// star is ever tried again, so that no pattern takes long.
fn glob(mut pattern: &[u8], mut name: &[u8]) -> bool {
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            again = Some((rest, name));
            pattern = rest;
            continue;
        }
        if pattern.is_empty() && name.is_empty() {
            return true;
        }
        if let Some(rest) = one(pattern, name) {
            (pattern, name) = rest;
            continue;
        }
        let Some((after_star, [_, shorter @ ..])) = again else { return false };
        again = Some((after_star, shorter));
        (pattern, name) = (after_star, shorter);
    }
}

/// Takes one character of the name, if the pattern's next element is it.
fn one<'p, 'n>(pattern: &'p [u8], name: &'n [u8]) -> Option<(&'p [u8], &'n [u8])> {
    let (first, others) = name.split_first()?;
    let (fits, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', rest @ ..] => {
            let (fits, rest) = class(rest)?;
            (fits(*first), rest)
        }
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (literal == first, rest),
    };
    fits.then_some((rest, others))
}

/// The inside of `[...]` and what follows it. `None`: it has no end.
fn class(pattern: &[u8]) -> Option<(impl Fn(u8) -> bool, &[u8])> {
    let (negated, inside) = match pattern {
        [b'^', inside @ ..] => (true, inside),
        inside => (false, inside),
    };
    let end = inside.iter().position(|byte| *byte == b']').filter(|end| *end > 0)?;
    let set = inside[..end].to_vec();
    let fits = move |byte: u8| {
        let mut rest = &set[..];
        let mut found = false;
        while let [first, others @ ..] = rest {
            (found, rest) = match others {
                [b'-', last, others @ ..] => (found || (*first..=*last).contains(&byte), others),
                _ => (found || *first == byte, others),
            };
        }
        found != negated
    };
    Some((fits, &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_gos() {
        let fits = |pattern: &str, name: &str| glob(pattern.as_bytes(), name.as_bytes());
        for (pattern, name) in [
            ("worker", "worker"),
            ("w*r", "worker"),
            ("*", ""),
            ("p?eg", "pleg"),
            ("[a-c]b[^x]", "bbc"),
            ("a\\*", "a*"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("work", "worker"),
            ("?", ""),
            ("[^b]b", "bb"),
            ("[a", "a"),
            ("[]", "]"),
            ("a\\*", "ab"),
            ("", "a"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn files_go_by_their_own_name_and_by_upstreams() {
        let rules = |pattern: &str| Rules { verbosity: 0, vmodule: vec![(pattern.to_owned(), 5)] };
        for pattern in ["worker", "pod_workers", "pod_*"] {
            assert_eq!(rules(pattern).of_file("crates/pods/src/worker.rs"), 5, "{pattern}");
        }
        assert_eq!(rules("sources").of_file("crates/pods/src/sources/mod.rs"), 5);
        assert_eq!(rules("pods").of_file("crates/pods/src/lib.rs"), 5);
        assert_eq!(rules("worker").of_file("crates/pods/src/workers.rs"), 0);
    }
}
