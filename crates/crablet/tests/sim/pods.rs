//! Pods of a story.
//!
//! | module | what it is |
//! |---|---|
//! | [`parts`] | init containers, sidecars, hooks, probes and rules |
//! | [`commands`] | what hooks and probes find |
//! | [`sizes`] | what part of the node they take |
//! | [`volumes`] | the volumes of pods that an API server has, and what should be in them |

pub mod commands;
pub mod parts;
pub mod sizes;
pub mod volumes;

use std::time::Duration;

use crablet_cri::RegistryAuth;
use crablet_cri::fake::{Behaviour, FakeImage, Life, OnTerm, Pull};
use crablet_model::manifest::{Gates, Origin, decode_pod};
use crablet_model::names::annotation;
use crablet_model::{PodUid, Role};
use fastrand::Rng;

use self::parts::{Extras, Rule};
use self::sizes::{Claim, Size};
use self::volumes::{OBJECTS, PULL_SECRET, Volume};

pub const NODE: &str = "sim";
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Always,
    OnFailure,
    Never,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }
}

#[derive(Clone, Debug)]
pub struct ContainerPlan {
    pub name: String,
    pub role: Role,
    pub image: &'static str,
    pub behaviour: Behaviour,
    pub extras: Extras,
    pub size: Option<Size>,
    /// The amount for which it has to be started again when it gets another part of the node.
    pub restarts_for: Option<&'static str>,
}

/// Who has a pod.
#[derive(Clone, Debug)]
pub enum Home {
    Manifest,
    Api(Vec<Volume>),
}

#[derive(Clone, Debug)]
pub struct PodPlan {
    pub name: String,
    pub home: Home,
    /// Its manifest names a UID, so that an edited manifest is the same pod.
    pub pinned: bool,
    pub policy: Policy,
    pub grace_seconds: u32,
    /// Seconds that the pod has in all.
    pub deadline: Option<u32>,
    pub host_network: bool,
    /// Init containers and sidecars.
    pub init: Vec<ContainerPlan>,
    pub containers: Vec<ContainerPlan>,
    /// How ephemeral containers live that somebody adds.
    pub debuggers: Vec<Life>,
    /// It asks for a part of the node.
    pub claim: Option<Claim>,
}

/// What a pod comes to when it is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every container runs and stays.
    Ready,
    /// Some container keeps ending, or does not start, and is tried again and again.
    Loops,
    /// Every container has ended for good.
    Ends,
    /// An image is not to be had.
    Pending,
}

/// The number of a container whose image no edit changes.
const NEVER_EDITED: usize = usize::MAX;
/// A pod of the API server is edited less often than this; from here on a version is another pod of the same name.
pub const EDITS: u32 = 10;

pub const PRESENT: &str = "registry.test/present:1";
pub const PULLED: &str = "registry.test/pulled:1";
pub const FLAKY: &str = "registry.test/flaky:1";
pub const MISSING: &str = "registry.test/missing:1";
/// The registry wants to know who asks.
pub const PRIVATE: &str = "registry.test/private:1";

/// Who may have [`PRIVATE`].
pub fn credentials() -> RegistryAuth {
    RegistryAuth { username: "someone".to_owned(), password: "hush".to_owned() }
}

/// The images of every story, also under the names that edited manifests use. `healed` is after the trouble.
pub fn images(rng: &mut Rng, healed: bool) -> Vec<(String, FakeImage)> {
    let after = Duration::from_millis(rng.u64(100..60_000));
    let works = Pull::Works { after };
    let flaky = match rng.u8(0..3) {
        _ if healed => works.clone(),
        0 => Pull::Hangs,
        _ => Pull::Fails("failed to pull and unpack image: connection reset by peer".to_owned()),
    };
    let kinds = [
        (PRESENT, FakeImage::present()),
        (PULLED, FakeImage::pulled(works)),
        (FLAKY, FakeImage::pulled(flaky)),
        (MISSING, FakeImage::pulled(Pull::Fails("not found".to_owned()))),
        (PRIVATE, FakeImage { needs: Some(credentials()), ..FakeImage::pulled(Pull::Works { after }) }),
    ];
    let names = |name: &str| ["", "1", "3", "5", "7", "9"].map(|edit| format!("{name}{edit}"));
    kinds.into_iter().flat_map(|(name, image)| names(name).map(|name| (name, image.clone()))).collect()
}

