//! The container runtime: is it there, does it answer, and what can it do?

use std::collections::BTreeMap;

use crablet_cri::client::preflight::Description;
use crablet_cri::{CriError, ErrorKind};
use crablet_model::runtime::{RuntimeHandler, RuntimeVersion};

use super::super::facts::{Answers, Read, Runtime, Socket};
use super::super::report::{Finding, Group};
use super::listed;

const GROUP: Group = Group("runtime");

const START_IT: &str = "install a container runtime and start it (`systemctl enable --now containerd`), or name its \
                        socket with `--container-runtime-endpoint`";

pub fn judge(endpoint: &str, runtime: &Read<Runtime>) -> Vec<Finding> {
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(why) => return vec![GROUP.unread("socket", why)],
    };
    let Some(answers) = &runtime.answers else {
        return vec![no_socket(endpoint, runtime)];
    };
    let version = match &answers.version {
        Ok(version) => version,
        Err(error) => return vec![silent(endpoint, error)],
    };
    let mut found = vec![GROUP.ok("socket", format!("{endpoint} answers")), judge_version(version)];
    match &answers.description {
        Ok(description) => {
            found.push(ready(description));
            found.extend(other_conditions(description));
            found.push(handlers(description));
        }
        Err(error) => found.push(failed("RuntimeReady", error)),
    }
    found.push(events(answers));
    found.extend(sandbox_image(answers));
    found
}

fn no_socket(endpoint: &str, runtime: &Runtime) -> Finding {
    let seen = match &runtime.socket {
        Socket::SomethingElse => format!("{endpoint} is not a socket"),
        Socket::Unreadable(why) => format!("{endpoint}: {why}"),
        Socket::Here | Socket::Missing => format!("{endpoint} does not exist"),
    };
    let fix = match runtime.other_sockets.first() {
        Some(other) => format!(
            "a runtime seems to be at {0}: `--container-runtime-endpoint=unix://{0}`",
            other.display()
        ),
        None => START_IT.to_owned(),
    };
    GROUP.error("socket", seen, fix)
}

/// There is a socket, and nobody who talks CRI behind it.
fn silent(endpoint: &str, error: &CriError) -> Finding {
    let fix = match error.kind {
        ErrorKind::Unavailable if error.message.contains("Permission denied") => "run it as root",
        ErrorKind::Unimplemented => {
            "it does not speak CRI v1: take `cri` out of `disabled_plugins` in containerd's configuration, or use a newer \
             runtime"
        }
        ErrorKind::DeadlineExceeded => "the runtime hangs: look at its log, then restart it",
        ErrorKind::Unavailable | ErrorKind::NotFound | ErrorKind::Refused | ErrorKind::Exhausted => {
            "the runtime does not run, or is not one: look at its log, then restart it"
        }
    };
    GROUP.error("socket", format!("{endpoint} does not answer: {error}"), fix)
}

fn judge_version(version: &RuntimeVersion) -> Finding {
    let seen = format!("{} {}, CRI {}", version.runtime_name, version.runtime_version, version.api_version);
    if version.api_version != "v1" {
        return GROUP.error(
            "version",
            seen,
            "use a runtime that speaks CRI v1: containerd 1.6, CRI-O 1.26 or later",
        );
    }
    GROUP.ok("version", seen)
}

fn failed(name: &str, error: &CriError) -> Finding {
    GROUP.error(name, format!("the runtime answers with an error: {error}"), "look at the runtime's log")
}

fn ready(description: &Description) -> Finding {
    match description.conditions.iter().find(|condition| condition.name == "RuntimeReady") {
        Some(condition) if condition.holds => GROUP.ok("RuntimeReady", "true"),
        Some(condition) => GROUP.error(
            "RuntimeReady",
            format!("false, {}: {}", condition.reason, condition.message),
            "look at the runtime's log: it says what it waits for",
        ),
        None => GROUP.error("RuntimeReady", "not reported", "use a runtime that speaks CRI v1"),
    }
}

/// Runtimes add conditions of their own: containerd tells deprecations that way. The network's is judged elsewhere.
fn other_conditions(description: &Description) -> Vec<Finding> {
    description
        .conditions
        .iter()
        .filter(|condition| !matches!(condition.name.as_str(), "RuntimeReady" | "NetworkReady"))
        .filter(|condition| !condition.holds)
        .map(|condition| {
            let seen = format!("false, {}: {}", condition.reason, in_words(&condition.message));
            GROUP.warning(&condition.name, seen, "change the runtime's configuration as it says")
        })
        .collect()
}

/// containerd puts several messages into one, as a JSON object.
fn in_words(message: &str) -> String {
    match serde_json::from_str::<BTreeMap<String, String>>(message) {
        Ok(messages) => messages.into_values().collect::<Vec<_>>().join(" "),
        Err(_) => message.to_owned(),
    }
}

fn handlers(description: &Description) -> Finding {
    if description.handlers.is_empty() {
        return GROUP.ok("handlers", "not reported: pods with user namespaces are refused");
    }
    let named = |wanted: fn(&RuntimeHandler) -> bool| {
        let names: Vec<_> = description
            .handlers
            .iter()
            .filter(|handler| wanted(handler))
            .map(|handler| if handler.name.is_empty() { "the default" } else { handler.name.as_str() })
            .collect();
        if names.is_empty() { "none".to_owned() } else { listed(&names) }
    };
    GROUP.ok(
        "handlers",
        format!(
            "{}; with user namespaces: {}; with recursive read-only mounts: {}",
            named(|_| true),
            named(|handler| handler.user_namespaces),
            named(|handler| handler.recursive_read_only_mounts)
        ),
    )
}

fn events(answers: &Answers) -> Finding {
    match &answers.events {
        Ok(()) => GROUP.ok("events", "streamed"),
        Err(error) if error.kind == ErrorKind::Unimplemented => GROUP.warning(
            "events",
            "the runtime has no event stream: the agent asks for changes every second at most",
            "move to containerd 1.7, CRI-O 1.26 or later",
        ),
        Err(error) => {
            GROUP.warning("events", format!("no event stream: {error}"), "look at the runtime's log")
        }
    }
}

fn sandbox_image(answers: &Answers) -> Option<Finding> {
    let (image, here) = answers.sandbox_image.as_ref()?;
    Some(match here {
        Ok(true) => GROUP.ok("sandbox image", format!("{image} is here")),
        Ok(false) => GROUP.warning(
            "sandbox image",
            format!("{image} is not here: the first pod waits until it is pulled"),
            "pull or import it now, above all on a machine without a registry",
        ),
        Err(error) => {
            GROUP.warning("sandbox image", format!("{image}: {error}"), "look at the runtime's log")
        }
    })
}
