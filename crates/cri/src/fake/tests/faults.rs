use super::*;

fn err_before() -> FaultKind {
    FaultKind::ErrBefore("not today".to_owned())
}

#[tokio::test(start_paused = true)]
async fn calls_err_before_or_after_their_effect_and_rules_are_spent() {
    let runtime = runtime();
    let config = sandbox(&pod(), 0);
    runtime.add_fault(CallFault::on(Call::RunSandbox, err_before()).of_pod("web").times(1));
    let after = FaultKind::ErrAfter("too late".to_owned());
    runtime.add_fault(CallFault::on(Call::RunSandbox, after).times(1));
    runtime.run_sandbox(&sandbox(&PodRef::new("other", "default", "uid-2"), 0)).await.unwrap_err();
    assert_eq!(runtime.run_sandbox(&config).await.unwrap_err().message, "not today");
    assert_eq!(runtime.sandboxes().len(), 1);
    runtime.run_sandbox(&config).await.unwrap();
    assert_eq!(runtime.sandboxes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_runs_into_its_deadline_with_or_without_an_effect() {
    for effect in [true, false] {
        let runtime = runtime();
        runtime.add_fault(CallFault::on(Call::RunSandbox, FaultKind::Hang { effect }));
        let begun = Instant::now();
        let error = runtime.run_sandbox(&sandbox(&pod(), 0)).await.unwrap_err();
        assert_eq!((error.kind, begun.elapsed()), (ErrorKind::DeadlineExceeded, 240 * SECOND));
        assert_eq!(runtime.sandboxes().len(), usize::from(effect));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_takes_its_effect_when_it_begins() {
    let runtime = runtime();
    runtime.add_fault(CallFault::on(Call::RunSandbox, FaultKind::Slow(9 * SECOND)));
    let begun = Instant::now();
    runtime.run_sandbox(&sandbox(&pod(), 0)).await.unwrap();
    assert_eq!(begun.elapsed(), 9 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_create_makes_folders_for_a_pod_that_is_gone() {
    let runtime = runtime();
    let made = Arc::new(Mutex::new(Vec::new()));
    let told = made.clone();
    runtime.set_make_source(Arc::new(move |path| {
        told.lock().unwrap().push((path.to_owned(), Instant::now()));
        true
    }));
    runtime.add_fault(CallFault::on(Call::CreateContainer, FaultKind::Stalls(60 * SECOND)));
    let (begun, pod) = (Instant::now(), pod());
    let sandbox_id = runtime.run_sandbox(&sandbox(&pod, 0)).await.unwrap();
    let hosts = Mount { host_path: "/pods/uid-1/etc-hosts".to_owned(), ..Mount::default() };
    let config = ContainerConfig { mounts: vec![hosts], ..container(&pod, "app", 0) };
    let goes = async {
        sleep(SECOND).await;
        runtime.remove_sandbox(&sandbox_id).await
    };
    let of = sandbox(&pod, 0);
    let (created, gone) = tokio::join!(runtime.create_container(&sandbox_id, &config, &of), goes);
    gone.unwrap();
    assert_eq!(created.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(*made.lock().unwrap(), [("/pods/uid-1/etc-hosts".to_owned(), begun + 60 * SECOND)]);
    assert!(runtime.containers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_an_abandoned_call_is_up_to_the_seed() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let settings = RuntimeSettings { work_time: (5 * SECOND, 5 * SECOND), ..RuntimeSettings::default() };
        let runtime = seeded(settings, seed);
        assert!(timeout(SECOND, runtime.run_sandbox(&sandbox(&pod(), 0))).await.is_err());
        let again = runtime.run_sandbox(&sandbox(&pod(), 0)).await.unwrap_err();
        assert!(again.message.contains("is reserved for"), "{again}");
        sleep(10 * SECOND).await;
        outcomes.insert(runtime.sandboxes().first().map(|sandbox| sandbox.state == SandboxState::Ready));
    }
    // It appears, it appears dead, it never appears.
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [None, Some(false), Some(true)]);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_stop_has_sent_its_term_and_may_or_may_not_kill() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let runtime = seeded(RuntimeSettings::default(), seed);
        runtime.behave("web", "app", Behaviour::default().on_term(OnTerm::Ignores));
        let (_, id) = started(&runtime, "app").await;
        assert!(timeout(SECOND, runtime.stop_container(&id, 10 * SECOND)).await.is_err());
        sleep(8 * SECOND).await;
        assert_eq!(exit(&runtime, &id).await, None, "killed before the grace was over");
        sleep(2 * SECOND).await;
        outcomes.insert(exit(&runtime, &id).await.is_some());
    }
    assert_eq!(outcomes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_answers_nothing_while_its_containers_live_on() {
    let runtime = runtime();
    runtime.behave("web", "app", Behaviour::exiting(5 * SECOND, 3));
    let (_, id) = started(&runtime, "app").await;
    let mut events = runtime.events().await.unwrap();
    runtime.put_image("later:1", FakeImage::pulled(Pull::Works { after: 60 * SECOND }));
    let pull = runtime.pull_image("later:1", None, None);
    let (pulled, ()) = tokio::join!(pull, async {
        sleep(SECOND).await;
        runtime.go_away();
    });
    assert_eq!(pulled.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(runtime.version().await.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(runtime.events().await.is_err());
    while let Some(event) = events.next().await {
        assert!(event.is_err());
    }
    sleep(10 * SECOND).await;
    runtime.come_back();
    assert_eq!(exit(&runtime, &id).await.unwrap().0, 3);
}

#[tokio::test(start_paused = true)]
async fn events_tell_of_every_change() {
    let runtime = runtime();
    let mut events = runtime.events().await.unwrap();
    let (sandbox_id, id) = started(&runtime, "app").await;
    runtime.stop_container(&id, SECOND).await.unwrap();
    runtime.remove_sandbox(&sandbox_id).await.unwrap();
    runtime.cut_event_streams(false);
    let mut heard = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        assert_eq!(event.uid, Some(pod().uid));
        heard.push((event.container_id == id, event.kind));
    }
    use RuntimeEventKind::*;
    let of_sandbox = |kind| (false, kind);
    let of_container = |kind| (true, kind);
    assert_eq!(
        heard,
        [
            of_sandbox(Created),
            of_sandbox(Started),
            of_container(Created),
            of_container(Started),
            of_container(Stopped),
            of_sandbox(Stopped),
            of_container(Deleted),
            of_sandbox(Deleted),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn events_can_be_lost_doubled_late_or_missing_altogether() {
    let runtime = runtime();
    let mut events = runtime.events().await.unwrap();
    runtime.set_event_faults(EventFaults { lose: 1.0, ..EventFaults::default() });
    runtime.run_sandbox(&sandbox(&pod(), 0)).await.unwrap();
    assert!(events.next().now_or_never().is_none());
    let delay = 30 * SECOND;
    runtime.set_event_faults(EventFaults { double: 1.0, anonymous: 1.0, delay, ..EventFaults::default() });
    let begun = Instant::now();
    assert!(runtime.lose_sandbox(&pod().uid, true));
    for _ in 0..2 {
        assert_eq!(events.next().await.unwrap().unwrap().uid, None);
    }
    assert!(begun.elapsed() > Duration::ZERO && begun.elapsed() <= delay);

    let without = with(RuntimeSettings { streams_events: false, ..RuntimeSettings::default() });
    let Err(CriError { kind, .. }) = without.events().await else { panic!("a stream from nowhere") };
    assert_eq!(kind, ErrorKind::Unimplemented);
}

#[tokio::test(start_paused = true)]
async fn the_gate_stops_a_call_before_or_after_its_effect() {
    for (steps, sandboxes) in [(0, 0), (1, 1)] {
        let runtime = runtime();
        let passed = Arc::new(Mutex::new(0));
        runtime.set_gate(Some(Arc::new(move |_| {
            let mut passed = passed.lock().unwrap();
            *passed += 1;
            *passed <= steps
        })));
        assert!(timeout(999 * SECOND, runtime.run_sandbox(&sandbox(&pod(), 0))).await.is_err());
        assert_eq!(runtime.sandboxes().len(), sandboxes);
    }
}
