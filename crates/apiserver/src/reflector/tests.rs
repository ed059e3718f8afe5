use super::*;
use crate::fake::{Asked, Effect, FakeApiServer, Recorded, Where};
use crate::port::Verb;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A mirror of the pods of node `n` in a fake server, told in words.
struct Mirror {
    api: Arc<FakeApiServer>,
    stream: BoxStream<'static, Reflected>,
}

impl Mirror {
    fn of_pods(prepare: impl FnOnce(&FakeApiServer)) -> Self {
        Self::new("/api/v1/pods", "spec.nodeName=n", Lane::Main, prepare)
    }

    fn new(path: &str, selector: &str, lane: Lane, prepare: impl FnOnce(&FakeApiServer)) -> Self {
        let begun = Instant::now();
        let api = FakeApiServer::new(Arc::new(move || {
            Timestamp::from_second(1_700_000_000).unwrap()
                + jiff::SignedDuration::try_from(begun.elapsed()).unwrap()
        }));
        prepare(&api);
        let what = Reflection {
            path: path.to_owned(),
            selector: Some(selector.to_owned()),
            lane,
            timeout: (300, 600),
        };
        let stream = reflect(api.clone(), what, 7);
        Self { api, stream }
    }

    async fn next(&mut self) -> String {
        let names = |object: &Bytes| {
            let object: Value = serde_json::from_slice(object).unwrap();
            object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
        };
        match self.stream.next().await.expect("it never ends") {
            Reflected::Replaced(all) => {
                format!("all: {}", all.iter().map(names).collect::<Vec<_>>().join(" "))
            }
            Reflected::Applied(object) => format!("applied {}", names(&object)),
            Reflected::Deleted(object) => format!("deleted {}", names(&object)),
            Reflected::Failed(error) => format!("failed {:?}", error.kind),
        }
    }

    /// Lets the mirror act for a while; nothing may be told.
    async fn silent_for(&mut self, time: Duration) {
        let told = tokio::time::timeout(time, self.next()).await;
        assert!(told.is_err(), "told {told:?}");
    }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"nodeName": "n"}})
}

