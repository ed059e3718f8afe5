//! What a request's query asks for.

use axum::extract::Request;
use crablet_cri::Streams;

use crate::kubelet::query_of;
use crate::query::Query;

pub fn query(request: &Request) -> Query {
    Query::parse(query_of(request.uri(), request.extensions()))
}

pub fn streams(query: &Query) -> Result<Streams, String> {
    // Only the literal `1` is true.
    let flag = |name| query.first(name) == Some("1");
    let (stdin, stdout, tty) = (flag("input"), flag("output"), flag("tty"));
    // A terminal has one output.
    let stderr = flag("error") && !tty;
    if !stdin && !stdout && !stderr {
        return Err("you must specify at least 1 of stdin, stdout, stderr".to_owned());
    }
    Ok(Streams { stdin, stdout, stderr, tty })
}

pub fn command(query: &Query) -> Vec<String> {
    query.all("command").map(str::to_owned).collect()
}

/// The ports that a WebSocket client without a tunnel must name beforehand.
pub fn ports(query: &Query) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for value in query.all("port") {
        if value.is_empty() {
            return Err(r#"query parameter "port" cannot be empty"#.to_owned());
        }
        for port in value.split(',') {
            ports.push(parse_port(port, value)?);
        }
    }
    if ports.is_empty() {
        return Err(r#"query parameter "port" is required"#.to_owned());
    }
    Ok(ports)
}

fn parse_port(port: &str, value: &str) -> Result<u16, String> {
    let bad = |why: &str| {
        format!("unable to parse {value:?} as a port: strconv.ParseUint: parsing {port:?}: {why}")
    };
    // Rust would take a sign.
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad("invalid syntax"));
    }
    match port.parse() {
        Ok(0) => Err(format!("port {value:?} must be > 0")),
        Ok(port) => Ok(port),
        Err(_) => Err(bad("value out of range")),
    }
}
