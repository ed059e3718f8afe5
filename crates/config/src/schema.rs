//! The one table of settings. A row says everything there is to say about one setting: the command line, the config file,
//! defaults, `--help`, the reference page, `config view` and live reload all read it.
//!
//! The rows are in the files of the [`schema`](self) folder, one per group.

mod cgroups;
mod cluster;
mod eviction;
mod general;
mod images;
mod leftovers;
mod logging;
mod network;
mod pods;
mod process;
mod serving;
mod sources;

/// One setting: a field of the configuration, a flag, or both.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The path in KubeletConfiguration, dotted. `None`: only a flag can say it.
    pub field: Option<&'static str>,
    /// Without dashes. `None`: only the config file can say it.
    pub flag: Option<&'static str>,
    pub short: Option<char>,
    pub kind: Kind,
    /// As it would be typed behind the flag. `None`: there is none, or it depends on something else (see `defaults`).
    pub default: Option<&'static str>,
    pub zero: Zero,
    /// What `--help` and the reference page say of it.
    pub doc: &'static str,
    /// What upstream prints when the flag is used. `None`: nothing.
    pub deprecated: Option<&'static str>,
    pub effect: Effect,
    /// Can change while the agent runs.
    pub live: bool,
}

/// The kind of value, in the file and on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Int32,
    Int64,
    /// A verbosity: not negative.
    Level,
    Float,
    Duration,
    /// A duration, or in the file also a number of nanoseconds.
    Flush,
    Text(&'static str),
    /// In the file, a relative path starts at the file's folder.
    Path,
    /// A text in the file, an IP address on the command line.
    Ip,
    Quantity,
    /// `a,b`, and the flag may be repeated.
    TextList(&'static str),
    Int32List,
    /// Texts by name; the flag may be repeated.
    TextMap(Pairs),
    /// `A=true,B=false`, and the flag may be repeated.
    BoolMap,
    /// `Name:Value,Name:Value`, and the flag may be repeated.
    Headers,
    /// Objects, whose flags have a grammar of their own.
    Objects(Items),
}

/// How the flag of a map separates names, values and pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pairs {
    /// `a=b,c=d`
    Equals,
    /// `a<b,c<d`
    Less,
    /// `a=b`, once per flag: a comma belongs to the value.
    One,
    /// `a=b,c`: without a value it is empty.
    Labels,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Items {
    Taints,
    ReservedMemory,
    ShutdownByPriority,
    VModule,
}

impl Items {
    /// What each object may say.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Items::Taints => &["key", "value", "effect", "timeAdded"],
            Items::ReservedMemory => &["numaNode", "limits"],
            Items::ShutdownByPriority => &["priority", "shutdownGracePeriodSeconds"],
            Items::VModule => &["filePattern", "verbosity"],
        }
    }
}

/// What 0, "" and false mean in the file, and whether `/configz` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// "Not said", so that the default holds. Not shown.
    Unset,
    /// "Not said", but shown.
    Shown,
    /// A value like any other: the field is a pointer upstream.
    Counts,
}

/// Does it do anything?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Yes,
    /// Accepted and checked; this version does not act upon it yet.
    Later,
    /// Accepted and without effect, also upstream.
    None,
}

#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub title: &'static str,
    pub settings: &'static [Setting],
}

pub const GROUPS: &[Group] = &[
    general::GROUP,
    process::GROUP,
    logging::GROUP,
    sources::GROUP,
    images::GROUP,
    pods::GROUP,
    network::GROUP,
    serving::GROUP,
    cluster::GROUP,
    cgroups::GROUP,
    eviction::GROUP,
    leftovers::GROUP,
];

pub fn settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings)
}

pub fn fields() -> impl Iterator<Item = (&'static str, &'static Setting)> {
    settings().filter_map(|setting| setting.field.map(|field| (field, setting)))
}

pub fn by_flag(name: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.flag == Some(name))
}

