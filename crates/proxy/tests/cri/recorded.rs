//! What the record says.

use crablet_protos::cri::{
    AuthConfig, ContainerConfig, ContainerEventResponse, ContainerEventType, ContainerMetadata,
    CreateContainerRequest, KeyValue, PodSandboxConfig, PodSandboxMetadata, PullImageRequest,
    PullImageResponse,
};
use crablet_proxy::{Phase, Salt, Values};
use prost::Message;
use serde_json::{Value, json};

use super::support::*;

const CREATE: &str = "/runtime.v1.RuntimeService/CreateContainer";
const PULL: &str = "/runtime.v1.ImageService/PullImage";

fn create() -> Vec<u8> {
    let env = KeyValue { key: "TOKEN".into(), value: b"s3cret-env".to_vec() };
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".into(), attempt: 1 }),
        args: vec!["--token=s3cret-env".into()],
        envs: vec![env],
        ..Default::default()
    };
    let metadata = PodSandboxMetadata { name: "web".into(), ..Default::default() };
    let sandbox = PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    CreateContainerRequest {
        pod_sandbox_id: "abc".into(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    }
    .encode_to_vec()
}

async fn answered(bed: &mut Bed, path: &str, request: &[u8], answer: &[u8]) {
    let client = bed.client().await;
    let call = client.send(path, request).await;
    bed.runtime.next().await.answer(answer).await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
}

fn lines(bed: &Bed) -> Vec<Value> {
    bed.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_call_is_one_line_and_is_there_with_its_answer() {
    let mut bed = Bed::start();
    answered(&mut bed, CREATE, &create(), &[0x0a, 1, b'c', 0xa0, 0x38, 5]).await;
    let lines = lines(&bed);
    assert_eq!(lines.len(), 1);
    let mut line = lines[0].clone();
    for changing in ["time", "duration_ms"] {
        assert!(line.as_object_mut().unwrap().remove(changing).is_some());
    }
    let hash = Salt::new("test").hash(b"s3cret-env");
    let expected = json!({
        "call": 1,
        "phase": "call",
        "service": "runtime.v1.RuntimeService",
        "method": "CreateContainer",
        "request": {
            "pod_sandbox_id": "abc",
            "config": {
                "metadata": { "name": "main", "attempt": 1 },
                "args": [format!("--token={hash}")],
                "envs": [{ "key": "TOKEN", "value": hash }],
            },
            "sandbox_config": { "metadata": { "name": "web" } },
        },
        "response": { "container_id": "c", "#900": 5 },
        "code": 0,
        "outcome": "answered",
    });
    assert_eq!(line, expected);
    // Memory has the same.
    assert_eq!(serde_json::to_value(&*bed.record.lines()[0]).unwrap(), lines[0]);
    assert_eq!((bed.record.last_call(), bed.record.forgotten(), bed.record.problem()), (1, 0, None));
}

#[tokio::test]
async fn a_stream_is_a_line_for_each_message() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let call = client.send(EVENTS, &[]).await;
    let mut seen = bed.runtime.next().await;
    let mut stream = seen.begin();
    for kind in [ContainerEventType::ContainerCreatedEvent, ContainerEventType::ContainerStartedEvent] {
        let event = ContainerEventResponse {
            container_id: "c".into(),
            container_event_type: kind as i32,
            ..Default::default()
        };
        stream.send(&event.encode_to_vec()).await;
    }
    stream.end();
    call.reply().await.unwrap();
    let lines = bed.record.lines();
    let shown: Vec<_> = lines.iter().map(|line| (line.call, line.phase, line.number)).collect();
    let message = |number| (1, Phase::Message, Some(number));
    assert_eq!(shown, [(1, Phase::Start, None), message(1), message(2), (1, Phase::End, None)]);
    assert_eq!(lines[0].request, Some(json!({})));
    assert_eq!(lines[1].response, Some(json!({ "container_id": "c" })));
    let started = json!({ "container_id": "c", "container_event_type": "CONTAINER_STARTED_EVENT" });
    assert_eq!(lines[2].response, Some(started));
    assert_eq!((lines[3].code, lines[3].response.clone()), (Some(0), Some(json!({ "messages": 2 }))));
}

#[tokio::test]
async fn no_secret_is_ever_written() {
    for values in [Values::Hashed, Values::Shown] {
        let mut bed = Bed::start_with(|options| options.values = values);
        let auth = AuthConfig {
            username: "robot".into(),
            password: "s3cret-pw".into(),
            auth: "s3cret-auth".into(),
            identity_token: "s3cret-id".into(),
            registry_token: "s3cret-reg".into(),
            ..Default::default()
        };
        let pull = PullImageRequest { auth: Some(auth), ..Default::default() }.encode_to_vec();
        let pulled = PullImageResponse { image_ref: "sha256:1".into() }.encode_to_vec();
        answered(&mut bed, PULL, &pull, &pulled).await;
        answered(&mut bed, CREATE, &create(), &[]).await;
        let log = bed.log();
        let secrets = if values == Values::Shown { vec!["s3cret-pw", "s3cret-auth"] } else { vec!["s3cret"] };
        for secret in secrets.into_iter().chain(["s3cret-id", "s3cret-reg"]) {
            assert!(!log.contains(secret), "{log}");
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!log.contains(&hex), "{log}");
        }
        assert!(log.contains("robot"));
        assert_eq!(log.contains("s3cret-env"), values == Values::Shown);
    }
}

#[tokio::test]
async fn compressed_messages_pass_and_are_called_so() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let mut body = frame(b"not readable").to_vec();
    body[0] = 1;
    let call = client.send_with(VERSION, body.clone().into(), headers([("grpc-encoding", "gzip")])).await;
    let seen = bed.runtime.next().await;
    assert_eq!((seen.body.clone(), &seen.headers["grpc-encoding"]), (body, &"gzip".parse().unwrap()));
    seen.answer(b"").await;
    call.reply().await.unwrap();
    assert_eq!(lines(&bed)[0]["request"], json!({ "compressed": "12 bytes" }));
}

#[tokio::test]
async fn memory_is_bounded_and_says_so() {
    let mut bed = Bed::start_with(|options| options.kept = 2);
    for _ in 0..5 {
        answered(&mut bed, VERSION, &[], &[]).await;
    }
    let kept: Vec<u64> = bed.record.lines().iter().map(|line| line.call).collect();
    assert_eq!((kept, bed.record.forgotten(), lines(&bed).len()), (vec![4, 5], 3, 5));
    assert_eq!(bed.record.count(|method| method == "Version"), 5);
}