impl PodPlan {
    pub fn random(rng: &mut Rng, number: usize) -> Self {
        let policy = match rng.u8(0..10) {
            0..6 => Policy::Always,
            6..8 => Policy::OnFailure,
            _ => Policy::Never,
        };
        let containers =
            (0..rng.usize(1..=3)).map(|n| ContainerPlan::random(rng, n).with_extras(rng, policy)).collect();
        let init = ContainerPlan::some_init(rng);
        let debugger = |rng: &mut Rng| if rng.bool() { Life::Forever } else { lives(rng).swap_remove(0) };
        Self {
            name: format!("pod{number}"),
            home: Home::Manifest,
            pinned: rng.u8(0..4) == 0,
            policy,
            grace_seconds: [1, 2, 5, 10, 30, 60][rng.usize(0..6)],
            deadline: (rng.u8(0..12) == 0).then(|| rng.u32(20..400)),
            host_network: rng.u8(0..10) == 0,
            debuggers: (0..3).map(|_| debugger(rng)).collect(),
            init,
            containers,
            claim: None,
        }
    }

    /// A pod of the API server.
    pub fn random_of_api(rng: &mut Rng, number: usize) -> Self {
        let volumes = Volume::some(rng);
        let name = format!("api{number}");
        let mut pod = Self { name, home: Home::Api(volumes), pinned: false, ..Self::random(rng, number) };
        for container in pod.init.iter_mut().chain(&mut pod.containers) {
            match rng.u8(0..10) {
                0 if container.image != MISSING => container.image = PRIVATE,
                1 => container.extras.env = Some(rng.u8(0..OBJECTS)),
                _ => {}
            }
        }
        pod
    }

    /// Those who can ask for all containers to begin afresh.
    pub fn asks_for_all(&self) -> impl Iterator<Item = &ContainerPlan> {
        self.containers.iter().filter(|c| c.extras.rule == Some(Rule::RestartAll))
    }

    /// Those that come first, first.
    pub fn everyone(&self) -> impl Iterator<Item = &ContainerPlan> {
        self.init.iter().chain(&self.containers)
    }

    pub fn is_of_api(&self) -> bool {
        matches!(self.home, Home::Api(_))
    }

    pub fn volumes(&self) -> &[Volume] {
        match &self.home {
            Home::Manifest => &[],
            Home::Api(volumes) => volumes,
        }
    }

    pub fn path(&self) -> String {
        format!("{MANIFESTS}/{}.json", self.name)
    }

    /// The name the pod has on the node.
    pub fn full_name(&self) -> String {
        match self.home {
            Home::Manifest => format!("{}-{NODE}", self.name),
            Home::Api(_) => self.name.clone(),
        }
    }

