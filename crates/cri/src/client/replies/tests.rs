use super::*;

const SECOND: i64 = 1_000_000_000;

fn map(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn condition(name: &str, status: bool) -> wire::RuntimeCondition {
    wire::RuntimeCondition { r#type: name.into(), status, reason: "Why".into(), message: "words".into() }
}

#[test]
fn the_runtime_is_ready_when_both_conditions_say_so() {
    let runtime = "RuntimeReady=false reason:Why message:words";
    let network = "NetworkReady=false reason:Why message:words";
    for (conditions, ready, network_ready, message) in [
        (vec![condition(RUNTIME_READY, true), condition(NETWORK_READY, true)], true, true, String::new()),
        (vec![condition(RUNTIME_READY, true), condition(NETWORK_READY, false)], true, false, network.into()),
        (
            vec![condition(NETWORK_READY, false), condition(RUNTIME_READY, false)],
            false,
            false,
            format!("{runtime}, {network}"),
        ),
        (
            vec![condition("Other", false), condition(RUNTIME_READY, true)],
            true,
            false,
            "NetworkReady is not reported".into(),
        ),
    ] {
        let reply =
            wire::StatusResponse { status: Some(wire::RuntimeStatus { conditions }), ..Default::default() };
        let status = status(reply);
        assert_eq!((status.problem.is_none(), status.network_problem.is_none()), (ready, network_ready));
        assert_eq!(status.message(), message);
    }
    assert!(!status(wire::StatusResponse::default()).is_ready());
}

#[test]
fn one_unreadable_address_spoils_all() {
    for (primary, additional, expected) in [
        ("10.0.0.1", &["fd00::1"][..], &["10.0.0.1", "fd00::1"][..]),
        ("10.0.0.1", &[], &["10.0.0.1"]),
        ("", &[], &[]),
        ("", &["10.0.0.2"], &["10.0.0.2"]),
        ("10.0.0.1", &["garbage"], &[]),
        ("10.0.0.1", &[""], &[]),
        ("10.0.0.300", &["10.0.0.2"], &[]),
    ] {
        let additional_ips = additional.iter().map(|ip| wire::PodIp { ip: (*ip).into() }).collect();
        let network = wire::PodSandboxNetworkStatus { ip: primary.into(), additional_ips };
        let got = sandbox(wire::PodSandboxStatus { network: Some(network), ..Default::default() }).ips;
        let expected: Vec<IpAddr> = expected.iter().map(|ip| ip.parse().unwrap()).collect();
        assert_eq!(got, expected, "{primary} {additional:?}");
    }
}

#[test]
fn a_sandbox_status_says_whose_network_it_uses() {
    let with = |network| {
        let options = wire::NamespaceOption { network, ..Default::default() };
        let namespaces = Some(wire::Namespace { options: Some(options) });
        let linux = Some(wire::LinuxPodSandboxStatus { namespaces });
        sandbox(wire::PodSandboxStatus { linux, ..Default::default() }).host_network
    };
    assert_eq!([with(0), with(1), with(2), with(9)], [false, false, true, false]);
}

#[test]
fn a_listed_sandbox_is_known_by_its_metadata() {
    let metadata = wire::PodSandboxMetadata {
        name: "web".into(),
        uid: "u".into(),
        namespace: "default".into(),
        attempt: 4,
    };
    let sandbox = listed_sandbox(wire::PodSandbox {
        id: "s".into(),
        metadata: Some(metadata),
        state: 1,
        created_at: 5 * SECOND,
        ..Default::default()
    });
    assert_eq!(
        sandbox,
        Sandbox {
            id: "s".into(),
            uid: PodUid::new("u"),
            name: "web".into(),
            namespace: "default".into(),
            attempt: 4,
            state: SandboxState::NotReady,
            created_at: at(5),
            ips: vec![],
            host_network: false,
        }
    );
}

#[test]
fn a_listed_container_is_known_by_its_labels() {
    let labels = map(&[
        (label::POD_UID, "u"),
        (label::POD_NAME, "web"),
        (label::POD_NAMESPACE, "default"),
        (label::CONTAINER_NAME, "main"),
    ]);
    for (number, state) in [
        (0, ListedState::Created),
        (1, ListedState::Running),
        (2, ListedState::Exited),
        (3, ListedState::Unknown),
        (42, ListedState::Unknown),
    ] {
        let listing = listed_container(wire::Container {
            id: "c".into(),
            pod_sandbox_id: "s".into(),
            labels: labels.clone(),
            state: number,
            created_at: 7 * SECOND,
            ..Default::default()
        });
        let expected = ContainerListing {
            id: "c".into(),
            sandbox_id: "s".into(),
            uid: PodUid::new("u"),
            pod_name: "web".into(),
            pod_namespace: "default".into(),
            name: "main".into(),
            state,
            created_at: at(7),
        };
        assert_eq!(listing, expected);
    }
}

fn exited() -> wire::ContainerStatus {
    wire::ContainerStatus {
        id: "c".into(),
        state: 2,
        created_at: SECOND,
        started_at: 2 * SECOND,
        finished_at: 3 * SECOND,
        exit_code: 137,
        reason: "OOMKilled".into(),
        message: "too much".into(),
        image: Some(wire::ImageSpec { image: "web:1".into(), ..Default::default() }),
        image_ref: "web@sha256:abc".into(),
        image_id: "sha256:def".into(),
        labels: map(&[(label::POD_UID, "u"), (label::CONTAINER_NAME, "main")]),
        annotations: map(&[
            (annotation::CONTAINER_HASH, "beef"),
            (annotation::CONTAINER_RESTART_COUNT, "4"),
            (annotation::CONTAINER_TERMINATION_MESSAGE_PATH, "/dev/termination-log"),
        ]),
        mounts: vec![
            wire::Mount { container_path: "/data".into(), host_path: "/h/data".into(), ..Default::default() },
            wire::Mount {
                container_path: "/dev/termination-log".into(),
                host_path: "/h/log".into(),
                ..Default::default()
            },
        ],
        log_path: "/logs/main/4.log".into(),
        user: Some(wire::ContainerUser {
            linux: Some(wire::LinuxContainerUser { uid: 1, gid: 2, supplemental_groups: vec![3] }),
        }),
        ..Default::default()
    }
}

#[test]
fn a_container_is_known_by_its_labels_and_annotations() {
    let expected = Container {
        id: "c".into(),
        sandbox_id: "s".into(),
        uid: PodUid::new("u"),
        name: "main".into(),
        restart_count: 4,
        hash: "beef".into(),
        created_at: at(1),
        state: ContainerState::Exited(Exit {
            code: 137,
            reason: "OOMKilled".into(),
            message: "too much".into(),
            started_at: Some(at(2)),
            finished_at: at(3),
        }),
        image: "web:1".into(),
        image_ref: "web@sha256:abc".into(),
        annotations: exited().annotations,
        log_path: "/logs/main/4.log".into(),
        resources: None,
        stop_signal: None,
        termination_file: Some("/h/log".into()),
        user: Some(ContainerUser { uid: 1, gid: 2, supplemental_groups: vec![3] }),
    };
    assert_eq!(container(exited(), "s".into()), expected);
}

#[test]
fn every_number_is_some_state() {
    let state = |number| container_state(&wire::ContainerStatus { state: number, ..exited() });
    assert_eq!(state(0), ContainerState::Created);
    assert_eq!(state(1), ContainerState::Running { started_at: at(2) });
    assert_eq!([state(3), state(99), state(-1)], [const { ContainerState::Unknown }; 3]);
    let never_started = container_state(&wire::ContainerStatus { started_at: 0, ..exited() });
    assert_eq!(never_started.exit().unwrap().started_at, None);
}

#[test]
fn garbage_and_absence_become_empty_values() {
    let empty = container(wire::ContainerStatus::default(), String::new());
    assert_eq!((empty.uid.as_str(), empty.restart_count, empty.termination_file), ("", 0, None));
    assert_eq!((empty.image, empty.user), (String::new(), None));
    assert_eq!(sandbox(wire::PodSandboxStatus::default()).uid.as_str(), "");
    assert_eq!(
        listed_sandbox(wire::PodSandbox { state: 9, ..Default::default() }).state,
        SandboxState::NotReady
    );
    for number in ["-1", "99999999999", "x", ""] {
        let annotations = map(&[(annotation::CONTAINER_RESTART_COUNT, number)]);
        let status = wire::ContainerStatus { annotations, ..Default::default() };
        assert_eq!(container(status, String::new()).restart_count, 0, "{number:?}");
    }
    for nanoseconds in [i64::MIN, -1, 0, i64::MAX] {
        assert_eq!(time(nanoseconds).as_nanosecond(), i128::from(nanoseconds));
    }
}

#[test]
fn a_termination_file_needs_a_path_and_a_mount() {
    let mut status = exited();
    status.mounts.pop();
    assert_eq!(termination_file(&status), None);
    status = exited();
    status.annotations.insert(annotation::CONTAINER_TERMINATION_MESSAGE_PATH.into(), String::new());
    assert_eq!(termination_file(&status), None);
}

#[test]
fn a_termination_file_is_found_however_its_path_is_written() {
    for path in ["/dev/termination-log", "dev/termination-log", "/dev//x/../termination-log/"] {
        let mut status = exited();
        status.annotations.insert(annotation::CONTAINER_TERMINATION_MESSAGE_PATH.into(), path.into());
        assert_eq!(termination_file(&status).as_deref(), Some("/h/log"), "{path}");
    }
}

#[test]
fn an_old_runtime_has_no_image_ref_and_then_the_id_serves() {
    let status = wire::ContainerStatus { image_ref: String::new(), ..exited() };
    assert_eq!(container(status, "s".into()).image_ref, "sha256:def");
}

#[test]
fn the_label_tells_the_pod_where_metadata_is_lost() {
    let labels = map(&[(label::POD_UID, "from-label")]);
    let metadata = |uid: &str| wire::PodSandboxMetadata { uid: uid.into(), ..Default::default() };
    assert_eq!(pod_uid(Some(&metadata("from-metadata")), &labels), "from-metadata");
    assert_eq!(pod_uid(Some(&metadata("")), &labels), "from-label");
    assert_eq!(pod_uid(None, &labels), "from-label");
    assert_eq!(pod_uid(None, &Map::new()), "");
}

#[test]
fn an_image_may_name_its_user_or_number_it() {
    let numbered =
        image(wire::Image { uid: Some(wire::Int64Value { value: 0 }), size: 9, ..Default::default() });
    assert_eq!((numbered.uid, numbered.username.as_str(), numbered.size), (Some(0), "", 9));
    let named = image(wire::Image { username: "web".into(), ..Default::default() });
    assert_eq!((named.uid, named.username.as_str()), (None, "web"));
}