pub fn by_field(path: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.field == Some(path))
}

impl Setting {
    /// The name under which it is kept: the field's path, or `--flag` where there is no field.
    pub fn key(&self) -> String {
        match (self.field, self.flag) {
            (Some(field), _) => field.to_owned(),
            (None, flag) => format!("--{}", flag.unwrap_or_default()),
        }
    }

    /// How validation messages name it, as upstream does: `maxPods (--max-pods)`.
    pub fn title(&self) -> String {
        match (self.field, self.flag) {
            (Some(field), Some(flag)) => format!("{field} (--{flag})"),
            (Some(field), None) => field.to_owned(),
            (None, _) => self.key(),
        }
    }

    pub fn is_bool(&self) -> bool {
        self.kind == Kind::Bool
    }
}

const IN_THE_FILE: &str = "This parameter should be set via the config file specified by the Kubelet's --config flag. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information.";
const OF_CADVISOR: &str = "This is a cadvisor flag that was mistakenly registered with the Kubelet. Due to legacy concerns, it will follow the standard CLI deprecation timeline before being removed.";

/// A row for a field. `Duration`s are always shown, because Go never omits them.
const fn field(path: &'static str, kind: Kind) -> Setting {
    let zero = match kind {
        Kind::Duration | Kind::Flush | Kind::Quantity | Kind::Level => Zero::Shown,
        _ => Zero::Unset,
    };
    Setting {
        field: Some(path),
        flag: None,
        short: None,
        kind,
        default: None,
        zero,
        doc: "",
        deprecated: None,
        effect: Effect::Later,
        live: false,
    }
}

/// A row for a flag that belongs to no field.
const fn flag(name: &'static str, kind: Kind) -> Setting {
    Setting { field: None, flag: Some(name), zero: Zero::Counts, ..field("", kind) }
}

impl Setting {
    /// The field also has a flag, which upstream has deprecated.
    const fn flag(self, name: &'static str) -> Self {
        Self { flag: Some(name), deprecated: Some(IN_THE_FILE), ..self }
    }

    const fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }

    const fn default(self, text: &'static str) -> Self {
        Self { default: Some(text), ..self }
    }

    const fn doc(self, text: &'static str) -> Self {
        Self { doc: text, ..self }
    }

    const fn deprecated(self, text: &'static str) -> Self {
        Self { deprecated: Some(text), ..self }
    }

    const fn welcome(self) -> Self {
        Self { deprecated: None, ..self }
    }

    const fn zero(self, zero: Zero) -> Self {
        Self { zero, ..self }
    }

    /// Zero counts.
    const fn pointer(self) -> Self {
        self.zero(Zero::Counts)
    }

    const fn acts(self) -> Self {
        Self { effect: Effect::Yes, ..self }
    }

    const fn inert(self) -> Self {
        Self { effect: Effect::None, ..self }
    }

    const fn live(self) -> Self {
        Self { live: true, effect: Effect::Yes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_complete_and_its_names_are_its_own() {
        let mut names = BTreeSet::new();
        for setting in settings() {
            assert!(setting.field.is_some() || setting.flag.is_some());
            assert!(setting.doc.ends_with('.') && setting.doc.len() > 10, "{}", setting.key());
            assert!(names.insert(setting.key()), "{} twice", setting.key());
            assert!(
                setting.flag.is_none_or(|flag| names.insert(format!("flag {flag}"))),
                "{}",
                setting.key()
            );
            if setting.flag.is_none() {
                assert!(setting.deprecated.is_none(), "{}", setting.key());
            }
        }
    }

    #[test]
    fn upstream_has_this_many() {
        // 146 flags of upstream's own registry, the two of JSON logging, `--version` apart; and Crablet's own one.
        let flags = settings().filter(|setting| setting.flag.is_some()).count();
        assert_eq!(flags, 146 + 2 - 1 + 1);
    }
}
