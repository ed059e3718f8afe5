//! The CRI proxy in front of a real containerd: what is done through it is done, and is on record.

use std::time::Duration;

use crablet_cri::client::{CriClient, Timeouts};
use crablet_cri::{CriError, Runtime};
use crablet_model::PodUid;
use crablet_model::runtime::{ContainerConfig, ContainerSecurity, ContainerState, SandboxConfig};
use crablet_proxy::{Action, CriOptions, CriProxy, Failure, Matcher, Outcome, Phase, Rule, Salt, grpc};
use crablet_testbed::{Containerd, Flavor, StartOptions, images};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const SECRET: &str = "s3cret-of-the-container";

fn sandbox_config() -> SandboxConfig {
    SandboxConfig {
        name: "web".into(),
        namespace: "default".into(),
        uid: PodUid::new("uid-1"),
        attempt: 0,
        hostname: "web".into(),
        log_directory: String::new(),
        dns: Default::default(),
        port_mappings: Vec::new(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        annotations: Default::default(),
        cgroup_parent: String::new(),
        runtime_handler: String::new(),
        sysctls: Default::default(),
        namespaces: Default::default(),
        privileged: false,
        run_as_user: None,
        run_as_group: None,
        supplemental_groups: Vec::new(),
        groups_policy: Default::default(),
        seccomp: Default::default(),
        selinux: None,
        resources: Default::default(),
        overhead: Default::default(),
    }
}

fn container_config(image: &str) -> ContainerConfig {
    ContainerConfig {
        name: "main".into(),
        attempt: 0,
        image_ref: image.into(),
        user_specified_image: images::BUSYBOX.into(),
        command: vec!["sleep".into(), "100000".into()],
        args: Vec::new(),
        working_dir: String::new(),
        env: vec![("PASSWORD".into(), SECRET.into())],
        mounts: Vec::new(),
        devices: Vec::new(),
        labels: Default::default(),
        annotations: Default::default(),
        log_path: String::new(),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: Default::default(),
        hugepage_limits: Vec::new(),
        memory_swap_limit: 0,
        unified: Default::default(),
        security: ContainerSecurity::default(),
        stop_signal: None,
    }
}

/// A pod's whole life, through `client`.
async fn live(client: &CriClient, direct: &CriClient) -> Result<(), CriError> {
    assert_eq!(client.version().await?, direct.version().await?);
    assert_eq!(client.status().await?, direct.status().await?);
    let image = client.image_status(images::BUSYBOX, None).await?.expect("it was imported");
    assert_eq!(direct.image_status(images::BUSYBOX, None).await?.as_ref(), Some(&image));

    let sandbox = client.run_sandbox(&sandbox_config()).await?;
    assert_eq!(client.sandbox_status(&sandbox).await?, direct.sandbox_status(&sandbox).await?);
    let container =
        client.create_container(&sandbox, &container_config(&image.id), &sandbox_config()).await?;
    client.start_container(&container).await?;
    let status = client.container_status(&container).await?;
    assert!(matches!(status.state, ContainerState::Running { .. }), "{status:?}");
    assert_eq!(status, direct.container_status(&container).await?);
    client.stop_container(&container, Duration::ZERO).await?;
    client.remove_container(&container).await?;
    client.stop_sandbox(&sandbox).await?;
    client.remove_sandbox(&sandbox).await?;
    assert!(direct.list_sandboxes(None).await?.is_empty());
    Ok(())
}

#[test]
fn a_pod_lives_through_the_proxy_and_leaves_its_story() {
    for flavor in Flavor::under_test() {
        let containerd = Containerd::start(StartOptions::new(flavor))
            .unwrap_or_else(|error| panic!("{}: {error:#}", flavor.name()));
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut options =
            CriOptions::new(folder.path().join("proxy.sock"), containerd.scratch().socket(), &log);
        options.salt = Salt::new("test");
        let proxy = CriProxy::start_with(&options).unwrap();
        let failure = Failure::grpc(grpc::UNAVAILABLE, "bad day");
        let rule = Rule::new(Matcher::method("RunPodSandbox").pod("web"), Action::FailAfter(failure));
        proxy.rules().add(rule.first(1));

        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = CriClient::new(&proxy.endpoint(), Timeouts::default(), None).unwrap();
            let direct = CriClient::new(&containerd.endpoint(), Timeouts::default(), None).unwrap();
            // It was made all the same, which is what this action is for.
            let error = client.run_sandbox(&sandbox_config()).await.unwrap_err();
            assert_eq!(error.message, "bad day");
            let made = direct.list_sandboxes(None).await.unwrap();
            assert_eq!(made.len(), 1, "{}", flavor.name());
            direct.stop_sandbox(&made[0].id).await.unwrap();
            direct.remove_sandbox(&made[0].id).await.unwrap();

            let events = client.events().await;
            live(&client, &direct).await.unwrap_or_else(|error| panic!("{}: {error}", flavor.name()));
            // Debian's has no event stream, and the proxy must not invent one.
            assert_eq!(events.is_ok(), flavor == Flavor::Pinned, "{}", flavor.name());
            if events.is_ok() {
                proxy
                    .record()
                    .wait("an event of the container's start", SOON, |line| {
                        let kind = |response: &Value| response["container_event_type"].clone();
                        line.phase == Phase::Message
                            && line.response.as_ref().map(kind) == Some("CONTAINER_STARTED_EVENT".into())
                    })
                    .unwrap();
            }
        });
        check_record(&proxy);
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(!text.contains(SECRET), "{text}");
        assert!(text.contains(&Salt::new("test").hash(SECRET.as_bytes())), "{text}");
        drop(proxy);
        containerd.stop().unwrap();
    }
}

fn check_record(proxy: &CriProxy) {
    let lines = proxy.record().lines();
    let methods: Vec<(&str, Option<Outcome>)> = lines
        .iter()
        .filter(|line| line.phase == Phase::Call && line.method.ends_with("PodSandbox"))
        .map(|line| (line.method.as_str(), line.outcome))
        .collect();
    let answered = |method| (method, Some(Outcome::Answered));
    assert_eq!(
        methods,
        [
            ("RunPodSandbox", Some(Outcome::FailedAfter)),
            answered("RunPodSandbox"),
            answered("StopPodSandbox"),
            answered("RemovePodSandbox"),
        ]
    );
    let created = lines.iter().find(|line| line.method == "CreateContainer").unwrap();
    let request = created.request.as_ref().unwrap();
    assert_eq!(request["config"]["metadata"]["name"], "main");
    assert_eq!(request["sandbox_config"]["metadata"]["name"], "web");
    assert_eq!((created.code, created.message.as_deref()), (Some(0), None));
    // Whatever containerd says, its fields have names.
    for line in lines.iter().filter(|line| line.outcome == Some(Outcome::Answered)) {
        let text = serde_json::to_string(&**line).unwrap();
        assert!(!text.contains("\"#"), "{text}");
    }
}
