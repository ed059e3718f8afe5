//! All of it behind the port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crablet_apiserver::{ApiError, ApiServer, Call, ErrorKind, Lane, Verb, WatchCall, WatchStream};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::{self, Instant};

use crate::credentials::Credentials;
use crate::kubeconfig::{Kubeconfig, KubeconfigError};
use crate::limit::Limit;
use crate::request::{self, Subject};
use crate::tls::{CertificateError, ClientIdentity, Tls};
use crate::transport::{Address, Dialler, Pings, Pool, Slot};
use crate::watch;

/// Until a watch has begun.
const WATCH_BEGIN: Duration = Duration::from_secs(30);
/// As client-go: how often a call is tried again because the server asks for it.
const MAX_RETRIES: u32 = 10;
/// From this failure of a heartbeat in a row on, its connection is no longer trusted.
const DISTRUST: u32 = 2;
/// A call that had to wait longer is told of.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// How a client presents itself and how much it may ask. Rates are per second: negative for no limit, zero for
/// client-go's default.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    pub user_agent: String,
    pub qps: i32,
    pub burst: i32,
    pub event_qps: i32,
    pub event_burst: i32,
}

/// The API server of a kubeconfig. Copies share connections and limits.
#[derive(Clone)]
pub struct ApiClient {
    inner: Arc<Inner>,
}

struct Inner {
    server: String,
    address: Address,
    user_agent: HeaderValue,
    credentials: Credentials,
    wires: Arc<Wires>,
    main_limit: Limit,
    event_limit: Limit,
    failed_heartbeats: AtomicU32,
}

/// Connections, and who we are on them.
struct Wires {
    identity: Arc<ClientIdentity>,
    heartbeat: Arc<Pool>,
    /// Events go here too, under a limit of their own.
    main: Arc<Pool>,
    objects: Arc<Pool>,
}

impl Wires {
    fn install(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        if self.identity.replace(certificate, key)? {
            for pool in [&self.heartbeat, &self.main, &self.objects] {
                pool.retire();
            }
        }
        Ok(())
    }
}

impl ApiClient {
    /// Dials nothing yet.
    pub fn new(kubeconfig: &Kubeconfig, settings: ClientSettings) -> Result<Self, KubeconfigError> {
        Self::with_pings(kubeconfig, settings, Pings::default())
    }

