//! The command's line.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use crablet_testbed::Flavor;
use crablet_testbed::suites::ginkgo::Selection;

use crate::args::Args;
use crate::cluster::Which;
use crate::runtime::Runtime;

/// Which of upstream's suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// The node's part of the suite for clusters.
    Shared,
    /// The suite that starts the kubelet itself, without what it shares with the other.
    Node,
    /// All that a cluster must pass to be called Kubernetes.
    Full,
    /// What has no such mark in the suite for clusters and speaks of pods and volumes. Of what is marked as a feature,
    /// that needs nothing special, only what pods ask for.
    Wide,
    /// The same of the suite that starts the kubelet itself.
    Rest,
}

/// Groups whose drivers live in images, clouds or servers that no test machine has.
const OUT_OF_REACH: &str =
    r"Driver: (csi-|pd\.csi|nfs|iscsi|azure|cinder|vsphere)|CSI [Mm]ock|\[DRA\]|\bNFS\b";

/// Groups of the node suite that measure a machine, or turn parts of the kubelet on that have suites of their own.
const OTHER_SUBJECTS: &str =
    r"Density|Resource-usage|Node Performance|MemoryQoS|OSArchLabel|Kubelet Pods API|Device Plugin";

#[derive(Debug, thiserror::Error)]
#[error("it is one of `shared`, `node`, `full`, `wide` and `rest`")]
pub struct Unknown;

impl Suite {
    pub const ALL: [Suite; 5] = [Suite::Shared, Suite::Node, Suite::Full, Suite::Wide, Suite::Rest];

    pub fn name(self) -> &'static str {
        match self {
            Suite::Shared => "shared",
            Suite::Node => "node",
            Suite::Full => "full",
            Suite::Wide => "wide",
            Suite::Rest => "rest",
        }
    }

    /// Whether the suite starts the kubelet itself, on the machine as it is; the others are given a cluster.
    pub fn starts_the_kubelet(self) -> bool {
        matches!(self, Suite::Node | Suite::Rest)
    }

    /// What is never run, by name.
    fn left_out(self) -> Option<&'static str> {
        match self {
            Suite::Shared | Suite::Node | Suite::Full => None,
            Suite::Wide => Some(OUT_OF_REACH),
            Suite::Rest => Some(OTHER_SUBJECTS),
        }
    }

    fn label(self) -> &'static str {
        match self {
            Suite::Shared | Suite::Node => "NodeConformance",
            Suite::Full => "Conformance",
            Suite::Wide => {
                "(sig-node || sig-storage) && !NodeConformance && !Conformance && !Disruptive \
                 && !/^Feature:OffByDefault$/ && (!/^Feature:/ || /^Feature:(EnvFiles|Example|HostAccess\
                 |InPlacePodVerticalScaling|PodLevelResources|RuntimeHandler|SupplementalGroupsPolicy\
                 |UserNamespacesSupport)$/)"
            }
            Suite::Rest => {
                "sig-node && !NodeConformance && !Conformance && !/^Feature:OffByDefault$/ \
                 && (!/^Feature:/ || /^Feature:(CriticalPod|SeccompDefault|StandaloneMode)$/)"
            }
        }
    }

    /// How many specs at once, if nobody says: specs mostly wait, so more than there are cores. The node suite's count
    /// seconds in their containers and have a kubelet that logs more.
    fn processes(self) -> usize {
        match self {
            Suite::Shared | Suite::Full | Suite::Wide => 6,
            Suite::Node | Suite::Rest => 4,
        }
    }
}

impl FromStr for Suite {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Suite, Unknown> {
        Suite::ALL.into_iter().find(|suite| suite.name() == text).ok_or(Unknown)
    }
}

