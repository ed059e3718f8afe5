//! The few forms that answers have.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// As upstream's router writes text.
pub fn plain(status: StatusCode, body: impl Into<Bytes>) -> Response {
    of(status, TEXT, Body::from(body.into()))
}

/// As Go's own library writes errors, and upstream some pages: browsers should not guess what it is.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = plain(status, body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// One line for a person, in that form.
pub fn line(status: StatusCode, line: &str) -> Response {
    text(status, format!("{}\n", line.trim_end()))
}

pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    of(status, JSON, Body::from(body.into()))
}

pub fn of(status: StatusCode, kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// As Go's multiplexer words it.
pub fn no_page() -> Response {
    line(StatusCode::NOT_FOUND, "404 page not found")
}

/// As upstream's router words it.
pub fn no_route() -> Response {
    plain(StatusCode::NOT_FOUND, "404: Page Not Found")
}

/// As upstream's router words it.
pub fn wrong_method(allowed: &str) -> Response {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}