    /// The manifest. Another version is an edited manifest: another UID, or another image of the first container.
    pub fn manifest(&self, version: u32) -> String {
        let containers: Vec<_> =
            self.containers.iter().enumerate().map(|(n, c)| c.json(self, n, version)).collect();
        let init: Vec<_> = self.init.iter().map(|c| c.json(self, NEVER_EDITED, version)).collect();
        let mut pod = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.name, "labels": { "version": version.to_string() } },
            "spec": {
                "restartPolicy": self.policy.name(),
                "terminationGracePeriodSeconds": self.grace_seconds,
                "hostNetwork": self.host_network,
                "initContainers": init,
                "containers": containers,
            },
        });
        if let Some(deadline) = self.deadline {
            pod["spec"]["activeDeadlineSeconds"] = deadline.into();
        }
        if self.pinned {
            pod["metadata"]["uid"] = format!("00000000-0000-4000-8000-{:0>12}", self.name).into();
        }
        pod.to_string()
    }

    /// The pod as an operator gives it to the API server and the scheduler binds it. Versions with the same number of
    /// tens are one pod, edited.
    pub fn api_object(&self, version: u32) -> serde_json::Value {
        let mounts: Vec<_> = self.volumes().iter().map(Volume::mount).collect();
        let container = |(number, plan): (usize, &ContainerPlan)| {
            let mut json = plan.json(self, number, version);
            json["terminationMessagePath"] = "/dev/termination-log".into();
            json["terminationMessagePolicy"] = "File".into();
            if json["resources"].is_null() {
                json["resources"] = serde_json::json!({});
            }
            json["volumeMounts"] = mounts.clone().into();
            json
        };
        let mut pod = serde_json::json!({
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "uid": self.uid(version).as_str(),
                "labels": { "version": version.to_string() },
            },
            "spec": {
                "nodeName": NODE,
                "restartPolicy": self.policy.name(),
                "terminationGracePeriodSeconds": self.grace_seconds,
                "hostNetwork": self.host_network,
                "imagePullSecrets": [{"name": PULL_SECRET}],
                "dnsPolicy": "ClusterFirst",
                "serviceAccountName": "default",
                "securityContext": {},
                "schedulerName": "default-scheduler",
                "enableServiceLinks": true,
                "initContainers": self.init.iter().map(|c| container((NEVER_EDITED, c))).collect::<Vec<_>>(),
                "containers": self.containers.iter().enumerate().map(container).collect::<Vec<_>>(),
                "volumes": self.volumes().iter().map(Volume::json).collect::<Vec<_>>(),
            },
        });
        if let Some(deadline) = self.deadline {
            pod["spec"]["activeDeadlineSeconds"] = deadline.into();
        }
        if self.is_critical() {
            pod["spec"]["priorityClassName"] = "system-node-critical".into();
            pod["spec"]["priority"] = 2_000_001_000.into();
        }
        pod
    }

    /// What tells the agent's form of a manifest from others.
    pub fn hash(&self, version: u32) -> String {
        let (text, path) = (self.manifest(version), self.path());
        let decoded = decode_pod(text.as_bytes(), &Origin::File { path: &path }, NODE, Gates::default());
        let annotations =
            decoded.ok().and_then(|decoded| decoded.pod.metadata.annotations).unwrap_or_default();
        annotations.get(annotation::CONFIG_HASH).cloned().unwrap_or_default()
    }

    pub fn uid(&self, version: u32) -> PodUid {
        if self.is_of_api() {
            let number: String = self.name.chars().filter(char::is_ascii_digit).collect();
            return PodUid::new(format!("0000a000-0000-4000-8000-{number:0>4}{:0>8}", version / EDITS));
        }
        let (text, path) = (self.manifest(version), self.path());
        let decoded = decode_pod(text.as_bytes(), &Origin::File { path: &path }, NODE, Gates::default());
        let decoded = decoded.unwrap_or_else(|e| panic!("a story's manifest is refused: {e}\n{text}"));
        PodUid::new(decoded.pod.metadata.uid.unwrap_or_default())
    }

    pub fn expected(&self) -> Expected {
        let hangs = self.containers.iter().any(|c| c.extras.hangs());
        let all = |outcome| self.containers.iter().all(|c| c.comes_to(self.policy) == outcome);
        let any = |outcome| self.containers.iter().any(|c| c.comes_to(self.policy) == outcome);
        if let Some(stuck) = self.init.iter().find_map(|c| c.holds_up(self.policy)) {
            stuck
        } else if hangs {
            Expected::Loops
        } else if any(Expected::Pending) {
            Expected::Pending
        } else if all(Expected::Ends) {
            Expected::Ends
        } else if all(Expected::Ready) && !self.init.iter().any(ContainerPlan::loops_beside) {
            Expected::Ready
        } else {
            Expected::Loops
        }
    }
}