/// What is to be run.
#[derive(Debug)]
pub struct Options {
    pub suite: Suite,
    pub which: Which,
    /// A build of Crablet that is at hand already.
    pub binary: Option<PathBuf>,
    pub flavor: Flavor,
    pub processes: usize,
    /// Whether this is what the suite is: not a look at a few specs, nor at those that run alone.
    pub whole: bool,
    /// Whether the kubelet's conversations are kept.
    pub record: bool,
    pub selection: Selection,
}

impl Options {
    pub fn take(args: &mut Args) -> Result<Options> {
        let suite = args.value("--suite")?.unwrap_or(Suite::Shared);
        let serial = args.flag("--serial");
        let processes = args.value("--procs")?;
        if serial && processes.is_some_and(|count: usize| count != 1) {
            bail!("`--serial` is for specs that run alone: it leaves no room for `--procs`");
        }
        let focus = args.value("--focus")?;
        let skip = args.value("--skip")?;
        Ok(Options {
            suite,
            binary: args.value("--binary")?,
            whole: !serial && focus.is_none() && skip.is_none(),
            which: args.value("--kubelet")?.unwrap_or(Which::Crablet),
            flavor: args.value::<Runtime>("--runtime")?.map_or(Flavor::Pinned, |runtime| runtime.0),
            processes: if serial { 1 } else { processes.unwrap_or(suite.processes()).max(1) },
            record: args.flag("--record"),
            selection: selection(suite, serial, focus, skip),
        })
    }

    /// The name of this kind of run, for files: `shared-pinned-upstream`, or with `-recorded` behind it.
    pub fn name(&self) -> String {
        let recorded = if self.record { "-recorded" } else { "" };
        format!("{}-{}-{}{recorded}", self.suite.name(), self.flavor.name(), self.which.name())
    }
}

/// The suite's own choice and the caller's: both must hold.
fn selection(suite: Suite, serial: bool, focus: Option<String>, skip: Option<String>) -> Selection {
    let alone = if serial { "Serial" } else { "!Serial" };
    Selection {
        labels: format!("{} && {alone} && !Flaky", suite.label()),
        // What the node suite has in common with the shared one is judged there.
        not_in: suite.starts_the_kubelet().then(|| "test/e2e/common/".to_owned()),
        focus,
        skip: either(suite.left_out().map(str::to_owned), skip),
    }
}

/// A regular expression for what one of the two matches.
fn either(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one}|{other}")),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_choice_and_the_callers_are_joined() {
        let chosen = selection(Suite::Shared, false, Some("Pods should".into()), None);
        assert_eq!(chosen.labels, "NodeConformance && !Serial && !Flaky");
        assert_eq!(chosen.focus.as_deref(), Some("Pods should"));
        assert_eq!((chosen.skip, chosen.not_in), (None, None));
    }

    #[test]
    fn the_node_suite_leaves_out_what_the_shared_one_has() {
        let chosen = selection(Suite::Node, true, None, Some("Swap".into()));
        assert_eq!(chosen.labels, "NodeConformance && Serial && !Flaky");
        assert!(chosen.not_in.is_some() && chosen.skip.is_some());
    }

    #[test]
    fn what_is_out_of_reach_is_left_out_with_what_the_caller_leaves_out() {
        let chosen = selection(Suite::Wide, false, None, Some("Slow".into()));
        assert!(chosen.skip.is_some_and(|skip| skip.starts_with(OUT_OF_REACH) && skip.ends_with("|Slow")));
        assert_eq!(selection(Suite::Wide, false, None, None).skip.as_deref(), Some(OUT_OF_REACH));
        assert_eq!(selection(Suite::Rest, true, None, None).skip.as_deref(), Some(OTHER_SUBJECTS));
    }

    #[test]
    fn suites_go_by_their_names() {
        assert!(
            Suite::ALL.into_iter().all(|suite| suite.name().parse::<Suite>().is_ok_and(|same| same == suite))
        );
        assert_eq!(
            "all".parse::<Suite>().unwrap_err().to_string(),
            "it is one of `shared`, `node`, `full`, `wide` and `rest`"
        );
    }
}
