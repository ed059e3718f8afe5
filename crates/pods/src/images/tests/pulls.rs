//! Who may pull what, and who may use what another pulled.

use super::*;
use crablet_cri::fake::{Call, CallFault, FaultKind};
use crablet_model::runtime::Incoming;

const DENIED: &str = "failed to pull and unpack image \"r.io/app:1\": failed to resolve reference \"r.io/app:1\": pull access denied";

#[tokio::test(start_paused = true)]
async fn a_pods_secret_opens_the_registry_and_later_the_image_for_those_who_have_it_too() {
    let world = World::new();
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    world.put_secret("mine", "r.io", PASSWORD);
    world.put_secret("copy", "r.io/app", PASSWORD);
    world.put_secret("wrong", "r.io", "guess");

    let denied = format!("ErrImagePull: {DENIED} (true)");
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &[]).await, denied);
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["mine"]).await, "ready");
    assert_eq!(world.pulls(), 1);
    let record = &world.records("pulled")[0];
    assert_eq!(record["kind"], "ImagePulledRecord");
    assert_eq!(record["apiVersion"], "kubelet.config.k8s.io/v1beta1");
    assert_eq!(record["lastUpdatedTime"], "2026-01-01T00:00:01Z");
    let user = &record["credentialMapping"]["r.io/app"]["kubernetesSecrets"][0];
    assert_eq!(
        (&user["name"], &user["namespace"], &user["uid"]),
        (&json!("mine"), &json!("ns"), &json!("uid-of-mine"))
    );
    assert!(world.records("pulling").is_empty());

    // It is there now: for the secret itself, for another with the same content, and for nobody else.
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["mine"]).await, "ready");
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::Never, &["copy"]).await, "ready");
    assert_eq!(world.pulls(), 1);
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &[]).await, denied);
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["wrong"]).await, denied);
    assert_eq!(
        ensure(&images, "r.io/app:1", PullPolicy::Never, &["wrong"]).await,
        "ErrImageNeverPull: Container image \"r.io/app:1\" is not present with pull policy of Never (false)"
    );
    // Both users are on record, by name and content, and no password is anywhere.
    let users = &world.records("pulled")[0]["credentialMapping"]["r.io/app"]["kubernetesSecrets"];
    assert_eq!(users.as_array().map(Vec::len), Some(2));
    let all: Vec<_> = world.records("pulled").iter().map(Value::to_string).chain(world.events()).collect();
    assert!(all.iter().all(|text| !text.contains(PASSWORD) && !text.contains("guess")), "{all:?}");

    // Another life of the agent knows it all.
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["copy"]).await, "ready");
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["wrong"]).await, denied);
}

#[tokio::test(start_paused = true)]
async fn what_was_pulled_without_credentials_or_loaded_by_somebody_else_is_for_all() {
    let world = World::new();
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    assert_eq!(ensure(&images, "r.io/open:1", PullPolicy::Always, &[]).await, "ready");
    let record = &world.records("pulled")[0];
    assert_eq!(record["credentialMapping"], json!({"r.io/open": {"nodePodsAccessible": true}}));
    for image in ["r.io/open:1", "r.io/loaded:1"] {
        assert_eq!(ensure(&images, image, PullPolicy::Never, &[]).await, "ready");
    }
    let told = "Normal Pulled Container image \"r.io/loaded:1\" already present on machine and can be accessed by the pod";
    assert_eq!(world.events().last().map(String::as_str), Some(told));

    let images = world.images(Verification::Always, Vec::new());
    assert_eq!(ensure(&images, "r.io/open:1", PullPolicy::Never, &[]).await, "ready");
    assert!(ensure(&images, "r.io/loaded:1", PullPolicy::Never, &[]).await.starts_with("ErrImageNeverPull"));

    let images = world.images(Verification::Off, Vec::new());
    assert_eq!(ensure(&images, "r.io/loaded:1", PullPolicy::Never, &[]).await, "ready");
    let told = "Normal Pulled Container image \"r.io/loaded:1\" already present on machine";
    assert_eq!(world.events().last().map(String::as_str), Some(told));
}

