//! What rules do.

use std::time::Duration;

use crablet_protos::cri::{
    PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest, RunPodSandboxResponse, VersionResponse,
};
use crablet_proxy::{Action, Cut, Failure, Gate, Matcher, Outcome, Rule, grpc};
use prost::Message;

use super::support::*;

fn run_sandbox(pod: &str) -> Vec<u8> {
    let metadata = PodSandboxMetadata { name: pod.into(), ..Default::default() };
    let config = PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    RunPodSandboxRequest { config: Some(config), ..Default::default() }.encode_to_vec()
}

#[tokio::test]
async fn a_failed_call_never_reaches_the_runtime() {
    let mut bed = Bed::start();
    let failure = Failure::grpc(grpc::UNAVAILABLE, "bad day, \u{fc}ber all");
    let rule = Rule::new(Matcher::method("RunPodSandbox").pod("web"), Action::Fail(failure));
    let id = bed.rules.add(rule.first(1).named("bad day"));
    let client = bed.client().await;
    let reply = client.call(RUN, &run_sandbox("web")).await;
    assert_eq!((reply.code(), reply.body.len()), ("14", 0));
    assert_eq!(reply.headers["grpc-message"], "bad day, %C3%BCber all");
    assert!(bed.runtime.nothing_came());
    let line = soon(bed.record.next(|_| true)).await;
    assert_eq!((line.outcome, line.code), (Some(Outcome::Failed), Some(14)));
    assert_eq!(
        (line.rule.as_deref(), line.message.as_deref()),
        (Some("bad day"), Some("bad day, \u{fc}ber all"))
    );
    assert_eq!(bed.rules.fired(id), 1);

    // Another pod, and the second try.
    for pod in ["other", "web"] {
        let call = client.send(RUN, &run_sandbox(pod)).await;
        bed.runtime.next().await.answer(b"").await;
        assert_eq!(call.reply().await.unwrap().code(), "0");
    }
}

#[tokio::test]
async fn a_call_can_fail_after_it_was_done() {
    let mut bed = Bed::start();
    let failure = Failure::grpc(grpc::DEADLINE_EXCEEDED, "too late");
    bed.rules.add(Rule::new(Matcher::method("RunPodSandbox"), Action::FailAfter(failure)));
    let client = bed.client().await;
    let call = client.send(RUN, &run_sandbox("web")).await;
    let done = RunPodSandboxResponse { pod_sandbox_id: "abc".into() };
    bed.runtime.next().await.answer(&done.encode_to_vec()).await;
    let reply = call.reply().await.unwrap();
    assert_eq!((reply.code(), reply.body.len()), ("4", 0));
    let line = soon(bed.record.next(|_| true)).await;
    assert_eq!((line.outcome, line.code), (Some(Outcome::FailedAfter), Some(4)));
    assert_eq!(line.response.as_ref().unwrap()["pod_sandbox_id"], "abc");
}

#[tokio::test]
async fn a_dropped_call_hangs_until_the_client_gives_up() {
    let mut bed = Bed::start();
    let id = bed.rules.add(Rule::new(Matcher::method("RunPodSandbox"), Action::Drop));
    let client = bed.client().await;
    let dropped = client.send(RUN, &[]).await;
    // Later calls are not held up by it.
    let call = client.send(VERSION, &[]).await;
    let seen = bed.runtime.next().await;
    assert_eq!(seen.path, VERSION);
    seen.answer(b"").await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
    assert_eq!(bed.rules.fired(id), 1);
    dropped.cancel();
    let line = soon(bed.record.next(|line| line.method == "RunPodSandbox")).await;
    assert_eq!(line.outcome, Some(Outcome::GivenUp));
    assert!(bed.runtime.nothing_came());
}

#[tokio::test]
async fn a_dropped_call_ends_with_the_proxy() {
    let bed = Bed::start();
    bed.rules.add(Rule::new(Matcher::any(), Action::Drop));
    let client = bed.client().await;
    let dropped = client.send(RUN, &[]).await;
    bed.stop_proxy();
    assert!(dropped.reply().await.is_err());
}

#[tokio::test]
async fn a_cut_takes_the_whole_connection_and_no_other() {
    let mut bed = Bed::start();
    bed.rules.add(Rule::new(Matcher::method("RunPodSandbox"), Action::Cut(Cut::Now)));
    let (client, other) = (bed.client().await, bed.client().await);
    let neighbour = client.send(VERSION, &[]).await;
    let _seen = bed.runtime.next().await;
    let cut = client.send(RUN, &[]).await;
    assert!(!cut.reply().await.unwrap_err().is_reset());
    assert!(!neighbour.reply().await.unwrap_err().is_reset());
    client.closed().await;
    assert!(bed.runtime.nothing_came());
    let line = soon(bed.record.next(|line| line.method == "RunPodSandbox")).await;
    assert_eq!(line.outcome, Some(Outcome::Cut));

    let call = other.send(VERSION, &[]).await;
    bed.runtime.next().await.answer(b"").await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
}

