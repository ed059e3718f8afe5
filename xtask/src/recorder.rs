//! `--record`: proxies between a kubelet and its partners that write down every call.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use crablet_proxy::{ApiOptions, ApiProxy, CriProxy, Identity};
use crablet_testbed::cluster::{Cluster, FRONT_PROXY, pki};
use crablet_testbed::{Containerd, say};

/// Records for as long as it lives.
pub struct Recorder {
    cri: CriProxy,
    api: Option<ApiProxy>,
}

impl Recorder {
    /// Between a kubelet and its runtime; the calls go into `<folder>/cri.jsonl`.
    pub fn of_runtime(containerd: &Containerd, folder: &Path) -> Result<Recorder> {
        let scratch = containerd.scratch();
        let log = folder.join("cri.jsonl");
        say::note(format!("recording calls to the runtime in `{}`", log.display()));
        let cri = CriProxy::start(&scratch.dir().join("recorder.sock"), &scratch.socket(), &log)?;
        Ok(Recorder { cri, api: None })
    }

    /// The same, and between the kubelet and the API server: `<folder>/api.jsonl`.
    pub fn of_node(cluster: &Cluster, folder: &Path) -> Result<Recorder> {
        let recorder = Recorder::of_runtime(cluster.containerd(), folder)?;
        let log = folder.join("api.jsonl");
        say::note(format!("recording requests to the API server in `{}`", log.display()));
        let address = IpAddr::from(cluster.network().gateway());
        let pki = cluster.pki();
        let ca = pki.cluster.certificate().as_bytes().to_vec();
        let serving = identity(pki.cluster.server("recorder", &[], &[address])?);
        let front_proxy = identity(pki.front_proxy.client(FRONT_PROXY, None)?);
        let server = cluster.server();
        let upstream = server.trim_start_matches("https://");
        let mut options = ApiOptions::new(serving, ca.clone(), upstream, ca, front_proxy, log);
        options.listen = (address, 0).into();
        Ok(Recorder { api: Some(ApiProxy::start(&options)?), ..recorder })
    }

    /// For the kubelet's runtime endpoint.
    pub fn runtime_endpoint(&self) -> String {
        self.cri.endpoint()
    }

    /// For the kubelet's kubeconfig.
    pub fn api_server(&self) -> Option<String> {
        self.api.as_ref().map(|api| format!("https://{}", api.address()))
    }
}

fn identity(identity: pki::Identity) -> Identity {
    Identity { certificate: identity.certificate.into_bytes(), key: identity.key.into_bytes() }
}
