//! A client that speaks to the runtime itself: SPDY, and WebSocket up to v4.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::upgrade::OnUpgrade;

use super::runtime::{self, Address, Answer};
use super::sessions::Sessions;
use super::{Opened, Refused, client, failed, head, relay};

/// About how one message's body is sent.
const FRAMING: [HeaderName; 4] =
    [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TRAILER, header::EXPECT];

pub async fn serve(address: &str, mut request: Request, sessions: &Sessions) -> Opened {
    check_upgrade(&request)?;
    let place = sessions.place()?;
    let address = Address::parse(address).map_err(|why| failed(&why))?;
    let headers = headers_for_runtime(&request);
    let answer = runtime::ask(&address, request.method().clone(), headers).await;
    match answer.map_err(|why| failed(&why))? {
        Answer::Other { head, body } => Ok(pass_on(head, body)),
        Answer::Switched { head, stream, early } => {
            let upgrade = take_upgrade(&mut request)?;
            sessions.begin(place, async move {
                if let Some(client) = client::upgraded(upgrade).await {
                    relay::relay(client, stream, early).await;
                }
            });
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            *response.headers_mut() = head.headers;
            Ok(response)
        }
    }
}

pub fn check_upgrade(request: &Request) -> Result<(), Refused> {
    // Over HTTP/2 there is no such header, so that a client is told the same as upstream tells it.
    if head::is_upgrade(request.headers()) { Ok(()) } else { Err(failed("Upgrade request required")) }
}

/// The client's connection, once the answer has been sent.
pub fn take_upgrade(request: &mut Request) -> Result<OnUpgrade, Refused> {
    if request.extensions().get::<OnUpgrade>().is_none() {
        return Err(failed(
            "request connection cannot be hijacked: the request names no protocol in `Upgrade`",
        ));
    }
    Ok(hyper::upgrade::on(request))
}

/// All that the client said, as upstream's proxy has it: it is the runtime that the client speaks to.
pub fn headers_for_runtime(request: &Request) -> HeaderMap {
    let mut headers = request.headers().clone();
    head::without_credentials(&mut headers);
    for name in &FRAMING {
        headers.remove(name);
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    if let Some(ConnectInfo(peer)) = peer {
        let earlier = headers.get_all(head::FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<_> = earlier.map(str::to_owned).chain([peer.ip().to_string()]).collect();
        if let Ok(hops) = HeaderValue::from_str(&hops.join(", ")) {
            headers.insert(head::FORWARDED_FOR, hops);
        }
    }
    headers
}

/// An answer that is no connection. The client gets to see the runtime's errors, and nothing else of it.
pub fn pass_on(head: Parts, body: Bytes) -> Response {
    if head.status.as_u16() < 400 {
        return *failed(&format!("invalid upgrade response: status code {}", head.status.as_u16()));
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    for name in FRAMING.iter().chain(&[header::UPGRADE]) {
        response.headers_mut().remove(name);
    }
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
