use crablet_model::runtime::Mount;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_container_keeps_what_it_was_created_with() {
    let runtime = runtime();
    let (sandbox_id, id) = started(&runtime, "app").await;
    let Container { name, uid, restart_count, log_path, .. } = runtime.container_status(&id).await.unwrap();
    assert_eq!((name.as_str(), uid, restart_count), ("app", pod().uid, 0));
    assert_eq!(log_path, "/logs/default_web_uid-1/app/0.log");
    let listed = runtime.list_containers(Some(&pod().uid)).await.unwrap();
    assert_eq!((listed.len(), &listed[0].sandbox_id), (1, &sandbox_id));
    assert_eq!(listed[0].pod_name, "web");
}

#[tokio::test(start_paused = true)]
async fn containers_end_as_their_behaviour_says() {
    let cases = [
        (Behaviour::exiting(3 * SECOND, 0), Some((0, "Completed"))),
        (Behaviour::exiting(3 * SECOND, 7), Some((7, "Error"))),
        (Behaviour::living(Life::OomKilled { after: 3 * SECOND }), Some((137, "OOMKilled"))),
        (Behaviour::default(), None),
    ];
    for (behaviour, expected) in cases {
        let runtime = runtime();
        runtime.behave("web", "app", behaviour);
        let (_, id) = started(&runtime, "app").await;
        sleep(2 * SECOND).await;
        assert_eq!(exit(&runtime, &id).await, None);
        sleep(SECOND).await;
        assert_eq!(exit(&runtime, &id).await, expected.map(|(code, reason)| (code, reason.to_owned())));
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_can_live_differently_and_counts_never_fall() {
    let runtime = runtime();
    let lives = vec![Life::Exits { after: SECOND, code: 1 }, Life::Forever];
    runtime.behave("web", "app", Behaviour { lives, ..Behaviour::default() });
    let (sandbox_id, first) = started(&runtime, "app").await;
    sleep(SECOND).await;
    let start = async |attempt| {
        let (config, app) = (sandbox(&pod(), 0), container(&pod(), "app", attempt));
        let id = runtime.create_container(&sandbox_id, &app, &config).await?;
        runtime.start_container(&id).await.map(|()| id)
    };
    let second = start(1).await.unwrap();
    sleep(SECOND).await;
    assert!(exit(&runtime, &first).await.is_some() && exit(&runtime, &second).await.is_none());
    assert_eq!(violations(&runtime), Vec::<String>::new());

    assert!(start(0).await.unwrap_err().message.contains("is reserved for"));
    let _ = start(2).await.unwrap();
    assert!(violations(&runtime)[0].starts_with("two live instances of one container"));
    runtime.remove_container(&first).await.unwrap();
    let _ = start(0).await.unwrap();
    assert!(violations(&runtime).iter().any(|text| text.starts_with("restart count fell")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_which_nothing_is_left_may_begin_at_zero_again() {
    let runtime = runtime();
    for _ in 0..2 {
        let (sandbox_id, _) = started(&runtime, "app").await;
        runtime.remove_sandbox(&sandbox_id).await.unwrap();
    }
    assert_eq!(violations(&runtime), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_fails_to_start_is_left_exited() {
    let runtime = runtime();
    let message = "exec: \"nope\": executable file not found in $PATH";
    runtime.behave("web", "app", Behaviour::living(Life::FailsToStart(message.to_owned())));
    let config = sandbox(&pod(), 0);
    let sandbox_id = runtime.run_sandbox(&config).await.unwrap();
    let id = runtime.create_container(&sandbox_id, &container(&pod(), "app", 0), &config).await.unwrap();
    assert_eq!(runtime.start_container(&id).await.unwrap_err().message, message);
    assert_eq!(exit(&runtime, &id).await, Some((128, "StartError".to_owned())));
    assert!(runtime.start_container(&id).await.unwrap_err().message.contains("is in Exited state"));
}

#[tokio::test(start_paused = true)]
async fn stopping_takes_as_long_as_the_container_takes() {
    let term = |after| OnTerm::Exits { after, code: 143 };
    let cases = [
        (term(Duration::ZERO), 10, 0, Some(143)),
        (term(4 * SECOND), 10, 4, Some(143)),
        (term(40 * SECOND), 10, 10, Some(137)),
        (OnTerm::Ignores, 10, 10, Some(137)),
        (OnTerm::Ignores, 0, 0, Some(137)),
        (OnTerm::Stuck, 10, 130, None),
    ];
    for (on_term, grace, expected_time, expected_code) in cases {
        let runtime = runtime();
        runtime.behave("web", "app", Behaviour::default().on_term(on_term.clone()));
        let (_, id) = started(&runtime, "app").await;
        let begun = Instant::now();
        let result = runtime.stop_container(&id, SECOND * grace).await;
        assert_eq!(begun.elapsed(), SECOND * expected_time, "{on_term:?} with {grace} s");
        assert_eq!(result.is_ok(), expected_code.is_some());
        assert_eq!(exit(&runtime, &id).await.map(|(code, _)| code), expected_code);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_stuck_resists_everything_until_it_is_freed() {
    let runtime = runtime();
    runtime.behave("web", "app", Behaviour::default().on_term(OnTerm::Stuck));
    let (sandbox_id, id) = started(&runtime, "app").await;
    assert!(runtime.stop_sandbox(&sandbox_id).await.is_err());
    assert!(runtime.remove_container(&id).await.is_err());
    assert_eq!(runtime.stop_container(&id, SECOND).await.unwrap_err().kind, ErrorKind::DeadlineExceeded);
    runtime.clear_faults();
    runtime.stop_container(&id, SECOND).await.unwrap();
    assert_eq!(exit(&runtime, &id).await, Some((137, "Error".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn removing_a_running_container_kills_it_and_the_trace_says_so() {
    let runtime = runtime();
    let (_, id) = started(&runtime, "app").await;
    runtime.remove_container(&id).await.unwrap();
    let killed =
        |entry: &TraceEntry| matches!(entry.what, What::ContainerExited { cause: Cause::Removed, .. });
    assert!(runtime.trace().iter().any(killed));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_being_started_can_not_be_removed() {
    let runtime = with(RuntimeSettings { work_time: (SECOND, SECOND), ..RuntimeSettings::default() });
    let config = sandbox(&pod(), 0);
    let sandbox_id = runtime.run_sandbox(&config).await.unwrap();
    let id = runtime.create_container(&sandbox_id, &container(&pod(), "app", 0), &config).await.unwrap();
    let (started, again, removed) = tokio::join!(
        biased;
        runtime.start_container(&id),
        runtime.start_container(&id),
        runtime.remove_container(&id)
    );
    started.unwrap();
    assert!(again.unwrap_err().message.contains("already in starting state"));
    assert!(removed.unwrap_err().message.contains("is in starting state, can't be removed"));
}

#[tokio::test(start_paused = true)]
async fn a_container_out_of_sight_is_unknown_until_it_is_stopped() {
    let runtime = runtime();
    let (_, id) = started(&runtime, "app").await;
    assert!(runtime.lose_track(&pod().uid, "app"));
    assert_eq!(state(&runtime, &id).await, ContainerState::Unknown);
    runtime.stop_container(&id, SECOND).await.unwrap();
    assert_eq!(exit(&runtime, &id).await, Some((255, "Unknown".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn logs_and_last_words_go_to_the_host() {
    let runtime = runtime();
    let written: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let sink = written.clone();
    runtime.set_write_file(Arc::new(move |path, content| {
        sink.lock().unwrap().push((path.to_owned(), String::from_utf8_lossy(content).into_owned()));
        Ok(())
    }));
    let behaviour = Behaviour { last_words: "bye".to_owned(), ..Behaviour::exiting(SECOND, 1) };
    runtime.behave("web", "app", behaviour);
    let config = sandbox(&pod(), 0);
    let mut app = container(&pod(), "app", 0);
    let path = "/dev/termination-log".to_owned();
    app.annotations.insert(annotation::CONTAINER_TERMINATION_MESSAGE_PATH.to_owned(), path.clone());
    app.mounts.push(Mount {
        container_path: path,
        host_path: "/pods/uid-1/message".to_owned(),
        readonly: false,
        selinux_relabel: false,
        ..Mount::default()
    });
    let sandbox_id = runtime.run_sandbox(&config).await.unwrap();
    let id = runtime.create_container(&sandbox_id, &app, &config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    sleep(2 * SECOND).await;
    let log = "/logs/default_web_uid-1/app/0.log".to_owned();
    let written = written.lock().unwrap().clone();
    assert_eq!(written[0], (log, String::new()));
    assert_eq!(written[1], ("/pods/uid-1/message".to_owned(), "bye".to_owned()));
    let seen = runtime.container_status(&id).await.unwrap();
    assert_eq!(seen.termination_file.as_deref(), Some("/pods/uid-1/message"));

    // Without its log folder a container does not start.
    runtime.set_write_file(Arc::new(|_, _| Err("no such file or directory".to_owned())));
    let id = runtime.create_container(&sandbox_id, &container(&pod(), "app", 1), &config).await.unwrap();
    assert!(runtime.start_container(&id).await.unwrap_err().message.contains("no such file or directory"));
}