fn watches(calls: &[Recorded]) -> Vec<&str> {
    calls.iter().filter(|call| call.asked == Asked::Watch).map(|call| call.path.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_told_whole_and_goes_on_as_a_watch() {
    let mut mirror = Mirror::of_pods(|api| {
        api.put("pods", pod("a"));
        api.put("pods", pod("b"));
        api.put("pods", json!({"metadata": {"name": "elsewhere"}, "spec": {"nodeName": "m"}}));
    });
    assert_eq!(mirror.next().await, "all: a b");
    mirror.api.put("pods", pod("c"));
    mirror.api.delete("pods", "ns", "a");
    assert_eq!(mirror.next().await, "applied c");
    assert_eq!(mirror.next().await, "deleted a");
    let calls = mirror.api.calls();
    assert_eq!(calls.len(), 1);
    let query = &calls[0].path;
    for part in [
        "fieldSelector=spec.nodeName%3Dn&",
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
        "allowWatchBookmarks=true",
        "timeoutSeconds=",
    ] {
        assert!(query.contains(part), "{query} lacks {part}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_listed_and_not_asked_again() {
    let mut mirror = Mirror::of_pods(|api| {
        api.set_streaming_lists(false);
        api.put("pods", pod("a"));
    });
    assert_eq!(mirror.next().await, "all: a");
    mirror.api.put("pods", pod("b"));
    assert_eq!(mirror.next().await, "applied b");
    mirror.api.expire_versions();
    mirror.api.close_watches();
    assert_eq!(mirror.next().await, "all: a b");
    let calls = mirror.api.take_calls();
    let streaming = calls.iter().filter(|call| call.path.contains("sendInitialEvents")).count();
    let lists: Vec<_> =
        calls.iter().filter(|call| call.asked == Asked::Call(Verb::Get)).map(|c| &c.path).collect();
    assert_eq!(streaming, 1);
    assert!(lists[0].ends_with("resourceVersion=0"), "{lists:?}");
    assert!(lists[1].ends_with("resourceVersion="), "after 410 not from the cache: {lists:?}");
}

#[tokio::test(start_paused = true)]
async fn a_closed_watch_goes_on_where_it_was_and_nothing_is_lost_or_told_twice() {
    let mut mirror = Mirror::of_pods(|api| {
        api.put("pods", pod("a"));
    });
    assert_eq!(mirror.next().await, "all: a");
    // Closed by its timeout, some minutes later: the bookmark before that moves the version.
    mirror.api.put("secrets", json!({"metadata": {"name": "s"}}));
    mirror.silent_for(Duration::from_secs(601)).await;
    mirror.api.put("pods", pod("b"));
    assert_eq!(mirror.next().await, "applied b");
    mirror.api.close_watches();
    mirror.api.put("pods", pod("c"));
    assert_eq!(mirror.next().await, "applied c");
    mirror.silent_for(Duration::from_secs(5)).await;
    mirror.api.put("secrets", json!({"metadata": {"name": "t"}}));
    mirror.api.send_bookmarks();
    mirror.silent_for(Duration::from_secs(5)).await;
    mirror.api.close_watches();
    mirror.silent_for(Duration::from_secs(5)).await;
    let calls = mirror.api.calls();
    let watches = watches(&calls);
    assert_eq!(watches.len(), 4);
    assert!(watches[3].ends_with("&resourceVersion=5"), "{watches:?}");
    assert!(watches[1].ends_with("&resourceVersion=2"), "{watches:?}");
    assert!(watches[2].ends_with("&resourceVersion=3"), "{watches:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_with_growing_pauses_and_then_the_watch_goes_on() {
    let mut mirror = Mirror::of_pods(|api| {
        api.put("pods", pod("a"));
    });
    assert_eq!(mirror.next().await, "all: a");
    mirror.api.outage();
    let start = Instant::now();
    for _ in 0..9 {
        assert_eq!(mirror.next().await, "failed Unreachable");
    }
    let calls = mirror.api.take_calls();
    let times: Vec<_> = calls[1..].iter().map(|call| call.at.as_millisecond()).collect();
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, plain) in pauses.iter().zip([1600, 3200, 6400, 12800, 25600, 30000, 30000]) {
        assert!((plain..=2 * plain + 1).contains(pause), "{pauses:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(300));
    mirror.api.clear_faults();
    mirror.api.put("pods", pod("b"));
    assert_eq!(mirror.next().await, "applied b");
    // A quarter of an hour later a failure is a first one again.
    mirror.silent_for(Duration::from_secs(900)).await;
    mirror.api.take_calls();
    mirror.api.break_watches();
    let broken = Instant::now();
    assert_eq!(mirror.next().await, "failed Unreachable");
    mirror.api.put("pods", pod("c"));
    assert_eq!(mirror.next().await, "applied c");
    assert!(broken.elapsed() <= Duration::from_millis(1601));
}

#[tokio::test(start_paused = true)]
async fn expired_versions_are_listed_again_at_once_and_what_is_gone_is_gone() {
    let mut mirror = Mirror::of_pods(|api| {
        api.put("pods", pod("a"));
        api.put("pods", pod("b"));
    });
    assert_eq!(mirror.next().await, "all: a b");
    mirror.silent_for(Duration::from_secs(5)).await;
    mirror.api.close_watches();
    mirror.api.delete("pods", "ns", "a");
    mirror.api.expire_versions();
    let now = Instant::now();
    assert_eq!(mirror.next().await, "all: b");
    assert_eq!(now.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_one_object_are_asked_about_again_soon() {
    let path = "/api/v1/namespaces/ns/secrets";
    let mut mirror = Mirror::new(path, "metadata.name=s", Lane::Objects, |api| {
        api.put("secrets", json!({"metadata": {"name": "s", "namespace": "ns"}}));
        api.fault_times(Where::watch("/secrets"), Effect::Fail(403), 4);
    });
    for _ in 0..4 {
        assert_eq!(mirror.next().await, "failed Forbidden");
    }
    assert_eq!(mirror.next().await, "all: s");
    let times: Vec<_> = mirror.api.calls().iter().map(|call| call.at.as_millisecond() % 100_000).collect();
    assert_eq!(times[..4], [0, 100, 300, 700]);
    assert!((1500..2400).contains(&times[4]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_every_watch_at_once_is_not_hammered() {
    let mut mirror = Mirror::of_pods(|_| {});
    assert_eq!(mirror.next().await, "all: ");
    for _ in 0..200 {
        mirror.api.close_watches();
        mirror.silent_for(Duration::from_millis(50)).await;
    }
    let calls = mirror.api.calls().len();
    assert!(calls < 12, "{calls} calls in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_server_error_on_the_streaming_list_is_answered_with_a_plain_one_and_retry_after_is_kept() {
    let mut mirror = Mirror::of_pods(|api| {
        api.put("pods", pod("a"));
        api.fault_times(Where::path("sendInitialEvents"), Effect::Fail(500), 1);
    });
    assert_eq!(mirror.next().await, "all: a");
    let mut slow = ApiError::new(ErrorKind::TooManyRequests, "later");
    slow.retry_after = Some(Duration::from_secs(45));
    let mut backoff = Backoff::new(1);
    assert_eq!(backoff.wait(false, slow.retry_after), Duration::from_secs(45));
}

/// Whatever the weather was, some minutes after it the mirror shows what there is.
#[tokio::test(start_paused = true)]
async fn in_any_weather_the_mirror_ends_up_right() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut mirror = Mirror::of_pods(|api| api.set_streaming_lists(random.bool()));
        let mut shown: BTreeMap<String, String> = BTreeMap::new();
        for step in 0..60 {
            let api = &mirror.api;
            let name = format!("p{}", random.u8(0..6));
            match random.u8(0..12) {
                0..4 => {
                    let mut pod = pod(&name);
                    pod["metadata"]["labels"] = json!({"step": step.to_string()});
                    api.put("pods", pod);
                }
                4 | 5 => drop(api.delete("pods", "ns", &name)),
                6 => api.close_watches(),
                7 => api.expire_versions(),
                8 => api.fault_times(
                    Where::anywhere(),
                    Effect::Fail([401, 429, 500, 504][random.usize(0..4)]),
                    2,
                ),
                9 => api.fault_times(
                    Where::anywhere(),
                    Effect::Slow(Duration::from_secs(random.u64(1..40))),
                    1,
                ),
                10 => api.outage(),
                _ => api.clear_faults(),
            }
            if step == 59 {
                api.clear_faults();
            }
            let time = if step == 59 { 300 } else { random.u64(0..20) };
            let until = Instant::now() + Duration::from_secs(time);
            while let Ok(told) = timeout_at(until, mirror.stream.next()).await {
                apply(&mut shown, told.expect("it never ends"));
            }
        }
        let expected: BTreeMap<String, String> = mirror.api.pods().iter().map(name_and_version).collect();
        assert_eq!(shown, expected, "seed {seed}");
    }
}

fn name_and_version(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("name"), text("resourceVersion"))
}

fn apply(shown: &mut BTreeMap<String, String>, told: Reflected) {
    let read = |object: &Bytes| name_and_version(&serde_json::from_slice(object).unwrap());
    match told {
        Reflected::Replaced(all) => *shown = all.iter().map(read).collect(),
        Reflected::Applied(object) => shown.extend([read(&object)]),
        Reflected::Deleted(object) => drop(shown.remove(&read(&object).0)),
        Reflected::Failed(_) => {}
    }
}
