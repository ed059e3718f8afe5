//! How containers live, and where images come from.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::port::RegistryAuth;

/// How one instance of a container lives when nobody interferes.
#[derive(Clone, Debug, PartialEq)]
pub enum Life {
    Forever,
    Exits {
        after: Duration,
        code: i32,
    },
    /// Exits with 137 and the reason `OOMKilled`.
    OomKilled {
        after: Duration,
    },
    /// `StartContainer` fails with this message, and the container is left exited with 128, `StartError`, as
    /// containerd leaves it.
    FailsToStart(String),
}

/// What a container does when it is asked to stop.
#[derive(Clone, Debug, PartialEq)]
pub enum OnTerm {
    Exits {
        after: Duration,
        code: i32,
    },
    /// Only KILL helps, at the end of the grace period.
    Ignores,
    /// Not even KILL helps: a process stuck in the kernel. The stop call runs into its deadline, and so does everything
    /// else that has to end the container.
    Stuck,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    /// The life of each instance, by its attempt; the last one is the life of all later ones.
    pub lives: Vec<Life>,
    pub on_term: OnTerm,
    /// What the container writes to its termination message file and to its log before it exits.
    pub last_words: String,
}

impl Default for Behaviour {
    /// A good citizen: runs for ever, and exits at once when asked.
    fn default() -> Self {
        Self::living(Life::Forever)
    }
}

impl Behaviour {
    pub fn living(life: Life) -> Self {
        let on_term = OnTerm::Exits { after: Duration::ZERO, code: 0 };
        Self { lives: vec![life], on_term, last_words: String::new() }
    }

    pub fn exiting(after: Duration, code: i32) -> Self {
        Self::living(Life::Exits { after, code })
    }

    pub fn on_term(mut self, on_term: OnTerm) -> Self {
        self.on_term = on_term;
        self
    }

    /// The life of the instance with this attempt.
    pub fn life(&self, attempt: u32) -> &Life {
        self.lives.get(attempt as usize).or(self.lives.last()).unwrap_or(&Life::Forever)
    }
}

/// Which behaviour a container has: its own, else its image's, else the default.
#[derive(Default)]
pub(super) struct Behaviours {
    by_container: BTreeMap<(String, String), Behaviour>,
    by_image: BTreeMap<String, Behaviour>,
    good: Behaviour,
}

impl Behaviours {
    pub fn set(&mut self, pod: &str, container: &str, behaviour: Behaviour) {
        self.by_container.insert((pod.to_owned(), container.to_owned()), behaviour);
    }

    pub fn set_for_image(&mut self, image: &str, behaviour: Behaviour) {
        self.by_image.insert(image.to_owned(), behaviour);
    }

    pub fn of(&self, pod: &str, container: &str, image: &str) -> &Behaviour {
        let own = self.by_container.get(&(pod.to_owned(), container.to_owned()));
        own.or_else(|| self.by_image.get(image)).unwrap_or(&self.good)
    }

    /// Nothing is stuck any more: what was, ends at KILL.
    pub fn unstick(&mut self) {
        for behaviour in self.by_container.values_mut().chain(self.by_image.values_mut()) {
            if behaviour.on_term == OnTerm::Stuck {
                behaviour.on_term = OnTerm::Ignores;
            }
        }
    }
}

/// What the registry says to a pull.
#[derive(Clone, Debug, PartialEq)]
pub enum Pull {
    Works { after: Duration },
    Fails(String),
    Hangs,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FakeImage {
    pub present: bool,
    pub size: u64,
    pub pull: Pull,
    /// The registry gives it to nobody else.
    pub needs: Option<RegistryAuth>,
    /// The image's user, numeric.
    pub uid: Option<i64>,
    /// The image's user, by name.
    pub username: String,
}

impl FakeImage {
    pub fn present() -> Self {
        let pull = Pull::Works { after: Duration::ZERO };
        Self { present: true, size: 1_000_000, pull, needs: None, uid: None, username: String::new() }
    }

    pub fn pulled(pull: Pull) -> Self {
        Self { present: false, pull, ..Self::present() }
    }
}
