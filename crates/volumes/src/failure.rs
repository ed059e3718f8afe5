//! Why a volume cannot be had, in upstream's words.

use crablet_apiserver::ObjectError;

/// The reasons of events about volumes.
pub const FAILED_MOUNT: &str = "FailedMount";
pub const FAILED_MAP: &str = "FailedMapVolume";
/// Upstream only logs it.
pub const FAILED_UNMOUNT: &str = "FailedUnMount";

/// What went wrong with one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub step: Step,
    pub text: String,
    /// Somebody else has to do something first, and the volume can be had right after. Otherwise it is tried again with
    /// the pauses of failures.
    pub waits: bool,
    /// The name that the step tells, where it is not the pod's own.
    pub volume: Option<String>,
    /// The driver and the handle of a volume that is not attached yet.
    pub unattached: Option<Box<(String, String)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// What the volume is cannot be found out: its claim, for one.
    Process,
    /// A controller has not attached it yet, which is nothing to speak of.
    Attach,
    /// Of a volume that is mounted: `MountVolume.SetUp`.
    Mount(&'static str),
    /// Of a device: `MapVolume.MapPodDevice`.
    Map(&'static str),
}

impl Failure {
    pub fn at(step: Step, text: impl Into<String>) -> Self {
        Self { step, text: text.into(), waits: false, volume: None, unattached: None }
    }

    pub fn process(text: impl Into<String>) -> Self {
        Self { waits: true, ..Self::at(Step::Process, text) }
    }

    pub fn mount_device(text: impl Into<String>) -> Self {
        Self::at(Step::Mount("MountVolume.MountDevice failed"), text)
    }

    pub fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }

    pub fn of(mut self, volume: &str) -> Self {
        self.volume.get_or_insert_with(|| volume.to_owned());
        self
    }

    /// A failure of a device is told as such, whatever the step.
    pub fn of_device(mut self) -> Self {
        self.step = match self.step {
            Step::Mount("MountVolume.MountDevice failed") => Step::Map("MapVolume.SetUpDevice failed"),
            Step::Mount("MountVolume.WaitForAttach failed") => Step::Map("MapVolume.WaitForAttach failed"),
            Step::Mount("MountVolume.NodeAffinity check failed") => {
                Step::Map("MapVolume.NodeAffinity check failed")
            }
            Step::Mount(_) => Step::Map("MapVolume.MapPodDevice failed"),
            other => other,
        };
        self
    }

    /// Reason and text of the event about it. None where it is told with all others of the pod, or not at all.
    pub fn event(&self, volume: &str) -> Option<(&'static str, String)> {
        let volume = self.volume.as_deref().unwrap_or(volume);
        let (reason, step) = match self.step {
            Step::Process | Step::Attach => return None,
            Step::Mount(step) => (FAILED_MOUNT, step),
            Step::Map(step) => (FAILED_MAP, step),
        };
        Some((reason, format!("{step} for volume {volume:?} : {}", self.text)))
    }
}

/// Most failures are of setting up.
impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::at(Step::Mount("MountVolume.SetUp failed"), text)
    }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        let waits = matches!(error, ObjectError::NotFound(_));
        Self { waits, ..Self::from(error.to_string()) }
    }
}
