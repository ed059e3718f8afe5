//! Ways to ask a container something: a command inside it, or a request over the network.
//!
//! | module | asks | used by |
//! |---|---|---|
//! | [`exec`] | a command in the container | probes |
//! | [`http`] | a GET, plain or over TLS that nobody verifies | probes, hooks |
//! | [`tcp`] | whether somebody listens | probes |
//! | [`grpc`] | `grpc.health.v1.Health/Check` | probes |
//! | `dial` | connections for the three | |
//!
//! Nothing is kept between two questions: no connection, no client. Texts are upstream's, Go's errors included, since
//! they end up in events.

use crablet_model::api;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

mod dial;
pub(crate) mod exec;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod tcp;

/// The version that requests say they are of.
const VERSION: &str = "1.36";
/// No more of an answer than this is read, or shown.
pub(crate) const MOST_OF_AN_ANSWER: usize = 10 << 10;

/// What came of a question. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Success(String),
    /// A success with something to be told.
    Warning(String),
    Failure(String),
}

/// The question itself went wrong, so that the container is neither well nor unwell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What upstream calls the result then: `unknown` or `failure`.
    pub state: &'static str,
    pub message: String,
}

impl Trouble {
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { state: "unknown", message: message.into() }
    }
}

/// A port by number, or by the name that the container has for it.
pub(crate) fn port(port: &IntOrString, container: &api::Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => match by_name(container, name) {
            Some(number) => i64::from(number),
            None => {
                name.parse::<i64>().map_err(|_| format!("strconv.Atoi: parsing {name:?}: invalid syntax"))?
            }
        },
    };
    match u16::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("invalid port number: {number}")),
    }
}

fn by_name(container: &api::Container, name: &str) -> Option<i32> {
    let mut ports = container.ports.iter().flatten();
    ports.find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_numbers_names_or_numbers_in_quotes() {
        let container: api::Container = serde_json::from_value(serde_json::json!({
            "name": "c", "ports": [{"name": "web", "containerPort": 8080}],
        }))
        .unwrap();
        let of = |text: &str| port(&IntOrString::String(text.to_owned()), &container);
        assert_eq!(port(&IntOrString::Int(80), &container), Ok(80));
        assert_eq!(of("web"), Ok(8080));
        assert_eq!(of("9090"), Ok(9090));
        assert_eq!(of("nobody"), Err("strconv.Atoi: parsing \"nobody\": invalid syntax".to_owned()));
        assert_eq!(of("70000"), Err("invalid port number: 70000".to_owned()));
        assert_eq!(port(&IntOrString::Int(0), &container), Err("invalid port number: 0".to_owned()));
    }
}