    pub(crate) fn with_pings(
        kubeconfig: &Kubeconfig,
        settings: ClientSettings,
        pings: Pings,
    ) -> Result<Self, KubeconfigError> {
        let wrong = |why: String| kubeconfig.error(why);
        kubeconfig.check_credentials()?;
        let (cluster, user) = (&kubeconfig.cluster, &kubeconfig.user);
        let certificates = cluster.insecure || cluster.authority.is_some() || user.certificate.is_some();
        let address = Address::parse(&cluster.server, certificates).map_err(wrong)?;
        let identity = Arc::new(ClientIdentity::of(user).map_err(|error| wrong(error.to_string()))?);
        let tls = address.secure.then(|| Tls::new(cluster, address.host(), Arc::clone(&identity)));
        let tls = tls.transpose().map_err(wrong)?;
        let dialler = Arc::new(Dialler { address: address.clone(), tls, pings });
        let pool = || Pool::new(Arc::clone(&dialler));
        let wires = Arc::new(Wires { identity, heartbeat: pool(), main: pool(), objects: pool() });
        let installer = Arc::clone(&wires);
        let install = Box::new(move |certificate: &[u8], key: &[u8]| installer.install(certificate, key));
        let user_agent = HeaderValue::from_str(&settings.user_agent)
            .map_err(|_| wrong("the user agent is no header".to_owned()))?;
        let inner = Inner {
            server: cluster.server.clone(),
            address,
            user_agent,
            credentials: Credentials::new(kubeconfig, install).map_err(wrong)?,
            wires,
            main_limit: Limit::new(settings.qps, settings.burst),
            event_limit: Limit::new(settings.event_qps, settings.event_burst),
            failed_heartbeats: AtomicU32::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// As the kubeconfig has it.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// A certificate with its key, in one PEM. It is shown from now on, and connections that were made with another are
    /// left: watches on them end, calls go on to their end.
    pub fn set_client_certificate(&self, pem: &[u8]) -> Result<(), CertificateError> {
        self.inner.wires.install(pem, pem)
    }
}

impl Inner {
    fn pool(&self, lane: Lane) -> &Arc<Pool> {
        match lane {
            Lane::Heartbeat => &self.wires.heartbeat,
            Lane::Main | Lane::Events => &self.wires.main,
            Lane::Objects => &self.wires.objects,
        }
    }

    fn subject(&self, verb: Verb, path: &str) -> Subject {
        Subject { verb, url: self.address.url(path) }
    }

    /// A token of the lane's bucket.
    async fn throttle(&self, lane: Lane, subject: &Subject, deadline: Instant) -> Result<(), ApiError> {
        let limit = match lane {
            Lane::Heartbeat | Lane::Objects => return Ok(()),
            Lane::Main => &self.main_limit,
            Lane::Events => &self.event_limit,
        };
        let begin = Instant::now();
        time::timeout_at(deadline, limit.token()).await.map_err(|_| {
            let why = "client rate limiter Wait returned an error: context deadline exceeded";
            subject.error(ErrorKind::TimedOut, why)
        })?;
        if begin.elapsed() > LONG_WAIT {
            tracing::debug!(delay = ?begin.elapsed(), url = subject.url, "Waited before sending request");
        }
        Ok(())
    }

    /// One request and the beginning of its answer. Once more if the first certainly never got there.
    async fn exchange(
        &self,
        subject: &Subject,
        lane: Lane,
        path: &str,
        body: &Bytes,
    ) -> Result<(Slot, Response<Incoming>, Option<HeaderValue>), ApiError> {
        let credentials = self.credentials.header().await;
        let authorization = credentials.map_err(|why| subject.error(ErrorKind::Unreachable, &why))?;
        let outgoing = request::outgoing(subject.verb, path, body, &self.user_agent, authorization.clone());
        let mut again = true;
        loop {
            let slot = self.pool(lane).slot().await;
            let mut slot = slot.map_err(|error| subject.undialled(&error))?;
            match slot.send(&outgoing).await {
                Ok(response) => return Ok((slot, response, authorization)),
                Err(lost) if lost.unsent && again => again = false,
                Err(lost) => return Err(subject.lost(&lost)),
            }
        }
    }

    async fn attempts(&self, subject: &Subject, call: &Call, deadline: Instant) -> Result<Bytes, ApiError> {
        let (mut retries, mut refreshed) = (0, false);
        loop {
            self.throttle(call.lane, subject, deadline).await?;
            let (slot, response, used) =
                Box::pin(self.exchange(subject, call.lane, &call.path, &call.body)).await?;
            let (head, body) = response.into_parts();
            let body = request::read(subject, body).await?;
            slot.done();
            if head.status.is_success() {
                return Ok(body);
            }
            let error = subject.refused(head.status, &head.headers, &body);
            if head.status == StatusCode::UNAUTHORIZED
                && self.credentials.refused(used.as_ref())
                && !refreshed
            {
                refreshed = true;
                continue;
            }
            let Some(wait) = request::retry_after(head.status, &head.headers) else { return Err(error) };
            if retries == MAX_RETRIES || Instant::now() + wait >= deadline {
                return Err(error);
            }
            retries += 1;
            time::sleep(wait).await;
        }
    }

    async fn begin(&self, subject: &Subject, watch: &WatchCall, path: &str) -> Result<WatchStream, ApiError> {
        self.throttle(watch.lane, subject, Instant::now() + WATCH_BEGIN).await?;
        let none = Bytes::new();
        let (slot, response, used) = Box::pin(self.exchange(subject, watch.lane, path, &none)).await?;
        let (head, body) = response.into_parts();
        if head.status == StatusCode::OK {
            return Ok(watch::events(subject.clone(), path, slot, body));
        }
        if head.status == StatusCode::UNAUTHORIZED {
            self.credentials.refused(used.as_ref());
        }
        let body = request::read(subject, body).await?;
        slot.done();
        Err(subject.refused(head.status, &head.headers, &body))
    }

    /// A connection on which two heartbeats in a row got no answer is closed, so that the next dials anew.
    fn heard(&self, lane: Lane, result: &Result<Bytes, ApiError>) {
        if lane != Lane::Heartbeat {
            return;
        }
        let unanswered =
            |error: &ApiError| matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut);
        if !result.as_ref().is_err_and(unanswered) {
            self.failed_heartbeats.store(0, Ordering::Relaxed);
        } else if self.failed_heartbeats.fetch_add(1, Ordering::Relaxed) + 1 >= DISTRUST {
            self.wires.heartbeat.cut();
        }
    }
}

#[async_trait]
impl ApiServer for ApiClient {
    async fn call(&self, call: Call) -> Result<Bytes, ApiError> {
        let inner = &self.inner;
        let deadline = Instant::now() + call.deadline;
        let subject = inner.subject(call.verb, &call.path);
        let attempts = Box::pin(inner.attempts(&subject, &call, deadline));
        let result = time::timeout_at(deadline, attempts).await.unwrap_or_else(|_| Err(subject.timed_out()));
        inner.heard(call.lane, &result);
        result
    }

    async fn watch(&self, watch: WatchCall) -> Result<WatchStream, ApiError> {
        let path = watch::path(&watch.path);
        let subject = self.inner.subject(Verb::Get, &path);
        let begin = Box::pin(self.inner.begin(&subject, &watch, &path));
        time::timeout(WATCH_BEGIN, begin).await.unwrap_or_else(|_| Err(subject.timed_out()))
    }
}
