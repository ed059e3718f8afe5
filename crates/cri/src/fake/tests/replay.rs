use super::*;

/// A little agent that knows nothing and tries everything, while everything goes wrong.
async fn bad_day(seed: u64) -> Vec<TraceEntry> {
    let settings = RuntimeSettings {
        work_time: (Duration::ZERO, 2 * SECOND),
        trace_reads: true,
        ..RuntimeSettings::default()
    };
    let runtime = seeded(settings, seed);
    let slow_for = 5 * SECOND;
    runtime.set_chaos(Chaos { err_before: 0.05, err_after: 0.05, hang: 0.01, slow: 0.2, slow_for });
    runtime.set_event_faults(EventFaults { lose: 0.2, double: 0.2, anonymous: 0.1, delay: SECOND });
    runtime.behave("web", "app", Behaviour::exiting(20 * SECOND, 1).on_term(OnTerm::Ignores));
    let mut events = runtime.events().await.ok();
    let mut rng = fastrand::Rng::with_seed(seed);
    for attempt in 0..20 {
        let config = sandbox(&pod(), attempt);
        let _ = timeout(SECOND * rng.u32(0..4), runtime.run_sandbox(&config)).await;
        for sandbox in runtime.list_sandboxes(None).await.unwrap_or_default() {
            let app = container(&pod(), "app", attempt);
            let create = runtime.create_container(&sandbox.id, &app, &config);
            if let Ok(Ok(id)) = timeout(SECOND * 3, create).await {
                let _ = runtime.start_container(&id).await;
                let _ = timeout(SECOND * rng.u32(0..20), runtime.stop_container(&id, 9 * SECOND)).await;
            }
            let _ = runtime.remove_sandbox(&sandbox.id).await;
        }
        if rng.u8(0..5) == 0 {
            runtime.go_away();
            sleep(SECOND).await;
            runtime.come_back();
        }
        while let Some(events) = &mut events
            && let Some(Some(Ok(event))) = events.next().now_or_never()
        {
            runtime.note(format!("heard {event:?}"));
        }
    }
    runtime.trace()
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let (first, second) = (bad_day(seed).await, bad_day(seed).await);
        assert!(first.len() > 50);
        assert_eq!(first, second, "seed {seed}");
        assert_ne!(first, bad_day(seed + 100).await);
    }
}
