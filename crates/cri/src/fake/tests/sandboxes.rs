use super::*;

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_run_stopped_and_removed() {
    let runtime = runtime();
    let (sandbox_id, id) = started(&runtime, "app").await;
    let seen = runtime.sandbox_status(&sandbox_id).await.unwrap();
    assert_eq!((seen.state, seen.ips.len(), seen.attempt), (SandboxState::Ready, 1, 0));
    assert!(runtime.list_sandboxes(Some(&pod().uid)).await.unwrap()[0].ips.is_empty());
    assert_eq!(runtime.list_sandboxes(Some(&PodUid::new("other"))).await.unwrap(), []);

    runtime.stop_sandbox(&sandbox_id).await.unwrap();
    assert_eq!(runtime.sandbox_status(&sandbox_id).await.unwrap().state, SandboxState::NotReady);
    assert_eq!(exit(&runtime, &id).await, Some((137, "Error".to_owned())));
    runtime.remove_sandbox(&sandbox_id).await.unwrap();
    assert!(runtime.sandbox_status(&sandbox_id).await.unwrap_err().is_not_found());
    assert!(runtime.container_status(&id).await.unwrap_err().is_not_found());
    runtime.remove_sandbox(&sandbox_id).await.unwrap();
    assert_eq!(violations(&runtime), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_forgive_absence_says_not_found() {
    let runtime = with(RuntimeSettings { forgives_absence: false, ..RuntimeSettings::default() });
    assert!(runtime.stop_sandbox("x").await.unwrap_err().is_not_found());
    assert!(runtime.remove_sandbox("x").await.unwrap_err().is_not_found());
    assert!(runtime.stop_container("x", SECOND).await.unwrap_err().is_not_found());
    assert!(runtime.remove_container("x").await.unwrap_err().is_not_found());
    assert!(runtime.start_container("x").await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn names_are_reserved_as_long_as_their_owner_exists_or_is_being_made() {
    let runtime = with(RuntimeSettings { work_time: (SECOND, SECOND), ..RuntimeSettings::default() });
    let config = sandbox(&pod(), 0);
    let (first, second) = tokio::join!(biased; runtime.run_sandbox(&config), runtime.run_sandbox(&config));
    let id = first.unwrap();
    let expected = |id: &str| {
        format!(
            "failed to reserve sandbox name \"web_default_uid-1_0\": \
             name \"web_default_uid-1_0\" is reserved for {id:?}"
        )
    };
    assert_eq!(second.unwrap_err().message, expected(&id));
    runtime.stop_sandbox(&id).await.unwrap();
    assert_eq!(runtime.run_sandbox(&config).await.unwrap_err().message, expected(&id));
    runtime.remove_sandbox(&id).await.unwrap();
    runtime.run_sandbox(&config).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_ready_sandboxes_of_one_pod_are_a_violation() {
    let runtime = runtime();
    runtime.run_sandbox(&sandbox(&pod(), 0)).await.unwrap();
    runtime.run_sandbox(&sandbox(&PodRef::new("web", "default", "uid-2"), 0)).await.unwrap();
    assert_eq!(violations(&runtime).len(), 0);
    runtime.run_sandbox(&sandbox(&pod(), 1)).await.unwrap();
    assert!(violations(&runtime)[0].starts_with("two ready sandboxes of one pod"));
}

#[tokio::test(start_paused = true)]
async fn nothing_can_be_created_in_a_sandbox_that_is_down() {
    let runtime = runtime();
    let (config, app) = (sandbox(&pod(), 0), container(&pod(), "app", 0));
    let id = runtime.run_sandbox(&config).await.unwrap();
    assert!(runtime.lose_sandbox(&pod().uid, false));
    // A sandbox that died by itself may take the agent by surprise.
    assert_eq!(runtime.create_container(&id, &app, &config).await.unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(violations(&runtime).len(), 0);
    // One that the agent stopped may not.
    runtime.stop_sandbox(&id).await.unwrap();
    assert_eq!(runtime.create_container(&id, &app, &config).await.unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(violations(&runtime).len(), 1);
    assert!(runtime.create_container("none", &app, &config).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_lost_sandbox_takes_its_containers_along_or_leaves_them_running() {
    for with_containers in [true, false] {
        let runtime = runtime();
        let (sandbox_id, id) = started(&runtime, "app").await;
        assert!(runtime.lose_sandbox(&pod().uid, with_containers));
        assert_eq!(runtime.sandbox_status(&sandbox_id).await.unwrap().state, SandboxState::NotReady);
        assert_eq!(state(&runtime, &id).await.is_running(), !with_containers);
        assert!(!runtime.lose_sandbox(&pod().uid, with_containers));
    }
}

#[tokio::test(start_paused = true)]
async fn images_are_there_or_pulled_or_not_to_be_had() {
    let runtime = runtime();
    runtime.put_image("later", FakeImage::pulled(Pull::Works { after: 5 * SECOND }));
    runtime.put_image("broken:1", FakeImage::pulled(Pull::Fails("no such host".to_owned())));
    runtime.put_image("slow:1", FakeImage::pulled(Pull::Hangs));

    assert!(runtime.image_status(IMAGE, None).await.unwrap().is_some());
    assert_eq!(runtime.image_status("later:latest", None).await.unwrap(), None);
    let begun = Instant::now();
    let reference = runtime.pull_image("later:latest", None, None).await.unwrap();
    assert_eq!(begun.elapsed(), 5 * SECOND);
    assert_eq!(runtime.image_status("later", None).await.unwrap().unwrap().id, reference);
    assert!(runtime.image_status(&reference, None).await.unwrap().is_some());
    assert_eq!(runtime.pull_image("broken:1", None, None).await.unwrap_err().message, "no such host");
    assert!(runtime.pull_image("unheard-of", None, None).await.unwrap_err().message.ends_with("not found"));
    assert!(timeout(3600 * SECOND, runtime.pull_image("slow:1", None, None)).await.is_err());

    let config = sandbox(&pod(), 0);
    let id = runtime.run_sandbox(&config).await.unwrap();
    let app = ContainerConfig { image_ref: "slow:1".to_owned(), ..container(&pod(), "app", 0) };
    let error = runtime.create_container(&id, &app, &config).await.unwrap_err();
    assert_eq!(error.message, "failed to resolve image \"slow:1\": not found");
}
