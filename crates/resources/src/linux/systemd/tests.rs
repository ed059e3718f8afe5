//! Against a stand-in at the other end of a socket.

use std::sync::{Arc, Mutex};

use crablet_model::cgroup::CgroupDriver;
use zbus::object_server::SignalEmitter;

use super::*;

/// Answers as systemd does, and writes down what it is asked.
#[derive(Clone, Default)]
struct StandIn {
    asked: Arc<Mutex<Vec<String>>>,
    /// What jobs end with; `done` when nothing is said.
    result: Arc<Mutex<Option<&'static str>>>,
}

impl StandIn {
    fn note(&self, text: String) {
        self.asked.lock().expect("the notes").push(text);
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("the notes"))
    }

    async fn job(&self, unit: &str, emitter: &SignalEmitter<'_>) -> OwnedObjectPath {
        let job = OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/7").expect("a path");
        let other = OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/6").expect("a path");
        let result = self.result.lock().expect("the result").unwrap_or("done");
        // The signal may come before the answer, and others in between.
        emitter.job_removed(6, other, "other.service", "failed").await.expect("a signal");
        emitter.job_removed(7, job.clone(), unit, result).await.expect("a signal");
        job
    }
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl StandIn {
    fn subscribe(&self) {
        self.note("Subscribe".to_string());
    }

    async fn start_transient_unit(
        &self,
        name: String,
        mode: String,
        properties: Vec<(String, zbus::OwnedVariant)>,
        _auxiliary: Vec<(String, Vec<(String, zbus::OwnedVariant)>)>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> zbus::fdo::Result<OwnedObjectPath> {
        let names: Vec<_> = properties.iter().map(|(name, _)| name.as_str()).collect();
        self.note(format!("StartTransientUnit {name} {mode} {}", names.join(" ")));
        Ok(self.job(&name, &emitter).await)
    }

    async fn stop_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> zbus::fdo::Result<OwnedObjectPath> {
        self.note(format!("StopUnit {name} {mode}"));
        Ok(self.job(&name, &emitter).await)
    }

    fn reset_failed_unit(&self, name: String) -> zbus::fdo::Result<()> {
        self.note(format!("ResetFailedUnit {name}"));
        Err(zbus::fdo::Error::Failed("not loaded".to_string()))
    }

    fn set_unit_properties(
        &self,
        name: String,
        runtime: bool,
        properties: Vec<(String, zbus::OwnedVariant)>,
    ) {
        let all: Vec<_> = properties.iter().map(|(name, value)| format!("{name}={}", **value)).collect();
        self.note(format!("SetUnitProperties {name} {runtime} {}", all.join(" ")));
    }

    #[zbus(property)]
    fn version(&self) -> String {
        "v252.6-1".to_string()
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: &str,
        result: &str,
    ) -> zbus::Result<()>;
}

/// Hanging up on a client.
#[derive(Default)]
struct HangUp {
    wanted: tokio::sync::Notify,
    done: tokio::sync::Notify,
}

/// Serves one connection after the other; each ends when that is wanted.
async fn serve(listener: tokio::net::UnixListener, stand_in: StandIn, hang_up: Arc<HangUp>) {
    while let Ok((stream, _)) = listener.accept().await {
        let stream = stream.into_std().expect("a stream");
        let connection = zbus::connection::Builder::unix_stream(stream)
            .server(zbus::Guid::generate())
            .p2p()
            .serve_at("/org/freedesktop/systemd1", stand_in.clone())
            .build()
            .await
            .expect("a connection");
        hang_up.wanted.notified().await;
        connection.close().await.expect("the end of a connection");
        hang_up.done.notify_one();
    }
}

#[tokio::test]
async fn slices_are_started_set_and_stopped_also_after_a_broken_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("bus");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    let (stand_in, hang_up) = (StandIn::default(), Arc::new(HangUp::default()));
    let server = tokio::spawn(serve(listener, stand_in.clone(), hang_up.clone()));

    let systemd = Systemd { socket: Some(socket), link: tokio::sync::Mutex::default() };
    let cgroup = Cgroup::new("/kubepods/burstable", CgroupDriver::Systemd);
    systemd.start(&cgroup, true).await.expect("a slice");
    assert_eq!(
        stand_in.taken(),
        [
            "Subscribe",
            "StartTransientUnit kubepods-burstable.slice replace Description Wants MemoryAccounting CPUAccounting \
             IOAccounting TasksAccounting DefaultDependencies",
        ]
    );
    let mut limits = CgroupLimits { cpu_shares: Some(1024), ..CgroupLimits::default() };
    systemd.set(&cgroup, &mut limits, true).await.expect("settings");
    assert_eq!(stand_in.taken(), ["SetUnitProperties kubepods-burstable.slice true CPUWeight=uint64 39"]);

    hang_up.wanted.notify_one();
    hang_up.done.notified().await;
    systemd.stop(&cgroup).await.expect("a new connection");
    assert_eq!(
        stand_in.taken(),
        [
            "Subscribe",
            "StopUnit kubepods-burstable.slice replace",
            "ResetFailedUnit kubepods-burstable.slice"
        ]
    );

    *stand_in.result.lock().expect("the result") = Some("failed");
    assert_eq!(
        systemd.start(&cgroup, true).await.expect_err("a failed job"),
        "error creating systemd unit `kubepods-burstable.slice`: got `failed`"
    );
    server.abort();
}

#[tokio::test]
async fn without_systemd_the_error_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let systemd = Systemd { socket: Some(folder.path().join("none")), link: tokio::sync::Mutex::default() };
    let error =
        systemd.start(&Cgroup::new("/kubepods", CgroupDriver::Systemd), true).await.expect_err("no systemd");
    assert_eq!(
        error,
        "unable to start unit \"kubepods.slice\": no connection to systemd: No such file or directory (os error 2); \
         without systemd, set `cgroupDriver: cgroupfs` here and in the container runtime"
    );
}

#[test]
fn versions_start_with_a_number() {
    for (text, number) in [("v245.4-1.fc32", 245), ("245", 245), ("\"252-1\"", 252), ("", 0), ("devel", 0)] {
        assert_eq!(version_number(text), number, "{text}");
    }
}
