//! Who asks, and whether they may: passed by every request to the main port before anything else looks at it.
//!
//! | module | what it is |
//! |---|---|
//! | [`authenticate`] | client certificate, then bearer token, then anonymous |
//! | [`client_ca`] | the bundle that client certificates are judged by, read again when its file changes |
//! | [`attributes`] | which part of the node a path belongs to |
//! | [`authorize`] | everything allowed, or the cluster's word on it |
//! | [`memo`] | answers of the cluster, remembered for a while under a keyed hash |
//! | [`reviews`] | asking the cluster |

mod attributes;
mod authenticate;
mod authorize;
pub(crate) mod client_ca;
mod memo;
mod reviews;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use tracing::{debug, error};

use crate::kubelet::Peer;
use crate::ports::{AccessAttributes, UserInfo};
use crate::reply;

pub(crate) use authenticate::{Authenticator, Tokens, Who};
pub(crate) use authorize::Authorizer;
pub use reviews::ApiReviews;

/// Decides about every request.
pub(crate) struct Gate {
    pub node: Arc<str>,
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
}

/// The layer around the whole router, so that nobody learns which paths exist without being allowed to.
pub(crate) async fn check(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match gate.admit(&head).await {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(refusal) => refusal,
    }
}

impl Gate {
    async fn admit(&self, request: &Parts) -> Result<(), Response> {
        let peer = request.extensions.get::<Peer>();
        let who = self.authenticator.identify(peer, &request.headers).await;
        let Some(Who { user, anonymous }) = who.map_err(|why| {
            error!(err = %why, "Unable to authenticate the request due to an error");
            unauthorized()
        })?
        else {
            return Err(unauthorized());
        };
        if let (Some(peer), false) = (peer, anonymous) {
            peer.is_known();
        }
        self.authorize(&user, request).await
    }

    async fn authorize(&self, user: &Arc<UserInfo>, request: &Parts) -> Result<(), Response> {
        let verb = attributes::verb(&request.method);
        let subresources = attributes::subresources(request.uri.path());
        for subresource in subresources {
            let wanted = AccessAttributes { user: user.clone(), verb, subresource, node: self.node.clone() };
            match self.authorizer.allows(&wanted).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(why) => {
                    let name = &user.name;
                    error!(err = %why, user = %name, verb, resource = "nodes", subresource, "Authorization error");
                    let message = format!(
                        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                    );
                    return Err(reply::text(StatusCode::INTERNAL_SERVER_ERROR, message));
                }
            }
        }
        let (name, tried) = (&user.name, subresources.join(" "));
        debug!(user = %name, verb, resource = "nodes", subresources = %tried, "Forbidden");
        let message =
            format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{tried}])\n");
        Err(reply::text(StatusCode::FORBIDDEN, message))
    }
}

fn unauthorized() -> Response {
    reply::text(StatusCode::UNAUTHORIZED, "Unauthorized")
}