#[tokio::test]
async fn a_stream_can_be_cut_after_some_messages_or_bytes() {
    let mut bed = Bed::start();
    bed.rules
        .add(Rule::new(Matcher::method("GetContainerEvents"), Action::Cut(Cut::AfterEvents(2))).first(1));
    bed.rules.add(Rule::new(Matcher::method("GetContainerEvents"), Action::Cut(Cut::AfterBytes(9))));
    // Each frame is 7 bytes long.
    let expected = [[frame(&[8, 1]), frame(&[8, 2])].concat(), frame(&[8, 1]).to_vec()];
    for (bytes, events) in expected.into_iter().zip([2, 1]) {
        let client = bed.client().await;
        let mut call = client.send(EVENTS, &[]).await;
        let mut seen = bed.runtime.next().await;
        let mut stream = seen.begin();
        for number in 1..=3 {
            stream.send(&[8, number]).await;
        }
        let mut got = Vec::new();
        while let Ok(Some(piece)) = call.piece().await {
            got.extend_from_slice(&piece);
        }
        // For the second: two bytes of the second frame, too.
        assert_eq!(&got[..bytes.len()], bytes);
        assert_eq!(got.len(), if events == 2 { 14 } else { 9 });
        client.closed().await;
        let number = bed.record.last_call();
        let line = soon(bed.record.next(|line| line.call == number && line.outcome.is_some())).await;
        assert_eq!(line.outcome, Some(Outcome::Cut));
        assert_eq!(line.response.as_ref().unwrap()["messages"], events);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_holds_calls_on_their_way_in() {
    let mut bed = Bed::start();
    let gate = Gate::new();
    bed.rules.add(Rule::new(Matcher::method("RunPodSandbox"), Action::Hold(gate.clone())));
    let client = bed.client().await;
    let calls = (client.send(RUN, &run_sandbox("a")).await, client.send(RUN, &run_sandbox("b")).await);
    gate.wait_arrived(2, SOON).unwrap();
    assert!(bed.runtime.nothing_came());
    gate.release_one();
    bed.runtime.next().await.answer(b"").await;
    assert!(bed.runtime.nothing_came());
    gate.release();
    bed.runtime.next().await.answer(b"").await;
    assert_eq!(calls.0.reply().await.unwrap().code(), "0");
    assert_eq!(calls.1.reply().await.unwrap().code(), "0");
    // It stands open.
    let call = client.send(RUN, &run_sandbox("c")).await;
    bed.runtime.next().await.answer(b"").await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_holds_answers_on_their_way_out() {
    let mut bed = Bed::start();
    let gate = Gate::new();
    bed.rules.add(Rule::new(Matcher::method("Version"), Action::HoldAnswer(gate.clone())));
    let client = bed.client().await;
    let call = tokio::spawn(client.send(VERSION, &[]).await.reply());
    let answer = VersionResponse { runtime_name: "test".into(), ..Default::default() }.encode_to_vec();
    bed.runtime.next().await.answer(&answer).await;
    gate.wait_arrived(1, SOON).unwrap();
    assert!(!call.is_finished());
    gate.release();
    let reply = soon(call).await.unwrap().unwrap();
    assert_eq!((reply.code(), &reply.body[..]), ("0", &frame(&answer)[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_call_can_be_given_up() {
    let mut bed = Bed::start();
    let gate = Gate::new();
    bed.rules.add(Rule::new(Matcher::method("RunPodSandbox"), Action::Hold(gate.clone())));
    let call = bed.client().await.send(RUN, &[]).await;
    gate.wait_arrived(1, SOON).unwrap();
    call.cancel();
    let line = soon(bed.record.next(|line| line.method == "RunPodSandbox")).await;
    assert_eq!(line.outcome, Some(Outcome::GivenUp));
    gate.release();
    assert!(bed.runtime.nothing_came());
}

/// On a clock that jumps when nothing else is left to do: an hour is over at once, but not before it began.
#[tokio::test(start_paused = true)]
async fn a_delayed_call_arrives_later() {
    let mut bed = Bed::start();
    let hour = Duration::from_secs(3600);
    bed.rules.add(Rule::new(Matcher::method("RunPodSandbox"), Action::Delay(hour)));
    let client = bed.client().await;
    let began = tokio::time::Instant::now();
    let call = client.send(RUN, &[]).await;
    let seen = bed.runtime.next_whenever().await;
    assert!(began.elapsed() >= hour);
    seen.answer(b"").await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
}
