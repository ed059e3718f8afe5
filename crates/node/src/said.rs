//! Saying a thing once.

/// Remembers what is wrong, so that it is said when it begins, when it changes and when it ends, and not every ten
/// seconds.
#[derive(Default)]
pub(crate) struct Said(Option<String>);

impl Said {
    /// Whether the problem is news.
    pub(crate) fn is_news(&mut self, problem: &str) -> bool {
        if self.0.as_deref() == Some(problem) {
            return false;
        }
        self.0 = Some(problem.to_owned());
        true
    }

    /// Whether there was a problem that is over now.
    pub(crate) fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }
}
