//! Which paths there are and what each takes, decided as upstream's two routers decide it: Go's multiplexer, which cleans
//! paths and redirects, and go-restful behind it, which looks at methods and at what the client accepts.
//!
//! A request passes [`Mux::in_front_of`] first: its path gets the one form that everything behind agrees on, so that what
//! is authorised is what is served. Go's answers are the same for everybody and sent at once; those of go-restful wait in
//! [`dispatching`], behind authorisation.

pub(crate) mod path;

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;

use crate::reply;
pub(crate) use path::{decode, escape, escape_html};

/// Something that is served.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// Exactly this path, with any method.
    Page(&'static str),
    /// Everything below this path, which ends with a slash, with any method.
    Tree(&'static str),
    /// Routes below a path. Where it ends with a slash, who leaves that out is redirected.
    Service(&'static str, &'static [Route]),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub below: Below,
    pub methods: &'static [&'static str],
    pub produces: Produces,
}

/// What a route says that it answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Produces {
    /// Upstream's routes that say nothing are for clients that accept `*/*`.
    Unsaid,
    Json,
    /// Ours: clients are not asked.
    Whatever,
}

impl Produces {
    fn suits(self, accepted: &[u8]) -> bool {
        match self {
            Self::Unsaid => accepted == b"*/*",
            Self::Json => matches!(accepted, b"*/*" | b"application/json"),
            Self::Whatever => true,
        }
    }
}

/// How many path segments a route has below its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    Exactly(usize),
    AtLeastOne,
}

impl Below {
    fn matches(self, segments: usize) -> bool {
        match self {
            Self::Exactly(count) => segments == count,
            Self::AtLeastOne => segments > 0,
        }
    }
}

pub(crate) const fn route(below: usize, methods: &'static [&'static str]) -> Route {
    Route { below: Below::Exactly(below), methods, produces: Produces::Unsaid }
}

pub(crate) const fn json_route(below: usize, methods: &'static [&'static str]) -> Route {
    Route { produces: Produces::Json, ..route(below, methods) }
}

/// One that upstream does not have.
pub(crate) const fn own_route(below: usize, methods: &'static [&'static str]) -> Route {
    Route { produces: Produces::Whatever, ..route(below, methods) }
}

/// The path as Go decodes it, which may be no UTF-8.
#[derive(Clone, Debug)]
pub(crate) struct DecodedPath(pub Arc<[u8]>);

#[derive(Debug)]
pub(crate) struct Mux(Vec<Entry>);

impl Mux {
    pub fn new(entries: Vec<Entry>) -> Self {
        Self(entries)
    }

    /// The first segments of what is not a service, sorted: what upstream's `/statusz` lists, beside itself.
    pub fn listed_paths(&self) -> Vec<String> {
        let listed =
            self.0.iter().filter(|entry| entry.path() != "/statusz").filter_map(|entry| match entry {
                Entry::Page(path) | Entry::Tree(path) => {
                    path.split('/').nth(1).map(|first| format!("/{first}"))
                }
                Entry::Service(..) => None,
            });
        listed.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// `router` sees only paths in their one form.
    pub fn in_front_of(self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::new(self), look_up))
    }

    /// With the path's one form, where there is something at it.
    fn verdict(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> (Verdict, Option<Rewritten>) {
        let raw = uri.path();
        let Some(decoded) = decode(raw) else { return (Verdict::BadRequest, None) };
        let cleaned = if method == Method::CONNECT { Cow::Borrowed(raw) } else { path::clean(raw) };
        let found = self.find(&cleaned);
        if found.is_none_or(|(_, exact)| !exact) && !cleaned.ends_with('/') {
            let with_slash = format!("{cleaned}/");
            if self.find(&with_slash).is_some_and(|(_, exact)| exact) {
                let mut location = path::clean_bytes(&decoded);
                location.push(b'/');
                return (Verdict::redirect(&escape(&location), uri), None);
            }
        }
        if cleaned != raw {
            return (Verdict::redirect(&escape(cleaned.as_bytes()), uri), None);
        }
        let Some((entry, _)) = found else { return (Verdict::NoPage, None) };
        let rewritten = Rewritten::new(&decoded);
        let verdict = match entry {
            Entry::Page(_) | Entry::Tree(_) => Verdict::Serve,
            Entry::Service(root, routes) => {
                let depth = root.trim_matches('/').split('/').count();
                let below = rewritten.segments.saturating_sub(depth);
                choose(routes, below, method, headers)
            }
        };
        (verdict, Some(rewritten))
    }

    /// What serves a path, and whether that is the very path of the entry.
    fn find(&self, path: &str) -> Option<(Entry, bool)> {
        let segments: Option<Vec<Vec<u8>>> = path.strip_prefix('/')?.split('/').map(decode).collect();
        let segments = segments?;
        let found = self.0.iter().filter_map(|entry| entry.matches(&segments).map(|exact| (*entry, exact)));
        // Pages before trees, and the longer path before the shorter.
        found.max_by_key(|(entry, exact)| (*exact, entry.path().len()))
    }
}

