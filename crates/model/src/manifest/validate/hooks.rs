//! Probes and hooks: what is asked of a running container, and what it is told.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::error::{Problems, quoted};
use super::{names, one_of};
use crate::api::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, PodSpec, Probe, SleepAction,
    TCPSocketAction,
};

/// For containers that stay: regular ones and sidecars.
pub(super) fn check(path: &str, container: &Container, spec: &PodSpec, problems: &mut Problems) {
    let grace = spec.termination_grace_period_seconds;
    if let Some(lifecycle) = container.lifecycle.as_ref() {
        for (name, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
            if let Some(hook) = hook {
                check_handler(&format!("{path}.lifecycle.{name}"), &Handler::of_hook(hook), grace, problems);
            }
        }
        if let Some(signal) = &lifecycle.stop_signal {
            check_signal(format!("{path}.lifecycle.stopSignal"), signal, spec, problems);
        }
    }
    for (name, probe) in probes(container) {
        if let Some(probe) = probe {
            check_probe(&format!("{path}.{name}"), name, probe, grace, problems);
        }
    }
}

fn check_signal(path: String, signal: &str, spec: &PodSpec, problems: &mut Problems) {
    match spec.os.as_ref().map(|os| &*os.name) {
        None => problems.add(path, "may not be set for containers with empty `spec.os.name`"),
        Some("linux") if !is_signal(signal) => {
            let known = "a signal of Linux, like SIGTERM, SIGUSR1 or SIGRTMIN+3";
            problems.add(path, format!("{} is not {known}", quoted(signal)));
        }
        // Others do not run here, and are refused for that.
        Some(_) => {}
    }
}

fn is_signal(name: &str) -> bool {
    const NAMED: [&str; 34] = [
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL",
        "PIPE", "POLL", "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP",
        "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
    ];
    let Some(name) = name.strip_prefix("SIG") else { return false };
    let numbered = |begin: &str, most: u8| {
        let number = name.strip_prefix(begin)?;
        let parsed: u8 = number.parse().ok()?;
        Some((1..=most).contains(&parsed) && parsed.to_string() == number)
    };
    NAMED.contains(&name)
        || matches!(name, "RTMIN" | "RTMAX")
        || numbered("RTMIN+", 15).or_else(|| numbered("RTMAX-", 14)).unwrap_or(false)
}

/// For init containers that end by themselves.
pub(super) fn refuse(path: &str, container: &Container, problems: &mut Problems) {
    let given = probes(container).map(|(name, probe)| (name, probe.is_some()));
    let hooks = ("lifecycle", container.lifecycle.is_some());
    for (name, _) in [hooks].into_iter().chain(given).filter(|(_, given)| *given) {
        let message = "may not be set for init containers without restartPolicy=Always";
        problems.add(format!("{path}.{name}"), message);
    }
}

fn probes(container: &Container) -> [(&'static str, &Option<Probe>); 3] {
    [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ]
}

fn check_probe(path: &str, name: &str, probe: &Probe, grace: Option<i64>, problems: &mut Problems) {
    check_handler(path, &Handler::of_probe(probe), grace, problems);
    for (field, number) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        if let Some(number) = number.filter(|number| *number < 0) {
            problems.add(format!("{path}.{field}"), format!("{number} is below 0"));
        }
    }
    let grace_path = format!("{path}.terminationGracePeriodSeconds");
    match (name, probe.termination_grace_period_seconds) {
        (_, None) => {}
        ("readinessProbe", Some(_)) => problems.add(grace_path, "must not be set for readinessProbes"),
        (_, Some(seconds)) if seconds <= 0 => problems.add(grace_path, "must be greater than 0"),
        _ => {}
    }
    // One good answer is enough to live and to have started.
    if name != "readinessProbe" && probe.success_threshold.is_some_and(|number| number != 1) {
        problems.add(format!("{path}.successThreshold"), "must be 1");
    }
}

/// What is done to probe a container or to tell it something.
#[derive(Default)]
struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl<'a> Handler<'a> {
    fn of_probe(probe: &'a Probe) -> Self {
        Self {
            exec: probe.exec.as_ref(),
            http_get: probe.http_get.as_ref(),
            tcp_socket: probe.tcp_socket.as_ref(),
            grpc: probe.grpc.as_ref(),
            sleep: None,
        }
    }

    fn of_hook(hook: &'a LifecycleHandler) -> Self {
        Self {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        }
    }

    fn kinds(&self) -> impl Iterator<Item = &'static str> {
        [
            ("exec", self.exec.is_some()),
            ("httpGet", self.http_get.is_some()),
            ("tcpSocket", self.tcp_socket.is_some()),
            ("grpc", self.grpc.is_some()),
            ("sleep", self.sleep.is_some()),
        ]
        .into_iter()
        .filter_map(|(kind, given)| given.then_some(kind))
    }
}

fn check_handler(path: &str, handler: &Handler<'_>, grace: Option<i64>, problems: &mut Problems) {
    if handler.kinds().next().is_none() {
        problems.add(path, "must specify a handler type");
    }
    for kind in handler.kinds().skip(1) {
        problems.add(format!("{path}.{kind}"), "may not specify more than 1 handler type");
    }
    if handler.exec.is_some_and(|exec| exec.command.as_ref().is_none_or(Vec::is_empty)) {
        problems.add(format!("{path}.exec.command"), "required");
    }
    if let Some(action) = handler.http_get {
        check_http_get(&format!("{path}.httpGet"), action, problems);
    }
    if let Some(action) = handler.tcp_socket {
        check_port(format!("{path}.tcpSocket.port"), &action.port, problems);
    }
    if let Some(action) = handler.grpc {
        check_port(format!("{path}.grpc.port"), &IntOrString::Int(action.port), problems);
    }
    if let Some((action, grace)) = handler.sleep.zip(grace)
        && !(0..=grace).contains(&action.seconds)
    {
        let message = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        problems.add(format!("{path}.sleep"), message);
    }
}

fn check_http_get(path: &str, action: &HTTPGetAction, problems: &mut Problems) {
    check_port(format!("{path}.port"), &action.port, problems);
    one_of(format!("{path}.scheme"), action.scheme.as_deref(), &["HTTP", "HTTPS"], problems);
    for header in action.http_headers.iter().flatten() {
        let name = &header.name;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let message = format!("{} must be letters, digits and `-`", quoted(name));
            problems.add(format!("{path}.httpHeaders"), message);
        }
    }
}

fn check_port(path: String, port: &IntOrString, problems: &mut Problems) {
    match port {
        IntOrString::Int(number) if (1..=65535).contains(number) => {}
        IntOrString::Int(number) => problems.add(path, format!("{number} is not between 1 and 65535")),
        IntOrString::String(name) => {
            if let Err(rule) = names::port_name(name) {
                problems.add(path, format!("{} {rule}", quoted(name)));
            }
        }
    }
}
