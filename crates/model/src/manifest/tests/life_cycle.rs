//! Init containers, probes, hooks, restarts.

use super::*;

/// A whole manifest with one init container of these fields.
fn with_init(fields: &str) -> String {
    with_spec(&format!("initContainers: [{{name: i, image: x, {fields}}}]"))
}

#[test]
fn probes_and_hooks_get_the_api_servers_defaults() {
    let decoded = accepted(&with_container(
        "livenessProbe: {httpGet: {port: http}}\nlifecycle: {preStop: {httpGet: {port: 80}}}",
    ));
    let container = &decoded.pod.spec.as_ref().expect("a spec").containers[0];
    let probe = container.liveness_probe.as_ref().expect("a probe");
    let numbers =
        (probe.timeout_seconds, probe.period_seconds, probe.success_threshold, probe.failure_threshold);
    assert_eq!(numbers, (Some(1), Some(10), Some(1), Some(3)));
    let hook = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()).expect("a hook");
    for action in [probe.http_get.as_ref(), hook.http_get.as_ref()] {
        let action = action.expect("a request");
        assert_eq!((action.path.as_deref(), action.scheme.as_deref()), (Some("/"), Some("HTTP")));
    }
}

#[test]
fn what_the_api_server_would_refuse_in_probes_and_hooks() {
    for (lines, expected) in [
        ("livenessProbe: {}", "livenessProbe: must specify a handler type"),
        (
            "startupProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}",
            "startupProbe.tcpSocket: may not specify more than 1 handler type",
        ),
        ("readinessProbe: {exec: {}}", "readinessProbe.exec.command: required"),
        (
            "readinessProbe: {tcpSocket: {port: 70000}}",
            "readinessProbe.tcpSocket.port: 70000 is not between 1 and 65535",
        ),
        ("livenessProbe: {grpc: {port: 0}}", "livenessProbe.grpc.port: 0 is not between 1 and 65535"),
        ("livenessProbe: {httpGet: {port: HTTP}}", "livenessProbe.httpGet.port: \"HTTP\" must be at most 15"),
        (
            "livenessProbe: {httpGet: {port: 1, scheme: FTP}}",
            "livenessProbe.httpGet.scheme: \"FTP\" is not one of HTTP, HTTPS",
        ),
        (
            "livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: a b, value: c}]}}",
            "livenessProbe.httpGet.httpHeaders: \"a b\" must be letters, digits and `-`",
        ),
        (
            "livenessProbe: {tcpSocket: {port: 1}, periodSeconds: -1}",
            "livenessProbe.periodSeconds: -1 is below 0",
        ),
        (
            "livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}",
            "livenessProbe.successThreshold: must be 1",
        ),
        (
            "livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 0}",
            "livenessProbe.terminationGracePeriodSeconds: must be greater than 0",
        ),
        (
            "readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}",
            "readinessProbe.terminationGracePeriodSeconds: must not be set for readinessProbes",
        ),
        ("lifecycle: {preStop: {}}", "lifecycle.preStop: must specify a handler type"),
        (
            "lifecycle: {postStart: {sleep: {seconds: 31}}}",
            "lifecycle.postStart.sleep: must be non-negative and less than terminationGracePeriodSeconds (30)",
        ),
    ] {
        let message = refusal(&with_container(lines));
        assert!(message.starts_with(&format!("spec.containers[0].{expected}")), "{lines}\n{message}");
    }
}

#[test]
fn sidecars_may_be_probed_and_other_init_containers_may_not() {
    let probe = "livenessProbe: {exec: {command: [a]}}, lifecycle: {preStop: {exec: {command: [a]}}}";
    accepted(&with_init(&format!("restartPolicy: Always, {probe}")));
    assert_eq!(
        refusal(&with_init(probe)),
        "spec.initContainers[0].lifecycle: may not be set for init containers without restartPolicy=Always; \
         spec.initContainers[0].livenessProbe: may not be set for init containers without restartPolicy=Always"
    );
    assert_eq!(
        refusal(&with_spec("initContainers: [{name: app, image: x}]")),
        "spec.initContainers[0].name: \"app\" is the name of an earlier container; names must be unique"
    );
}

#[test]
fn restart_rules_are_whole() {
    let rule = "{action: Restart, exitCodes: {operator: In, values: [42]}}";
    accepted(&with_container(&format!("restartPolicy: Never\nrestartPolicyRules: [{rule}]")));
    for (lines, expected) in [
        (
            format!("restartPolicyRules: [{rule}]"),
            "restartPolicy: must specify restartPolicy when restart rules are used",
        ),
        ("restartPolicy: Odd".to_owned(), "restartPolicy: \"Odd\" is not one of Always, Never, OnFailure"),
        (
            "restartPolicy: Never\nrestartPolicyRules: [{action: Restart}]".to_owned(),
            "restartPolicyRules[0].exitCodes: required",
        ),
        (
            "restartPolicy: Never\nrestartPolicyRules: [{action: Odd, exitCodes: {operator: Like}}]"
                .to_owned(),
            "restartPolicyRules[0].action: \"Odd\" is not one of Restart, RestartAllContainers; \
             spec.containers[0].restartPolicyRules[0].exitCodes.operator: \"Like\" is not one of In, NotIn",
        ),
        (
            format!("restartPolicy: Never\nrestartPolicyRules: [{}]", vec![rule; 21].join(", ")),
            "restartPolicyRules: 21 rules; the limit is 20",
        ),
    ] {
        assert_eq!(refusal(&with_container(&lines)), format!("spec.containers[0].{expected}"), "{lines}");
    }
}

#[test]
fn what_only_a_running_pod_can_be_given_is_refused() {
    let message = refusal(&with_spec("ephemeralContainers: [{name: e, image: x}]"));
    assert_eq!(message, "spec.ephemeralContainers: cannot be set on create; remove it");
    let message = refusal(&with_spec("readinessGates: [{conditionType: a b}]"));
    assert!(message.starts_with("spec.readinessGates[0].conditionType: \"a b\" must be"), "{message}");
}

#[test]
fn a_stop_signal_is_one_of_the_pods_system() {
    let with = |os: &str, signal: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  {os}\n  containers:\n  \
             - {{name: c, image: i, lifecycle: {{stopSignal: {signal}}}}}\n"
        )
    };
    for signal in ["SIGTERM", "SIGUSR1", "SIGRTMIN", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX"] {
        accepted(&with("os: {name: linux}", signal));
    }
    for signal in ["TERM", "SIGNONE", "SIGRTMIN+16", "SIGRTMIN+0", "SIGRTMAX-15", "SIGRTMIN+01", "SIG", "9x"]
    {
        let expected = format!(
            "spec.containers[0].lifecycle.stopSignal: {signal:?} is not a signal of Linux, like SIGTERM, SIGUSR1 or SIGRTMIN+3"
        );
        assert_eq!(refusal(&with("os: {name: linux}", signal)), expected);
    }
    assert_eq!(
        refusal(&with("hostNetwork: false", "SIGTERM")),
        "spec.containers[0].lifecycle.stopSignal: may not be set for containers with empty `spec.os.name`"
    );
}
