//! Certificates of pods: joins the room that gets them to the volumes that show them.

use std::sync::Arc;

use crablet_apiserver::ApiServer;
use crablet_certificates::pods::{PodCertificates, PodCertificatesSetup, Wanted};
use crablet_config::Settings;
use crablet_host::Clock;
use crablet_model::PodUid;
use crablet_pods::events::EventSink;
use crablet_volumes::{CertificateWanted, Credentials, NoCertificate};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

const GATE: &str = "PodCertificateRequest";

/// Nothing without an API server, or while the gate is closed.
pub fn pod_certificates(
    settings: &Settings,
    api: Option<Arc<dyn ApiServer>>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    seed: u64,
    tasks: &mut JoinSet<()>,
) -> Option<Arc<dyn crablet_volumes::PodCertificates>> {
    let api = api.filter(|_| settings.feature_gates.enabled(GATE))?;
    let setup = PodCertificatesSetup {
        api,
        node_name: settings.node_name.clone(),
        clock,
        events: Box::new(move |event| events.emit(event)),
        seed,
    };
    Some(Arc::new(OfPods(PodCertificates::start(setup, tasks))))
}

struct OfPods(Arc<PodCertificates>);

impl crablet_volumes::PodCertificates for OfPods {
    fn credentials(&self, wanted: &CertificateWanted<'_>) -> Result<Credentials, NoCertificate> {
        let projection = wanted.projection;
        let wanted = Wanted {
            pod: wanted.pod.clone(),
            service_account: wanted.service_account.to_owned(),
            volume: wanted.volume.to_owned(),
            source: wanted.source,
            signer: projection.signer_name.clone(),
            key_type: projection.key_type.clone(),
            max_expiration_seconds: projection.max_expiration_seconds,
            annotations: projection.user_annotations.clone().unwrap_or_default(),
        };
        match self.0.bundle(wanted) {
            Ok(bundle) => Ok(Credentials { key: bundle.key, chain: bundle.chain }),
            Err(lacking) => Err(NoCertificate { text: lacking.text, for_good: lacking.for_good }),
        }
    }

    fn forget(&self, pod: &PodUid) {
        self.0.forget(pod);
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.0.changes()
    }
}