#[tokio::test(start_paused = true)]
async fn the_nodes_own_file_opens_the_registry_for_all_pods() {
    let world = World::new();
    world.disk.put(
        "/root/.docker/config.json",
        format!(r#"{{"auths": {{"*.io": {{"username": "u", "password": "{PASSWORD}"}}}}}}"#),
    );
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &[]).await, "ready");
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::Never, &[]).await, "ready");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_was_cut_off_leaves_an_image_that_belongs_to_nobody() {
    let world = World::new();
    world.put_secret("mine", "r.io", PASSWORD);
    {
        let images = world.images(Verification::NeverPreloaded, Vec::new());
        let half = ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["mine"]);
        assert!(tokio::time::timeout(Duration::from_millis(500), half).await.is_err());
    }
    // The runtime went on without anybody.
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.runtime.put_image(
        "r.io/app:1",
        FakeImage {
            needs: Some(RegistryAuth { username: "u".to_owned(), password: PASSWORD.to_owned() }),
            ..FakeImage::present()
        },
    );
    assert_eq!(world.records("pulling").len(), 1);
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    assert!(ensure(&images, "r.io/app:1", PullPolicy::Never, &[]).await.starts_with("ErrImageNeverPull"));
    assert!(world.records("pulling").is_empty(), "what an earlier life began was looked at");
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["mine"]).await, "ready");
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::Never, &["mine"]).await, "ready");
}

#[tokio::test(start_paused = true)]
async fn secrets_that_are_missing_or_malformed() {
    let world = World::new();
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    assert_eq!(ensure(&images, "r.io/open:1", PullPolicy::Always, &["gone", "away"]).await, "ready");
    let told = "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (gone, away); attempting to pull the image may not succeed.";
    assert_eq!(world.events()[0], told);
    world.events();
    assert_eq!(ensure(&images, "r.io/open:1", PullPolicy::IfNotPresent, &["gone", "away"]).await, "ready");
    assert_eq!(world.missing().await, [told], "also where the image is there");
    world.put_raw_secret("bad", r#"{"auths": {"r.io": {"auth": "bm90aGluZw=="}}}"#);
    let why = "unable to parse auth field, must be formatted as base64(username:password)";
    assert_eq!(
        ensure(&images, "r.io/open:1", PullPolicy::Always, &["bad"]).await,
        format!("{why}: {why} (false)")
    );
}

/// The API server may be away for long.
#[tokio::test(start_paused = true)]
async fn an_image_that_is_there_does_not_wait_for_secrets() {
    let world = World::new();
    world.secrets.hang();
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    for _ in 0..100 {
        assert_eq!(ensure(&images, "r.io/loaded:1", PullPolicy::IfNotPresent, &["gone"]).await, "ready");
    }
    let given_up = || world.secrets.given_up.load(Ordering::Relaxed);
    assert_eq!(given_up(), 0, "those who look still look");
    assert_eq!(world.missing().await, Vec::<String>::new(), "and of what nobody knows nothing is said");
    assert!((1..100).contains(&given_up()), "not all have looked, and none looks for ever: {}", given_up());
}

#[tokio::test(start_paused = true)]
async fn each_of_several_credentials_is_tried() {
    let world = World::new();
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    world.put_secret("wrong", "r.io/app", "guess");
    world.put_secret("right", "r.io", PASSWORD);
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::Always, &["wrong", "right"]).await, "ready");
    let user = &world.records("pulled")[0]["credentialMapping"]["r.io/app"]["kubernetesSecrets"][0];
    assert_eq!(user["name"], "right");
}

#[tokio::test(start_paused = true)]
async fn who_pulled_an_image_is_forgotten_with_the_image() {
    let world = World::new();
    world.put_secret("mine", "r.io", PASSWORD);
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    assert_eq!(ensure(&images, "r.io/app:1", PullPolicy::IfNotPresent, &["mine"]).await, "ready");
    assert_eq!(ensure(&images, "r.io/open:1", PullPolicy::IfNotPresent, &[]).await, "ready");
    let listed = world.runtime.list_images().await.unwrap();
    let of = |tag: &str| listed.iter().find(|image| image.tags.iter().any(|t| t == tag)).unwrap().clone();
    tokio::time::advance(Duration::from_secs(10)).await;
    let now = world.clock.now();

    images.forget_absent(&listed, now).await;
    assert_eq!(world.records("pulled").len(), 2, "both are there");
    images.forget_absent(&[], now - jiff::SignedDuration::from_secs(60)).await;
    assert_eq!(world.records("pulled").len(), 2, "what was pulled since is not in an old list");
    images.forget_absent(&[of("r.io/open:1")], now).await;
    let left = world.records("pulled");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["imageRef"], of("r.io/open:1").id);
}

