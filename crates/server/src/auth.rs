//! Who asks, and whether they may: passed by every request to the main port before anything else looks at it.
//!
//! | module | what it is |
//! |---|---|
//! | [`authenticate`] | client certificate, then bearer token, then anonymous |
//! | [`tokens`] | where a request carries a token, and whose it is |
//! | [`client_ca`] | the bundle that client certificates are judged by, read again when its file changes |
//! | [`attributes`] | which part of the node a path belongs to |
//! | [`authorize`] | everything allowed, or the cluster's word on it |
//! | [`memo`] | answers of the cluster, remembered for a while under a keyed hash |
//! | [`reviews`] | asking the cluster |
//!
//! Nobody is anybody else here: headers that ask for impersonation, and those of front proxies, mean nothing.

mod attributes;
mod authenticate;
mod authorize;
pub(crate) mod client_ca;
mod memo;
mod reviews;
mod tokens;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{debug, error};

use self::memo::Unanswered;
use crate::kubelet::Peer;
use crate::ports::{AccessAttributes, UserInfo};
use crate::reply;

pub(crate) use authenticate::{Authenticator, Who};
pub(crate) use authorize::Authorizer;
pub use reviews::ApiReviews;
pub(crate) use tokens::Tokens;

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Decides about every request.
pub(crate) struct Gate {
    node: Arc<str>,
    authenticator: Authenticator,
    authorizer: Authorizer,
}

/// The layer in front of all that is served.
pub(crate) async fn check(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match gate.admit(&head).await {
        Ok(()) => {
            tokens::strip(&mut head.headers);
            next.run(Request::from_parts(head, body)).await
        }
        Err(refusal) => refusal,
    }
}

impl Gate {
    pub fn new(node: Arc<str>, authenticator: Authenticator, authorizer: Authorizer) -> Self {
        Self { node, authenticator, authorizer }
    }

    async fn admit(&self, request: &Parts) -> Result<(), Response> {
        let peer = request.extensions.get::<Peer>();
        let who = self.authenticator.identify(peer, &request.headers).await;
        let Who { user, anonymous } = match who {
            Ok(Some(who)) => who,
            Ok(None) => return Err(unauthorized()),
            Err(Unanswered::Busy) => return Err(too_many()),
            Err(Unanswered::Failed(why)) => {
                error!(err = %why, "Unable to authenticate the request due to an error");
                return Err(unauthorized());
            }
        };
        if let (Some(peer), false) = (peer, anonymous) {
            peer.is_known();
        }
        self.authorize(&user, request).await?;
        if let Some(peer) = peer {
            peer.is_admitted();
        }
        Ok(())
    }

    async fn authorize(&self, user: &Arc<UserInfo>, request: &Parts) -> Result<(), Response> {
        let verb = attributes::verb(&request.method);
        let subresources = attributes::subresources(request.uri.path());
        for subresource in subresources {
            let wanted = AccessAttributes { user: user.clone(), verb, subresource, node: self.node.clone() };
            match self.authorizer.allows(&wanted).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Unanswered::Busy) => return Err(too_many()),
                Err(Unanswered::Failed(why)) => {
                    let name = &user.name;
                    error!(err = %why, user = %name, verb, resource = "nodes", subresource, "Authorization error");
                    let message = format!(
                        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                    );
                    return Err(reply::plain(StatusCode::INTERNAL_SERVER_ERROR, message));
                }
            }
        }
        let (name, tried) = (&user.name, subresources.join(" "));
        debug!(user = %name, verb, resource = "nodes", subresources = %tried, "Forbidden");
        let message =
            format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{tried}])\n");
        Err(reply::plain(StatusCode::FORBIDDEN, message))
    }
}

/// Unless a group of that kind is there already.
fn with_authenticated_group(mut user: UserInfo) -> UserInfo {
    if !user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn unauthorized() -> Response {
    reply::plain(StatusCode::UNAUTHORIZED, "Unauthorized")
}

fn too_many() -> Response {
    let mut response =
        reply::plain(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
