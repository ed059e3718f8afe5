//! A program that knows the credentials: when it is run and what is kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use jiff::Timestamp;

use super::bearer;
use super::plugin::{self, Given};
use crate::kubeconfig::{Cluster, ExecPlugin};
use crate::tls::CertificateError;

/// Puts a client certificate and its key, both in PEM, to use.
pub type Install = Box<dyn Fn(&[u8], &[u8]) -> Result<(), CertificateError> + Send + Sync>;

pub struct Exec {
    plugin: ExecPlugin,
    cluster: Cluster,
    install: Install,
    state: Mutex<State>,
    /// One runs it, the others wait for what comes of it.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    known: Option<Known>,
    failures: u64,
    failed: String,
}

struct Known {
    header: Option<HeaderValue>,
    until: Option<Timestamp>,
}

impl Exec {
    pub fn new(plugin: ExecPlugin, cluster: &Cluster, install: Install) -> Arc<Self> {
        let (state, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { plugin, cluster: cluster.clone(), install, state, turn })
    }

    pub async fn header(exec: &Arc<Self>) -> Result<Option<HeaderValue>, String> {
        if let Some(header) = exec.known() {
            return Ok(header);
        }
        // A task of its own: a plugin may take longer than a caller has, and should not be begun anew by each.
        let (exec, failures) = (Arc::clone(exec), exec.state().failures);
        match tokio::spawn(async move { exec.renew(failures).await }).await {
            Ok(result) => result,
            Err(_) => Err("getting credentials: exec: the plugin's task has died".to_owned()),
        }
    }

    /// Forgets them, unless they have been renewed since.
    pub fn refused(&self, used: Option<&HeaderValue>) {
        let mut state = self.state();
        if state.known.as_ref().is_some_and(|known| known.header.as_ref() == used) {
            state.known = None;
        }
    }

    async fn renew(&self, failures: u64) -> Result<Option<HeaderValue>, String> {
        let _turn = self.turn.lock().await;
        if let Some(header) = self.known() {
            return Ok(header);
        }
        {
            // Whoever waited while another failed has got the same answer.
            let state = self.state();
            if state.failures > failures {
                return Err(state.failed.clone());
            }
        }
        let given = plugin::run(&self.plugin, &self.cluster).await.and_then(|given| self.take(given));
        let mut state = self.state();
        match given {
            Ok(known) => {
                let header = known.header.clone();
                state.known = Some(known);
                Ok(header)
            }
            Err(why) => {
                state.failures += 1;
                state.failed = format!("getting credentials: {why}");
                Err(state.failed.clone())
            }
        }
    }

    fn take(&self, given: Given) -> Result<Known, String> {
        if let Some((certificate, key)) = &given.certificate {
            let installed = (self.install)(certificate.as_bytes(), key.as_bytes());
            installed.map_err(|error| format!("exec plugin: {error}"))?;
        }
        let header = given.token.as_deref().map(bearer).transpose()?;
        Ok(Known { header, until: given.until })
    }

    /// The outer `Option` is whether they are good still.
    fn known(&self) -> Option<Option<HeaderValue>> {
        let state = self.state();
        let known = state.known.as_ref()?;
        let good = known.until.is_none_or(|until| Timestamp::now() < until);
        good.then(|| known.header.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