#[tokio::test(start_paused = true)]
async fn a_long_pull_shows_how_far_it_is_and_those_who_wait_for_their_turn_show_too() {
    let world = World::pulling_in(Duration::from_secs(100));
    let images = world.images(Verification::Off, Vec::new());
    let part = Incoming { name: "layer-sha256:aa".to_owned(), bytes: 3, of: Some(9) };
    world.runtime.set_incoming(vec![part]);
    assert_eq!(images.under_way().await.pulls, []);
    let (first, second, third) = tokio::join!(
        ensure(&images, "r.io/open:1", PullPolicy::Always, &[]),
        ensure(&images, "r.io/open:1", PullPolicy::Always, &[]),
        async {
            // Two at a time are allowed.
            let waiting = ensure(&images, "r.io/open:1", PullPolicy::Always, &[]);
            tokio::pin!(waiting);
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("it did not wait"),
                () = tokio::time::sleep(Duration::from_secs(50)) => {}
            }
            let told = images.under_way().await;
            let began: Vec<_> = told.pulls.iter().map(|pull| pull.began.is_some()).collect();
            assert_eq!(began, [true, true, false]);
            let first = &told.pulls[0];
            assert_eq!((&*first.image, &*first.pod, &*first.container), ("r.io/open:1", "p", "c"));
            assert_eq!(told.incoming.map(|parts| parts.len()), Some(1));
            waiting.await
        },
    );
    assert_eq!((&*first, &*second, &*third), ("ready", "ready", "ready"));
    assert_eq!(images.under_way().await.pulls, []);
    let still = "Normal Pulling Still pulling image \"r.io/open:1\" after 30s. \
                 On their way to this node: 1 parts, 3 of 9 bytes.";
    assert_eq!(world.events().iter().filter(|event| *event == still).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_takes_the_image_of_anothers_pull_is_told_that_it_came() {
    let world = World::pulling_in(Duration::from_secs(10));
    let images = world.images(Verification::Off, Vec::new());
    images.set_limits(&ImagePulls { parallel: 1, qps: 0.0, burst: 1 });
    let pull = || ensure(&images, "r.io/open:1", PullPolicy::IfNotPresent, &[]);
    assert_eq!(tokio::join!(pull(), pull()), ("ready".to_owned(), "ready".to_owned()));
    assert_eq!(world.pulls(), 1);
    let mut told = world.events();
    told.retain(|event| event.starts_with("Normal Pulled "));
    let came = |took: &str| {
        format!(
            "Normal Pulled Successfully pulled image \"r.io/open:1\" in {took} (10s including waiting). \
             Image size: 1000000 bytes."
        )
    };
    told.sort();
    assert_eq!(told, [came("0s"), came("10s")]);
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_says_of_a_pull_has_its_code_unless_that_says_nothing() {
    let world = World::new();
    let images = world.images(Verification::Off, Vec::new());
    let why = "rpc error: code = NotFound desc = failed to pull and unpack image \"r.io/no:1\": \
               failed to resolve reference \"r.io/no:1\": r.io/no:1: not found";
    let missing = ensure(&images, "r.io/no:1", PullPolicy::IfNotPresent, &[]).await;
    assert_eq!(missing, format!("ErrImagePull: {why} (true)"));
    let told = format!("Warning Failed Failed to pull image \"r.io/no:1\": {why}");
    assert!(world.events().contains(&told), "{told}");
    let denied = ensure(&images, "r.io/app:1", PullPolicy::Always, &[]).await;
    assert_eq!(denied, format!("ErrImagePull: {DENIED} (true)"));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_names_no_image() {
    let world = World::new();
    let images = world.images(Verification::Off, Vec::new());
    let away = FaultKind::ErrBefore("it is too busy".to_owned());
    world.runtime.add_fault(CallFault::on(Call::ImageStatus, away));
    let why = "Failed to inspect image \"\": rpc error: code = Unknown desc = it is too busy";
    let failed = ensure(&images, "r.io/loaded:1", PullPolicy::IfNotPresent, &[]).await;
    assert_eq!(failed, format!("ImageInspectError: {why} (false)"));
    assert_eq!(world.events()[0], format!("Warning InspectFailed {why}"));
}

#[tokio::test(start_paused = true)]
async fn an_image_whose_pulls_wait_is_looked_for_and_not_pulled() {
    let world = World::new();
    let images = world.images(Verification::NeverPreloaded, Vec::new());
    assert_eq!(look(&images, "r.io/open:1").await, "missing");
    assert_eq!((world.pulls(), world.events()), (0, Vec::new()), "nobody hears of it");
    assert!(world.records("pulling").is_empty());
    // Somebody loads it.
    world.runtime.put_image("r.io/open:1", FakeImage::present());
    assert_eq!(look(&images, "r.io/open:1").await, "ready");
    let told = "Normal Pulled Container image \"r.io/open:1\" already present on machine and can be accessed by the pod";
    assert_eq!(world.events(), [told]);
    assert_eq!(world.pulls(), 0);
}
