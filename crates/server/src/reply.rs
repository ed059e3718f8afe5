//! The few forms that answers have.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = of(status, TEXT, Body::from(body.into()));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// One line for a person.
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

/// As upstream's router words it.
pub async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404: Page Not Found")
}

/// As upstream's router words it.
pub async fn method_not_allowed() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
}
