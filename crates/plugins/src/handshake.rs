//! The talk with a plugin that wants to register. Deadlines and texts are upstream's (v1.36).

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_protos::registration::registration_client::RegistrationClient;
use crablet_protos::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{Handler, Handlers, Plugin};

const DIAL: Duration = Duration::from_secs(10);
const INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(5);

/// A plugin that is in use.
pub struct Registered {
    pub plugin: Plugin,
    pub handler: Arc<dyn Handler>,
}

/// From the first word to the last. Whatever goes wrong, the plugin is told where that is possible.
pub async fn register(socket: &Path, handlers: &Handlers) -> Result<Registered, String> {
    let at = socket.display();
    let mut client = dial(socket).await.map_err(|error| {
        format!("RegisterPlugin error -- dial failed at socket {at}, err: failed to dial socket {at}, err: {error}")
    })?;
    let info = ask(&mut client).await.map_err(|error| {
        format!(
            "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {at}, err: {error}"
        )
    })?;
    let Some(handler) = handlers.get(&*info.r#type).cloned() else {
        let kind = &info.r#type;
        let text =
            format!("RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {at}");
        return Err(refuse(&mut client, socket, text).await);
    };
    let plugin = plugin_of(info, socket);
    if let Err(error) = handler.validate(&plugin) {
        let text = format!("RegisterPlugin error -- plugin validation failed with err: {error}");
        return Err(refuse(&mut client, socket, text).await);
    }
    if let Err(error) = handler.register(&plugin).await {
        let text = format!("RegisterPlugin error -- plugin registration failed with err: {error}");
        return Err(refuse(&mut client, socket, text).await);
    }
    if let Err(error) = notify(&mut client, true, "").await {
        // It does not know that it is in use, and would not serve.
        handler.deregister(&plugin).await;
        return Err(format!(
            "RegisterPlugin error -- failed to send registration status at socket {at}, err: {error}"
        ));
    }
    Ok(Registered { plugin, handler })
}

fn plugin_of(info: PluginInfo, socket: &Path) -> Plugin {
    let endpoint = match info.endpoint.is_empty() {
        true => socket.to_owned(),
        // Some say it as an address.
        false => PathBuf::from(info.endpoint.strip_prefix("unix://").unwrap_or(&info.endpoint)),
    };
    Plugin { name: info.name, endpoint, versions: info.supported_versions }
}

async fn dial(socket: &Path) -> Result<RegistrationClient<Channel>, String> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| connect(path.clone()));
    // The address is never dialled; gRPC wants a name for the other side, and sockets go by this one.
    let endpoint = Endpoint::from_static("http://localhost");
    match timeout(DIAL, endpoint.connect_with_connector(connector)).await {
        Ok(Ok(channel)) => Ok(RegistrationClient::new(channel)),
        Ok(Err(error)) => Err(root_of(&error)),
        Err(_) => Err("context deadline exceeded".to_owned()),
    }
}

async fn connect(path: PathBuf) -> io::Result<TokioIo<UnixStream>> {
    UnixStream::connect(path).await.map(TokioIo::new)
}

async fn ask(client: &mut RegistrationClient<Channel>) -> Result<PluginInfo, String> {
    match timeout(INFO, client.get_info(InfoRequest {})).await {
        Ok(Ok(info)) => Ok(info.into_inner()),
        Ok(Err(status)) => Err(text_of(&status)),
        Err(_) => Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned()),
    }
}

/// Gives the text back, for the log.
async fn refuse(client: &mut RegistrationClient<Channel>, socket: &Path, text: String) -> String {
    match notify(client, false, &text).await {
        Ok(()) => text,
        Err(error) => format!(
            "RegisterPlugin error -- failed to send error at socket {}, err: {text}: {error}",
            socket.display()
        ),
    }
}

async fn notify(
    client: &mut RegistrationClient<Channel>,
    registered: bool,
    text: &str,
) -> Result<(), String> {
    let status = RegistrationStatus { plugin_registered: registered, error: text.to_owned() };
    match timeout(NOTIFY, client.notify_registration_status(status)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(text_of(&status)),
        Err(_) => Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned()),
    }
}

fn text_of(status: &Status) -> String {
    match status.source() {
        Some(cause) => root_of(cause),
        None => format!("rpc error: code = {:?} desc = {}", status.code(), status.message()),
    }
}

fn root_of(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.last().unwrap_or(error).to_string()
}
