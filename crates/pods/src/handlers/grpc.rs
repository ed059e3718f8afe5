//! `grpc.health.v1.Health/Check`, without TLS.

mod greeted;

use std::time::Duration;

use crablet_model::duration;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::{self, Instant};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::dial::{dial, host_and_port};
use super::{Answer, VERSION};
use greeted::Greeted;

/// Between two tries to connect, as gRPC's own clients do it at first.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

impl ServingStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

/// `timeout` is for connecting and asking together. Who does not let us connect, or does not speak HTTP/2, is tried again
/// until it is over.
pub(crate) async fn ask(host: &str, port: u16, service: &str, timeout: Duration) -> Answer {
    let deadline = Instant::now() + timeout;
    let address = host_and_port(host, port);
    let shown = duration::Go(timeout);
    let channel = match time::timeout_at(deadline, connected(host, port)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => {
            return Answer::Failure(format!("error: failed to connect service at {address:?}: {error}"));
        }
        Err(_) => {
            return Answer::Failure(format!(
                "timeout: failed to connect service {address:?} within {shown}: context deadline exceeded"
            ));
        }
    };
    match time::timeout_at(deadline, check(channel, service)).await {
        Ok(Ok(status)) => verdict(status),
        Ok(Err(status)) => Answer::Failure(refusal(&status, &shown)),
        Err(_) => Answer::Failure(format!("timeout: health rpc did not complete within {shown}")),
    }
}

async fn connected(host: &str, port: u16) -> Result<Channel, tonic::transport::Error> {
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let endpoint = Endpoint::from_shared(format!("http://{}", host_and_port(host, port)))?
        .user_agent(format!("kube-probe/{VERSION}"))?;
    loop {
        let (hear, heard) = mpsc::channel(1);
        let host = host.to_owned();
        let connector = tower::service_fn(move |_| {
            let (host, hear) = (host.clone(), hear.clone());
            async move {
                let stream = dial(&host, port).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(Greeted::new(stream, hear)))
            }
        });
        match endpoint.connect_with_connector(connector).await {
            Ok(channel) if speaks_http2(heard).await => return Ok(channel),
            _ => time::sleep(AGAIN).await,
        }
    }
}

/// A connection stands once the server has said its settings: before that the client only believes that it does.
async fn speaks_http2(mut heard: mpsc::Receiver<bool>) -> bool {
    heard.recv().await.unwrap_or(false)
}

async fn check(channel: Channel, service: &str) -> Result<i32, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(HealthCheckRequest { service: service.to_owned() });
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    Ok(client.unary(request, path, codec).await?.into_inner().status)
}

fn verdict(status: i32) -> Answer {
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => Answer::Success("service healthy".to_owned()),
        known => {
            let name = known.map_or_else(|_| status.to_string(), |known| known.name().to_owned());
            Answer::Failure(format!("service unhealthy (responded with {name:?})"))
        }
    }
}

fn refusal(status: &Status, timeout: &impl std::fmt::Display) -> String {
    let message = status.message();
    match status.code() {
        Code::Unimplemented => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        ),
        Code::DeadlineExceeded => format!("timeout: health rpc did not complete within {timeout}"),
        code => {
            let code = in_go(code);
            format!("error: health rpc probe failed: rpc error: code = {code} desc = {message}")
        }
    }
}

/// Go's name of a code.
fn in_go(code: Code) -> String {
    match code {
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}

#[cfg(test)]
mod tests;
