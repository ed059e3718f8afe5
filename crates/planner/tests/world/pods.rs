//! Pods as stories draw them: every part that a container can play, with every way to restart, probe and hook.

use crablet_model::api;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The exit code that restart rules of drawn pods speak of.
pub const RULED: i32 = 42;

#[derive(Clone, Debug)]
pub struct Sketch {
    pub policy: &'static str,
    pub is_static: bool,
    pub host_network: bool,
    pub grace: i64,
    pub deadline: Option<i64>,
    pub init: Vec<Part>,
    pub regular: Vec<Part>,
    pub ephemeral: usize,
}

/// A container of a drawn pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Of its own; `Always` makes an init container a sidecar.
    pub policy: Option<&'static str>,
    /// What its rule for [`RULED`] asks for.
    pub rule: Option<&'static str>,
    /// The rule speaks of all codes but that.
    pub rules_others: bool,
    pub startup: bool,
    pub liveness: bool,
    pub readiness: bool,
    /// Of its probes.
    pub grace: Option<i64>,
    pub pre_stop: bool,
    pub post_start: bool,
    /// It has amounts of its own.
    pub sized: bool,
    /// The amount for which it has to be started again, if it may be.
    pub restarts_for: Option<&'static str>,
}

impl Sketch {
    /// Regular containers only, without anything of their own.
    pub fn plain(containers: usize, policy: &'static str) -> Self {
        Self {
            policy,
            is_static: true,
            host_network: false,
            grace: 30,
            deadline: None,
            init: Vec::new(),
            regular: vec![Part::default(); containers],
            ephemeral: 0,
        }
    }

    pub fn pod(&self) -> api::Pod {
        let source = if self.is_static { "file" } else { "api" };
        let list = |prefix: &str, parts: &[Part]| -> Vec<Value> {
            parts
                .iter()
                .enumerate()
                .map(|(i, part)| part.json(&format!("{prefix}{i}"), self.policy))
                .collect()
        };
        let ephemeral = vec![Part::default(); self.ephemeral];
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "uid": "u1", "generation": 1,
                         "annotations": {"kubernetes.io/config.source": source}},
            "spec": {
                "initContainers": list("i", &self.init),
                "containers": list("c", &self.regular),
                "ephemeralContainers": list("e", &ephemeral),
                "restartPolicy": self.policy,
                "hostNetwork": self.host_network,
                "terminationGracePeriodSeconds": self.grace,
                "activeDeadlineSeconds": self.deadline,
            },
        });
        serde_json::from_value(pod).expect("the world's own pod decodes")
    }
}

impl Part {
    /// `of_pod` is the pod's restart policy.
    fn json(self, name: &str, of_pod: &str) -> Value {
        let probe = json!({"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": self.grace});
        let hook = json!({"exec": {"command": ["true"]}});
        let operator = if self.rules_others { "NotIn" } else { "In" };
        let rules = self.rule.map(
            |action| json!([{"action": action, "exitCodes": {"operator": operator, "values": [RULED]}}]),
        );
        let amounts = json!({"cpu": "100m", "memory": "64Mi"});
        // What never restarts cannot ask for it.
        let never = self.policy.unwrap_or(of_pod) == "Never" || of_pod == "Never";
        let restarts = self.restarts_for.filter(|_| !never);
        let resize =
            restarts.map(|resource| json!([{"resourceName": resource, "restartPolicy": "RestartContainer"}]));
        json!({
            "name": name,
            "resources": self.sized.then(|| json!({"requests": amounts, "limits": amounts})),
            "resizePolicy": resize,
            "image": format!("example.test/{name}:1"),
            "restartPolicy": self.policy,
            "restartPolicyRules": rules,
            "startupProbe": self.startup.then_some(&probe),
            "livenessProbe": self.liveness.then_some(&probe),
            "readinessProbe": self.readiness.then(|| json!({"exec": {"command": ["true"]}})),
            "lifecycle": {
                "preStop": self.pre_stop.then_some(&hook),
                "postStart": self.post_start.then_some(&hook),
            },
        })
    }
}

pub fn any_sketch() -> impl Strategy<Value = Sketch> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let init = prop_oneof![any_init(), any_sidecar()];
    (
        policy,
        (any::<bool>(), any::<bool>()),
        0..40i64,
        prop::option::weighted(0.1, 1..2000i64),
        prop::collection::vec(init, 0..4),
        prop::collection::vec(any_regular(), 1..4),
        prop_oneof![4 => Just(0usize), 1 => 1..3usize],
    )
        .prop_map(|(policy, (is_static, host_network), grace, deadline, init, regular, ephemeral)| {
            Sketch { policy, is_static, host_network, grace, deadline, init, regular, ephemeral }
        })
}

fn any_regular() -> impl Strategy<Value = Part> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let own = prop::option::weighted(0.3, (policy, any_rule()));
    let probe = || prop::bool::weighted(0.3);
    let probes = (probe(), probe(), probe(), prop::option::of(0..20i64));
    let hooks = (prop::bool::weighted(0.3), prop::bool::weighted(0.2));
    let sizes =
        (prop::bool::weighted(0.5), prop::option::weighted(0.3, prop_oneof![Just("cpu"), Just("memory")]));
    (own, probes, hooks, sizes).prop_map(|(own, probes, (pre_stop, post_start), (sized, restarts_for))| {
        let (startup, liveness, readiness, grace) = probes;
        Part {
            policy: own.map(|(policy, _)| policy),
            rule: own.and_then(|(_, (rule, _))| rule),
            rules_others: own.is_some_and(|(_, (_, others))| others),
            startup,
            liveness,
            readiness,
            grace,
            pre_stop,
            post_start,
            sized,
            restarts_for,
        }
    })
}

fn any_sidecar() -> impl Strategy<Value = Part> {
    any_regular().prop_map(|part| Part { policy: Some("Always"), rule: None, rules_others: false, ..part })
}

fn any_init() -> impl Strategy<Value = Part> {
    let policy = prop_oneof![Just("OnFailure"), Just("Never")];
    prop::option::weighted(0.3, (policy, any_rule())).prop_map(|own| Part {
        policy: own.map(|(policy, _)| policy),
        rule: own.and_then(|(_, (rule, _))| rule),
        rules_others: own.is_some_and(|(_, (_, others))| others),
        ..Part::default()
    })
}

/// Everything does not begin afresh because of an ordinary end: that would never be over.
fn any_rule() -> impl Strategy<Value = (Option<&'static str>, bool)> {
    prop_oneof![
        5 => Just((None, false)),
        3 => Just((Some("Restart"), false)),
        1 => Just((Some("Restart"), true)),
        3 => Just((Some("RestartAllContainers"), false)),
    ]
}
