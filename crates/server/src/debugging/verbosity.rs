//! `/debug/flags/v`: how much the program writes to its log, changed while it runs.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use http_body_util::{BodyExt, Limited};

use crate::ports::Verbosity;
use crate::reply;

/// Far more than the largest number takes.
const LONGEST: usize = 1 << 10;

pub(super) fn routes(verbosity: Arc<dyn Verbosity>) -> Router {
    Router::new().route("/debug/flags/v", any(set)).with_state(verbosity)
}

async fn set(State(verbosity): State<Arc<dyn Verbosity>>, method: Method, body: Body) -> Response {
    if method != Method::PUT {
        return said(StatusCode::NOT_ACCEPTABLE, "unsupported http method");
    }
    let body = match Limited::new(body, LONGEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return said(StatusCode::BAD_REQUEST, &format!("error reading request body: {error}")),
    };
    match number(&String::from_utf8_lossy(&body)) {
        Ok(number) => {
            verbosity.set(number);
            said(StatusCode::OK, &format!("successfully set klog.logging.verbosity to {number}"))
        }
        Err(why) => said(StatusCode::BAD_REQUEST, &why),
    }
}

/// Upstream reads it twice: as a number without a sign, and as a level, which has one bit less.
fn number(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"));
    }
    let Ok(number) = text.parse::<u32>() else {
        return Err(format!("strconv.ParseUint: parsing {text:?}: value out of range"));
    };
    if i32::try_from(number).is_err() {
        return Err(format!(
            "failed set klog.logging.verbosity {text}: strconv.ParseInt: parsing {text:?}: value out of range"
        ));
    }
    Ok(number)
}

fn said(status: StatusCode, text: &str) -> Response {
    let mut response = reply::line(status, text);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
