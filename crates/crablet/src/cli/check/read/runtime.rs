//! The runtime's answers. All questions are asked at once, and each has a deadline of its own.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crablet_cri::Runtime as _;
use crablet_cri::client::preflight::Description;
use crablet_cri::client::{CriClient, Timeouts};
use crablet_cri::{CriError, ErrorKind};
use serde_json::Value;

use super::super::facts::{Answers, Cni, Read, Runtime, Socket};
use super::machine::names;
use super::{LIMIT, failed};

/// Where runtimes put their sockets when nobody says otherwise.
const USUAL: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
];

pub fn read(endpoint: &str, image_endpoint: Option<&str>) -> Read<Runtime> {
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    let socket = socket(path);
    let answers = match socket {
        Socket::Here => Some(answers(endpoint, image_endpoint)?),
        _ => None,
    };
    let others = USUAL.map(PathBuf::from).into_iter().filter(|other| other != path);
    Ok(Runtime { socket, other_sockets: others.filter(|other| is_socket(other)).collect(), answers })
}

fn socket(path: &Path) -> Socket {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_socket() => Socket::Here,
        Ok(_) => Socket::SomethingElse,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Socket::Missing,
        Err(error) => Socket::Unreadable(error.to_string()),
    }
}

fn is_socket(path: &Path) -> bool {
    matches!(socket(path), Socket::Here)
}

fn answers(endpoint: &str, image_endpoint: Option<&str>) -> Read<Answers> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let connect =
            |endpoint: &str| CriClient::new(endpoint, Timeouts { request: LIMIT }, None).map_err(failed);
        let client = connect(endpoint)?;
        let images = connect(image_endpoint.unwrap_or(endpoint))?;
        Ok(ask(&client, &images).await)
    })
}

async fn ask(client: &CriClient, images: &CriClient) -> Answers {
    let described = async {
        let description = client.describe().await;
        let sandbox_image = match description.as_ref().ok().and_then(sandbox_image) {
            Some(image) => {
                let found = images.image_status(&image, None).await;
                Some((image, found.map(|found| found.is_some())))
            }
            None => None,
        };
        (description, sandbox_image)
    };
    // A second question waits for the first: together they have the time of one.
    let described =
        async { tokio::time::timeout(LIMIT, described).await.unwrap_or_else(|_| (Err(late()), None)) };
    let events = async { tokio::time::timeout(LIMIT, events(client)).await.unwrap_or_else(|_| Err(late())) };
    let (version, (description, sandbox_image), cgroup_driver, image_filesystems, events) =
        tokio::join!(client.version(), described, client.cgroup_driver(), images.image_filesystems(), events);
    let cni = description.as_ref().ok().and_then(cni);
    Answers { version, description, cgroup_driver, image_filesystems, events, sandbox_image, cni }
}

fn late() -> CriError {
    CriError::new(ErrorKind::DeadlineExceeded, "no answer in time")
}

/// containerd 1.7 has one queue for all subscribers: to ask would take an event away from a running agent.
async fn events(client: &CriClient) -> Result<(), CriError> {
    let version = client.version().await?;
    if version.runtime_name == "containerd"
        && version.runtime_version.trim_start_matches('v').starts_with("1.7.")
    {
        return Ok(());
    }
    client.events().await.map(drop)
}

/// containerd and CRI-O show their configuration, each in its own form; a runtime that does not is asked no further.
fn configuration(description: &Description) -> Option<Value> {
    serde_json::from_str(description.info.get("config")?).ok()
}

/// containerd up to 1.7 and CRI-O name it; containerd 2 does not.
fn sandbox_image(description: &Description) -> Option<String> {
    let config = configuration(description)?;
    let image = config.get("sandboxImage").and_then(Value::as_str)?;
    (!image.is_empty()).then(|| image.to_owned())
}

fn cni(description: &Description) -> Option<Cni> {
    let config = configuration(description)?;
    let cni = config.get("cni")?;
    let folder = |name: &str| cni.get(name)?.as_str().filter(|text| !text.is_empty()).map(PathBuf::from);
    let configuration_dir = folder("confDir")?;
    let first = cni.get("binDirs").and_then(|folders| folders.get(0)?.as_str()).map(PathBuf::from);
    let plugin_dir = folder("binDir").or(first)?;
    let is_configuration =
        |name: &String| [".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end));
    let configurations =
        names(&configuration_dir).map(|names| names.into_iter().filter(is_configuration).collect());
    Some(Cni { configurations, configuration_dir, plugins: names(&plugin_dir), plugin_dir })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(config: &str) -> Description {
        Description { info: [("config".to_owned(), config.to_owned())].into(), ..Description::default() }
    }

    #[test]
    fn folders_and_the_sandbox_image_come_from_the_runtimes_own_words() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("10-net.conflist"), "{}").expect("a file");
        fs::write(folder.path().join("README"), "").expect("a file");
        let path = folder.path().to_str().expect("a path");
        let old = format!(r#"{{"cni":{{"binDir":"/nowhere","confDir":"{path}"}},"sandboxImage":"pause:1"}}"#);
        let new = format!(r#"{{"cni":{{"binDir":"","binDirs":["/nowhere"],"confDir":"{path}"}}}}"#);
        for (config, image) in [(old, Some("pause:1".to_owned())), (new, None)] {
            let description = described(&config);
            assert_eq!(sandbox_image(&description), image);
            let cni = cni(&description).expect("folders");
            assert_eq!(cni.configurations, Some(vec!["10-net.conflist".to_owned()]));
            assert_eq!((cni.plugin_dir, cni.plugins), (PathBuf::from("/nowhere"), None));
        }
    }

    #[test]
    fn a_runtime_that_says_something_else_is_asked_no_further() {
        for config in
            ["", "not json", "[]", "{}", r#"{"cni":7,"sandboxImage":[]}"#, r#"{"cni":{"confDir":""}}"#]
        {
            assert_eq!(cni(&described(config)), None, "{config}");
            assert_eq!(sandbox_image(&described(config)), None, "{config}");
        }
    }

    #[test]
    fn a_name_without_a_socket_is_not_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("a file");
        for (path, socket) in [(file, Socket::SomethingElse), (folder.path().join("none"), Socket::Missing)] {
            let runtime = read(&format!("unix://{}", path.display()), None).expect("facts");
            assert_eq!((runtime.socket, runtime.answers), (socket, None));
        }
    }
}