impl Entry {
    fn path(&self) -> &'static str {
        match self {
            Self::Page(path) | Self::Tree(path) | Self::Service(path, _) => path,
        }
    }

    /// `Some(true)`: exactly.
    fn matches(&self, segments: &[Vec<u8>]) -> Option<bool> {
        let root = self.path().trim_matches('/');
        let count = root.split('/').count();
        let begins = segments.len() >= count
            && root.split('/').zip(segments).all(|(wanted, found)| wanted.as_bytes() == found.as_slice());
        let without_slash = matches!(self, Self::Page(_)) || !self.path().ends_with('/');
        let with_more = !matches!(self, Self::Page(_));
        match segments.get(count..) {
            Some([]) if begins && without_slash => Some(true),
            Some(rest @ [_, ..]) if begins && with_more => Some(rest == [b""]),
            _ => None,
        }
    }
}

/// As go-restful chooses: by path, then by method, then by what the client accepts.
fn choose(routes: &[Route], below: usize, method: &Method, headers: &HeaderMap) -> Verdict {
    let mut here = routes.iter().filter(|route| route.below.matches(below)).peekable();
    if here.peek().is_none() {
        return Verdict::NoRoute;
    }
    let allowed: Vec<&str> = here.clone().flat_map(|route| route.methods).copied().collect();
    let Some(route) = here.find(|route| route.methods.contains(&method.as_str())) else {
        return Verdict::WrongMethod(allowed.join(", "));
    };
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes).filter(|accept| !accept.is_empty());
    let suits =
        |accept: &[u8]| accept.split(|byte| *byte == b',').any(|kind| route.produces.suits(bare(kind)));
    if accept.is_none_or(suits) { Verdict::Serve } else { Verdict::NotAcceptable(route.produces) }
}

/// A media type without its parameters.
fn bare(kind: &[u8]) -> &[u8] {
    kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// The path in its one form: decoded, without slashes at its ends, and encoded again.
struct Rewritten {
    decoded: Arc<[u8]>,
    path: String,
    segments: usize,
}

impl Rewritten {
    fn new(decoded: &[u8]) -> Self {
        let mut trimmed = decoded;
        while let [b'/', rest @ ..] | [rest @ .., b'/'] = trimmed {
            trimmed = rest;
        }
        let mut path = String::with_capacity(trimmed.len() + 1);
        let mut segments = 0;
        for segment in trimmed.split(|byte| *byte == b'/') {
            path.push('/');
            path.push_str(&path::escape_segment(segment));
            segments += 1;
        }
        Self { decoded: decoded.into(), path, segments }
    }

    fn apply(self, request: &mut Request) {
        let with_query = match request.uri().query() {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path,
        };
        // It consists of characters that a path may have, and of a query that was one before.
        if let Ok(with_query) = PathAndQuery::try_from(with_query) {
            let mut parts = request.uri().clone().into_parts();
            parts.path_and_query = Some(with_query);
            if let Ok(uri) = Uri::from_parts(parts) {
                *request.uri_mut() = uri;
            }
        }
        request.extensions_mut().insert(DecodedPath(self.decoded));
    }
}

/// What is to become of a request that is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Serve,
    Redirect(String),
    BadRequest,
    /// Go's multiplexer knows no such path.
    NoPage,
    /// go-restful knows no such path.
    NoRoute,
    WrongMethod(String),
    NotAcceptable(Produces),
}

impl Verdict {
    fn redirect(location: &str, uri: &Uri) -> Self {
        Self::Redirect(match uri.query() {
            Some(query) => format!("{location}?{query}"),
            None => location.to_owned(),
        })
    }

    fn answer(self, method: &Method) -> Response {
        match self {
            Self::Serve | Self::NoPage => reply::no_page(),
            Self::Redirect(location) => redirect(&location, method),
            Self::BadRequest => reply::plain(StatusCode::BAD_REQUEST, "400 Bad Request"),
            Self::NoRoute => reply::no_route(),
            Self::WrongMethod(allowed) => reply::wrong_method(&allowed),
            Self::NotAcceptable(produces) => {
                let available = if produces == Produces::Json { "application/json" } else { "" };
                let text = format!("406: Not Acceptable\n\nAvailable representations: {available}");
                reply::plain(StatusCode::NOT_ACCEPTABLE, text)
            }
        }
    }
}

fn redirect(location: &str, method: &Method) -> Response {
    let body = match *method {
        Method::GET => format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", escape_html(location)),
        _ => String::new(),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(location) {
        headers.insert(header::LOCATION, location);
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    }
    response
}

async fn look_up(State(mux): State<Arc<Mux>>, mut request: Request, next: Next) -> Response {
    let (verdict, rewritten) = mux.verdict(request.method(), request.uri(), request.headers());
    // Where there is nothing, there is nothing to authorise.
    let Some(rewritten) = rewritten else { return verdict.answer(request.method()) };
    rewritten.apply(&mut request);
    request.extensions_mut().insert(verdict);
    next.run(request).await
}

/// `served` gets what is to be served; the rest is answered here.
pub(crate) fn dispatching(served: Router) -> Router {
    // One router inside another: the inner one looks at the path only after the layers around the outer one.
    Router::new().fallback_service(served).layer(from_fn(dispatch))
}

async fn dispatch(mut request: Request, next: Next) -> Response {
    match request.extensions_mut().remove::<Verdict>() {
        Some(Verdict::Serve) => next.run(request).await,
        Some(verdict) => verdict.answer(request.method()),
        None => reply::no_page(),
    }
}
