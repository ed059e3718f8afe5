//! What a probe asks, and at which pace.

use std::time::Duration;

use crablet_cri::Runtime;
use crablet_model::{PodRef, api};

use crate::handlers::http::{HttpAsk, Purpose};
use crate::handlers::{self, Answer, Trouble, exec, grpc, http, tcp};

/// A question that could not be asked is asked again at once, so often in all.
const TRIES: usize = 3;

/// Only what is needed to ask: a watch does not keep its pod's specification.
pub(super) enum Question {
    Exec(Box<[String]>),
    /// Its host may be empty: then the pod is asked.
    Http(Box<HttpAsk>),
    Tcp {
        host: Box<str>,
        port: u16,
    },
    Grpc {
        port: u16,
        service: Box<str>,
    },
    /// It cannot be asked at all.
    Senseless(String),
}

impl Question {
    pub fn of(pod: &PodRef, container: &api::Container, probe: &api::Probe) -> Self {
        Self::read(pod, container, probe).unwrap_or_else(Self::Senseless)
    }

    fn read(pod: &PodRef, container: &api::Container, probe: &api::Probe) -> Result<Self, String> {
        if let Some(exec) = &probe.exec {
            let command = exec.command.iter().flatten();
            return Ok(Self::Exec(command.map(|word| expand(word, container)).collect()));
        }
        if let Some(get) = &probe.http_get {
            return Ok(Self::Http(Box::new(HttpAsk::of(get, container, "", Purpose::Probe)?)));
        }
        if let Some(socket) = &probe.tcp_socket {
            let host = socket.host.as_deref().unwrap_or_default().into();
            return Ok(Self::Tcp { host, port: handlers::port(&socket.port, container)? });
        }
        if let Some(grpc) = &probe.grpc {
            let port = u16::try_from(grpc.port).map_err(|_| format!("invalid port number: {}", grpc.port))?;
            return Ok(Self::Grpc { port, service: grpc.service.as_deref().unwrap_or_default().into() });
        }
        let (name, namespace, uid) = (&pod.name, &pod.namespace, &pod.uid);
        Err(format!("missing probe handler for {name}_{namespace}({uid}):{}", container.name))
    }

    /// It goes over the network, and starts no process in the container.
    pub fn is_light(&self) -> bool {
        !matches!(self, Self::Exec(_) | Self::Senseless(_))
    }

    /// Asks until there is an answer, or the last try has failed.
    pub async fn ask(
        &self,
        runtime: &dyn Runtime,
        container_id: &str,
        pod_ip: &str,
        timeout: Duration,
    ) -> Result<Answer, Trouble> {
        let mut answer = self.ask_once(runtime, container_id, pod_ip, timeout).await;
        for _ in 1..TRIES {
            if answer.is_ok() {
                break;
            }
            answer = self.ask_once(runtime, container_id, pod_ip, timeout).await;
        }
        answer
    }

    async fn ask_once(
        &self,
        runtime: &dyn Runtime,
        container_id: &str,
        pod_ip: &str,
        timeout: Duration,
    ) -> Result<Answer, Trouble> {
        match self {
            Self::Exec(command) => exec::ask(runtime, container_id, command, timeout).await,
            Self::Http(ask) => http::ask(&ask.at(pod_ip), timeout).await,
            Self::Tcp { host, port } => {
                let host = if host.is_empty() { pod_ip } else { host };
                Ok(tcp::ask(host, *port, timeout).await)
            }
            Self::Grpc { port, service } => Ok(grpc::ask(pod_ip, *port, service, timeout).await),
            Self::Senseless(why) => Err(Trouble::unknown(why.clone())),
        }
    }
}

/// Replaces `$(NAME)` by what the specification itself says that the variable is, and `$$` by `$`. As upstream, a
/// variable that comes from elsewhere counts as empty here.
fn expand(text: &str, container: &api::Container) -> String {
    let value_of = |name: &str| {
        let mut all = container.env.iter().flatten().rev();
        all.find(|var| var.name == name).map(|var| var.value.clone().unwrap_or_default())
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = match after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            Some((name, after)) => {
                out.push_str(&value_of(name).unwrap_or_else(|| format!("$({name})")));
                after
            }
            None => {
                out.push('$');
                after.strip_prefix('$').unwrap_or(after)
            }
        };
    }
    out.push_str(rest);
    out
}

/// When to ask, and how often the same answer makes a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    pub delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub successes: u32,
    pub failures: u32,
}

impl Timing {
    pub fn of(probe: &api::Probe) -> Self {
        let number = |given: Option<i32>, default: u32| match given.map(u32::try_from) {
            Some(Ok(given)) if given > 0 => given,
            _ => default,
        };
        let seconds = |given, default| Duration::from_secs(number(given, default).into());
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: number(probe.success_threshold, 1),
            failures: number(probe.failure_threshold, 3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_are_expanded_from_the_specification_alone() {
        let container: api::Container = serde_json::from_value(serde_json::json!({
            "name": "c",
            "env": [
                {"name": "A", "value": "first"},
                {"name": "A", "value": "last"},
                {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }))
        .unwrap();
        let cases = [
            ("plain", "plain"),
            ("x$(A)y", "xlasty"),
            ("[$(FROM)]", "[]"),
            ("$(NOBODY)", "$(NOBODY)"),
            ("$$(A)", "$(A)"),
            ("$A $(A", "$A $(A"),
            ("cost: 5$", "cost: 5$"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, &container), expected, "{text}");
        }
    }
}
