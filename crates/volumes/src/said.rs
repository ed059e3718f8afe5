//! What was told last of something that keeps failing. The same is told again after a while: the cluster forgets events
//! after an hour, and who looks at a pod later has to find out why it waits.

use jiff::{SignedDuration, Timestamp};

/// Upstream tells of each try, and its pauses between two of them grow up to this.
const AGAIN: SignedDuration = SignedDuration::from_secs(122);

#[derive(Debug, Default)]
pub(crate) struct Said {
    text: String,
    at: Timestamp,
}

/// Whether somebody has to hear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Never said before, or something else was.
    News,
    /// As last time, which is long ago.
    Again,
    Known,
}

impl Said {
    /// Remembers it as said now, unless it is known.
    pub fn say(&mut self, text: &str, now: Timestamp) -> Telling {
        let telling = if self.text != text {
            Telling::News
        // The wall clock may have been set back.
        } else if now.duration_since(self.at).abs() >= AGAIN {
            Telling::Again
        } else {
            return Telling::Known;
        };
        *self = Self { text: text.to_owned(), at: now };
        telling
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_again_after_a_while_and_news_at_once() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let mut said = Said::default();
        let story = [
            (0, "a", Telling::News),
            (121, "a", Telling::Known),
            (122, "a", Telling::Again),
            (130, "b", Telling::News),
            (251, "b", Telling::Known),
            (260, "a", Telling::News),
            (-3600, "a", Telling::Again),
        ];
        for (seconds, text, expected) in story {
            assert_eq!(said.say(text, at(seconds)), expected, "{text} after {seconds} s");
        }
        assert_eq!(said.text(), "a");
    }
}