impl ContainerPlan {
    fn random(rng: &mut Rng, number: usize) -> Self {
        let image = match rng.u8(0..20) {
            0..12 => PRESENT,
            12..16 => PULLED,
            16..19 => FLAKY,
            _ => MISSING,
        };
        let last_words = if rng.bool() { "bye".to_owned() } else { String::new() };
        let behaviour = Behaviour { lives: lives(rng), on_term: on_term(rng), last_words };
        let (role, extras) = (Role::Regular, Extras::default());
        let (size, restarts_for) = (None, None);
        Self { name: format!("c{number}"), role, image, behaviour, extras, size, restarts_for }
    }

    /// `of` is its pod.
    fn json(&self, of: &PodPlan, number: usize, version: u32) -> serde_json::Value {
        let mut container = serde_json::json!({
            "name": self.name,
            "image": self.image_in(number, version),
            "imagePullPolicy": "IfNotPresent",
        });
        self.add_extras(&mut container, &of.name);
        self.add_size(&mut container, of.claim);
        container
    }

    /// The image in a version of the pod: every other edit changes that of the first container.
    pub fn image_in(&self, number: usize, version: u32) -> String {
        let edit =
            if number == 0 && version % 2 == 1 { (version % EDITS).to_string() } else { String::new() };
        format!("{}{edit}", self.image)
    }

    /// What the container's last kind of life means under a policy.
    fn comes_to(&self, policy: Policy) -> Expected {
        if self.image == MISSING {
            return Expected::Pending;
        }
        if self.extras.rule.is_some() {
            let stays = self.behaviour.lives.last() == Some(&Life::Forever);
            return if stays { Expected::Ready } else { Expected::Ends };
        }
        match (policy, self.behaviour.lives.last()) {
            (_, None | Some(Life::Forever)) if self.behaviour.lives.len() <= 1 => Expected::Ready,
            (Policy::Never, _) => self.under_never(),
            (_, None | Some(Life::Forever)) => Expected::Ready,
            (Policy::OnFailure, _) if self.ends_well() => Expected::Ends,
            _ => Expected::Loops,
        }
    }

    fn under_never(&self) -> Expected {
        match self.behaviour.lives.first() {
            None | Some(Life::Forever) => Expected::Ready,
            _ => Expected::Ends,
        }
    }

    fn ends_well(&self) -> bool {
        let ends_well = |life: &Life| matches!(life, Life::Exits { code: 0, .. });
        self.behaviour.lives.iter().any(ends_well)
    }
}

fn lives(rng: &mut Rng) -> Vec<Life> {
    let seconds = |rng: &mut Rng, most: u64| Duration::from_millis(rng.u64(0..most * 1000));
    let ends = |rng: &mut Rng, code| Life::Exits { after: seconds(rng, 40), code };
    match rng.u8(0..20) {
        0..9 => vec![Life::Forever],
        9..12 => {
            // Mends itself after some crashes.
            let crashes = rng.usize(1..=4);
            let mut lives: Vec<_> = (0..crashes).map(|_| ends(rng, 1)).collect();
            lives.push(Life::Forever);
            lives
        }
        12..15 => vec![ends(rng, 1)],
        15..17 => vec![ends(rng, 0)],
        17 => vec![Life::OomKilled { after: seconds(rng, 90) }],
        18 => {
            let refusal = Life::FailsToStart("exec: \"app\": executable file not found in $PATH".to_owned());
            if rng.bool() { vec![refusal] } else { vec![refusal.clone(), refusal, Life::Forever] }
        }
        // Long enough that the back-off starts afresh.
        _ => vec![ends(rng, 1), ends(rng, 2), Life::Exits { after: Duration::from_secs(640), code: 3 }],
    }
}

fn on_term(rng: &mut Rng) -> OnTerm {
    match rng.u8(0..10) {
        0..5 => OnTerm::Exits { after: Duration::ZERO, code: 0 },
        5..7 => OnTerm::Exits { after: Duration::from_millis(rng.u64(0..45_000)), code: 143 },
        7..9 => OnTerm::Ignores,
        _ => OnTerm::Stuck,
    }
}
