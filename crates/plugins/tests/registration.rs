//! Plugins as processes know them: a socket, a service behind it, and what becomes of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crablet_plugins::{CSI_PLUGIN, Handler, Handlers, Plugin};
use crablet_protos::registration::registration_server::{Registration, RegistrationServer};
use crablet_protos::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tonic::{Request, Response, Status};

const DEADLINE: Duration = Duration::from_secs(20);

/// What a plugin was told: registered, error.
type Told = mpsc::UnboundedReceiver<(bool, String)>;

struct Service {
    info: PluginInfo,
    told: mpsc::UnboundedSender<(bool, String)>,
    takes_news: bool,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        let _ = self.told.send((status.plugin_registered, status.error));
        match self.takes_news {
            true => Ok(Response::new(RegistrationStatusResponse {})),
            false => Err(Status::internal("not now")),
        }
    }
}

fn info(kind: &str, name: &str, endpoint: &str) -> PluginInfo {
    PluginInfo {
        r#type: kind.to_owned(),
        name: name.to_owned(),
        endpoint: endpoint.to_owned(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

/// A plugin that serves until it is dropped; its socket stays behind, as after a kill.
struct Running {
    served: AbortHandle,
    told: Told,
}

impl Running {
    fn start(socket: &Path, info: PluginInfo, takes_news: bool) -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let service = RegistrationServer::new(Service { info, told: sender, takes_news });
        let listener = UnixListener::bind(socket).unwrap();
        let incoming = futures_util::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let server = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
        Self { served: tokio::spawn(server).abort_handle(), told }
    }

    async fn next(&mut self) -> (bool, String) {
        tokio::time::timeout(DEADLINE, self.told.recv()).await.unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.served.abort();
    }
}

/// Remembers what it was called for.
struct Recorder {
    calls: watch::Sender<Vec<String>>,
    refusals: Mutex<u32>,
}

impl Recorder {
    fn note(&self, call: &str, plugin: &Plugin) {
        let endpoint = plugin.endpoint.file_name().unwrap().to_string_lossy().into_owned();
        self.calls.send_modify(|calls| calls.push(format!("{call} {} {endpoint}", plugin.name)));
    }

    async fn wait_for(&self, wanted: &[&str]) {
        let mut calls = self.calls.subscribe();
        let done = calls.wait_for(|calls| calls == wanted);
        if tokio::time::timeout(DEADLINE, done).await.is_err() {
            panic!("wanted {wanted:?}, got {:?}", self.calls.borrow());
        }
    }
}

#[async_trait]
impl Handler for Recorder {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        if plugin.name == "invalid" { Err("I do not like it".to_owned()) } else { Ok(()) }
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        let refuse = {
            let mut refusals = self.refusals.lock().unwrap();
            let left = *refusals;
            *refusals = left.saturating_sub(1);
            left > 0
        };
        if refuse {
            return Err("not yet".to_owned());
        }
        self.note("register", plugin);
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.note("deregister", plugin);
    }
}

struct World {
    folder: tempfile::TempDir,
    handler: Arc<Recorder>,
    _tasks: JoinSet<()>,
}

impl World {
    fn start(refusals: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let handler =
            Arc::new(Recorder { calls: watch::Sender::new(Vec::new()), refusals: Mutex::new(refusals) });
        let mut world = Self { folder, handler, _tasks: JoinSet::new() };
        world.live();
        world
    }

    /// A life of the agent.
    fn live(&mut self) {
        let handlers: Handlers = [(CSI_PLUGIN, self.handler.clone() as Arc<dyn Handler>)].into();
        self._tasks = JoinSet::new();
        crablet_plugins::start(self.root(), handlers, async {}, &mut self._tasks);
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("registry")
    }

    fn socket(&self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

#[tokio::test]
async fn a_plugin_registers_and_deregisters_by_its_socket() {
    let world = World::start(0);
    let socket = world.socket("deep/er/d-reg.sock");
    let mut plugin = Running::start(&socket, info(CSI_PLUGIN, "d", "/somewhere/csi.sock"), true);
    assert_eq!(plugin.next().await, (true, String::new()));
    world.handler.wait_for(&["register d csi.sock"]).await;
    std::fs::remove_file(&socket).unwrap();
    world.handler.wait_for(&["register d csi.sock", "deregister d csi.sock"]).await;
}

#[tokio::test]
async fn an_empty_endpoint_is_the_socket_itself() {
    let world = World::start(0);
    let mut plugin = Running::start(&world.socket("d.sock"), info(CSI_PLUGIN, "d", ""), true);
    assert!(plugin.next().await.0);
    world.handler.wait_for(&["register d d.sock"]).await;
}

#[tokio::test]
async fn kinds_without_a_handler_and_invalid_plugins_are_told_why() {
    let world = World::start(0);
    for kind in ["DevicePlugin", "DRAPlugin", "Other"] {
        let socket = world.socket(&format!("{kind}.sock"));
        let mut plugin = Running::start(&socket, info(kind, "d", ""), true);
        let text = format!(
            "RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {}",
            socket.display()
        );
        assert_eq!(plugin.next().await, (false, text));
    }
    let mut plugin = Running::start(&world.socket("x.sock"), info(CSI_PLUGIN, "invalid", ""), true);
    let text = "RegisterPlugin error -- plugin validation failed with err: I do not like it";
    assert_eq!(plugin.next().await, (false, text.to_owned()));
}

#[tokio::test]
async fn a_refused_plugin_is_tried_again() {
    let world = World::start(2);
    let mut plugin = Running::start(&world.socket("d.sock"), info(CSI_PLUGIN, "d", ""), true);
    let text = "RegisterPlugin error -- plugin registration failed with err: not yet";
    assert_eq!(plugin.next().await, (false, text.to_owned()));
    assert_eq!(plugin.next().await, (false, text.to_owned()));
    assert_eq!(plugin.next().await, (true, String::new()));
}

#[tokio::test]
async fn a_plugin_that_does_not_take_the_good_news_is_not_used() {
    let world = World::start(0);
    let socket = world.socket("d.sock");
    let mut plugin = Running::start(&socket, info(CSI_PLUGIN, "d", ""), false);
    assert!(plugin.next().await.0);
    let mut calls = world.handler.calls.subscribe();
    let gone = calls
        .wait_for(|calls| calls.starts_with(&["register d d.sock".into(), "deregister d d.sock".into()]));
    tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_socket_made_anew_registers_anew() {
    let world = World::start(0);
    let socket = world.socket("d.sock");
    let mut plugin = Running::start(&socket, info(CSI_PLUGIN, "d", "/one.sock"), true);
    assert!(plugin.next().await.0);
    drop(plugin);
    std::fs::remove_file(&socket).unwrap();
    let mut plugin = Running::start(&socket, info(CSI_PLUGIN, "d", "/two.sock"), true);
    assert!(plugin.next().await.0);
    world.handler.wait_for(&["register d one.sock", "deregister d one.sock", "register d two.sock"]).await;
}

#[tokio::test]
async fn sockets_of_an_earlier_life_are_found_dead_or_alive() {
    let mut world = World::start(0);
    let dead = world.socket("dead.sock");
    drop(Running::start(&dead, info(CSI_PLUGIN, "dead", ""), true));
    let mut alive = Running::start(&world.socket("alive.sock"), info(CSI_PLUGIN, "alive", ""), true);
    assert!(alive.next().await.0);
    world.live();
    assert!(alive.next().await.0);
    world.handler.wait_for(&["register alive alive.sock", "register alive alive.sock"]).await;
    // The dead one comes back under its name.
    std::fs::remove_file(&dead).unwrap();
    let mut back = Running::start(&dead, info(CSI_PLUGIN, "dead", ""), true);
    assert!(back.next().await.0);
}
