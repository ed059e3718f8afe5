use super::*;

fn map(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn some_sandbox() -> SandboxConfig {
    SandboxConfig {
        name: "web".into(),
        namespace: "default".into(),
        uid: PodUid::new("u-1"),
        attempt: 3,
        hostname: "web".into(),
        log_directory: "/var/log/pods/default_web_u-1".into(),
        dns: DnsConfig {
            servers: vec!["10.0.0.10".into()],
            searches: vec!["svc.local".into()],
            options: vec!["ndots:5".into()],
        },
        port_mappings: vec![PortMapping {
            protocol: Protocol::Udp,
            container_port: 53,
            host_port: 5353,
            host_ip: "127.0.0.1".into(),
        }],
        labels: map(&[("app", "web")]),
        annotations: map(&[("note", "hi")]),
        cgroup_parent: "/kubepods/podu-1".into(),
        runtime_handler: String::new(),
        sysctls: map(&[("net.core.somaxconn", "128")]),
        namespaces: NamespaceOptions {
            network: NamespaceMode::Node,
            pid: NamespaceMode::Container,
            ipc: NamespaceMode::Pod,
            ..Default::default()
        },
        privileged: true,
        run_as_user: Some(0),
        run_as_group: None,
        supplemental_groups: vec![7, 8],
        groups_policy: GroupsPolicy::Strict,
        seccomp: SecurityProfile::RuntimeDefault,
        selinux: None,
        resources: LinuxResources { cpu_shares: 1024, memory_limit: 64 << 20, ..Default::default() },
        overhead: LinuxResources { cpu_shares: 256, ..Default::default() },
    }
}

fn some_container() -> ContainerConfig {
    ContainerConfig {
        name: "main".into(),
        attempt: 2,
        image_ref: "sha256:abc".into(),
        user_specified_image: "web:1".into(),
        command: vec!["/bin/web".into()],
        args: vec!["--port=80".into()],
        working_dir: "/srv".into(),
        env: vec![("B".into(), "2".into()), ("A".into(), "ü".into()), ("KEY".into(), vec![0xff_u8].into())],
        mounts: vec![Mount {
            container_path: "/data".into(),
            host_path: "/host/data".into(),
            readonly: true,
            selinux_relabel: true,
            recursive_read_only: true,
            users: Some(IdRange { host_id: 65536, length: 65536 }),
            ..Mount::default()
        }],
        devices: vec![Device {
            container_path: "/dev/disk".into(),
            host_path: "/host/disk".into(),
            permissions: "mrw".into(),
        }],
        labels: map(&[("io.kubernetes.container.name", "main")]),
        annotations: map(&[("io.kubernetes.container.restartCount", "2")]),
        log_path: "main/2.log".into(),
        stdin: true,
        stdin_once: true,
        tty: true,
        resources: LinuxResources {
            cpu_quota: 5000,
            cpu_period: 100_000,
            oom_score_adj: 999,
            oom_group: true,
            ..Default::default()
        },
        hugepage_limits: vec![("2MB".into(), 0)],
        memory_swap_limit: 0,
        unified: map(&[("memory.swap.max", "0")]),
        stop_signal: Some("SIGRTMIN+1".into()),
        security: ContainerSecurity {
            privileged: false,
            capabilities: Some(Capabilities { add: vec!["NET_ADMIN".into()], drop: vec!["ALL".into()] }),
            namespaces: NamespaceOptions {
                pid: NamespaceMode::Target,
                target_id: "other".into(),
                users: Some(IdRange { host_id: 65536, length: 65536 }),
                ..Default::default()
            },
            run_as_user: Some(1000),
            run_as_username: "web".into(),
            run_as_group: Some(0),
            readonly_rootfs: true,
            supplemental_groups: vec![5],
            no_new_privs: true,
            masked_paths: vec!["/proc/kcore".into()],
            readonly_paths: vec!["/proc/sys".into()],
            seccomp: SecurityProfile::Localhost("/root/seccomp/web.json".into()),
            apparmor: Some(SecurityProfile::Localhost("web".into())),
            selinux: None,
            ..Default::default()
        },
    }
}

#[test]
fn a_pod_is_selected_by_its_label() {
    assert_eq!(uid_selector(None), Map::new());
    assert_eq!(uid_selector(Some(&PodUid::new("u"))), map(&[("io.kubernetes.pod.uid", "u")]));
}

#[test]
fn every_part_of_a_sandbox_config_is_sent() {
    let sent = sandbox(&some_sandbox());
    let metadata = sent.metadata.unwrap();
    assert_eq!(
        (&*metadata.name, &*metadata.uid, &*metadata.namespace, metadata.attempt),
        ("web", "u-1", "default", 3)
    );
    assert_eq!((&*sent.hostname, &*sent.log_directory), ("web", "/var/log/pods/default_web_u-1"));
    let dns = sent.dns_config.unwrap();
    assert_eq!(
        [&*dns.servers[0], &*dns.searches[0], &*dns.options[0]],
        ["10.0.0.10", "svc.local", "ndots:5"]
    );
    let port = &sent.port_mappings[0];
    assert_eq!((port.protocol(), port.container_port, port.host_port), (wire::Protocol::Udp, 53, 5353));
    assert_eq!(port.host_ip, "127.0.0.1");
    assert_eq!((sent.labels, sent.annotations), (map(&[("app", "web")]), map(&[("note", "hi")])));
}

#[test]
fn the_linux_part_of_a_sandbox_config_too() {
    let linux = sandbox(&some_sandbox()).linux.unwrap();
    assert_eq!(linux.cgroup_parent, "/kubepods/podu-1");
    assert_eq!(linux.sysctls, map(&[("net.core.somaxconn", "128")]));
    assert_eq!(linux.overhead.unwrap().cpu_shares, 256);
    let resources = linux.resources.unwrap();
    assert_eq!((resources.cpu_shares, resources.memory_limit_in_bytes), (1024, 64 << 20));

    let security = linux.security_context.unwrap();
    let namespaces = security.namespace_options.clone().unwrap();
    assert_eq!((namespaces.network, namespaces.pid, namespaces.ipc), (2, 1, 0));
    let user = namespaces.userns_options.as_ref().map(|options| options.mode());
    assert_eq!(user, Some(wire::NamespaceMode::Node));
    assert!(security.privileged);
    // User 0 is a wish, no user is none.
    assert_eq!((security.run_as_user, security.run_as_group), (Some(int64(0)), None));
    assert_eq!(security.supplemental_groups, [7, 8]);
    assert_eq!(security.supplemental_groups_policy(), wire::SupplementalGroupsPolicy::Strict);
    assert_eq!(security.seccomp, Some(profile(&SecurityProfile::RuntimeDefault)));
}

#[test]
fn every_part_of_a_container_config_is_sent() {
    let sent = container(&some_container(), &some_sandbox());
    assert_eq!(sent.metadata, Some(wire::ContainerMetadata { name: "main".into(), attempt: 2 }));
    let image = sent.image.unwrap();
    assert_eq!([&*image.image, &*image.user_specified_image], ["sha256:abc", "web:1"]);
    assert_eq!([&*sent.command[0], &*sent.args[0], &*sent.working_dir], ["/bin/web", "--port=80", "/srv"]);
    let env: Vec<_> = sent.envs.iter().map(|e| (&*e.key, &*e.value)).collect();
    assert_eq!(env, [("B", &b"2"[..]), ("A", "ü".as_bytes()), ("KEY", &b"\xff"[..])]);
    let mount = &sent.mounts[0];
    assert_eq!([&*mount.container_path, &*mount.host_path], ["/data", "/host/data"]);
    assert!(mount.readonly && mount.selinux_relabel && mount.recursive_read_only);
    let root = wire::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
    assert_eq!((&mount.uid_mappings, &mount.gid_mappings), (&vec![root], &vec![root]));
    let device = &sent.devices[0];
    assert_eq!(
        [&*device.container_path, &*device.host_path, &*device.permissions],
        ["/dev/disk", "/host/disk", "mrw"]
    );
    assert_eq!(sent.log_path, "main/2.log");
    assert!(sent.stdin && sent.stdin_once && sent.tty);
    assert_eq!(sent.stop_signal, i32::from(wire::Signal::Sigrtminplus1));
    assert_eq!((sent.labels.len(), sent.annotations.len()), (1, 1));
}

#[test]
fn the_linux_part_of_a_container_config_too() {
    let linux = container(&some_container(), &some_sandbox()).linux.unwrap();
    let resources = linux.resources.unwrap();
    assert_eq!((resources.cpu_quota, resources.cpu_period, resources.oom_score_adj), (5000, 100_000, 999));
    assert_eq!(resources.unified, map(&[("memory.oom.group", "1"), ("memory.swap.max", "0")]));

    let security = linux.security_context.unwrap();
    let capabilities = security.capabilities.unwrap();
    assert_eq!([&capabilities.add_capabilities[0], &capabilities.drop_capabilities[0]], ["NET_ADMIN", "ALL"]);
    assert_eq!((security.run_as_user, security.run_as_group), (Some(int64(1000)), Some(int64(0))));
    assert_eq!(security.run_as_username, "web");
    assert!(security.readonly_rootfs && security.no_new_privs && !security.privileged);
    assert_eq!(security.supplemental_groups, [5]);
    assert_eq!([&security.masked_paths[0], &security.readonly_paths[0]], ["/proc/kcore", "/proc/sys"]);
    let localhost = wire::security_profile::ProfileType::Localhost;
    let seccomp = security.seccomp.unwrap();
    assert_eq!((seccomp.profile_type(), &*seccomp.localhost_ref), (localhost, "/root/seccomp/web.json"));
    let apparmor = security.apparmor.unwrap();
    assert_eq!((apparmor.profile_type(), &*apparmor.localhost_ref), (localhost, "web"));
    assert_eq!(security.apparmor_profile, "localhost/web");
    let namespaces = security.namespace_options.unwrap();
    assert_eq!((namespaces.pid(), &*namespaces.target_id), (wire::NamespaceMode::Target, "other"));
    let users = namespaces.userns_options.unwrap();
    assert_eq!((users.mode(), users.uids[0].host_id), (wire::NamespaceMode::Pod, 65536));
}

#[test]
fn an_image_is_mounted_by_its_name() {
    let image = ImageMount {
        image_ref: "sha256:def".into(),
        user_specified_image: "data:1".into(),
        sub_path: "a/b".into(),
    };
    let sandbox = SandboxConfig { runtime_handler: "heavy".into(), ..some_sandbox() };
    let sent = mount(&Mount { image: Some(image), ..Mount::default() }, &sandbox);
    let image = sent.image.unwrap();
    assert_eq!(image.runtime_handler, "");
    assert_eq!([&*image.image, &*image.user_specified_image], ["sha256:def", "data:1"]);
    assert_eq!(image.annotations, map(&[("note", "hi")]));
    assert_eq!(sent.image_sub_path, "a/b");
}

#[test]
fn a_pull_carries_the_pod() {
    let sent = pull("web:1", None, Some(&some_sandbox()));
    let image = sent.image.unwrap();
    assert_eq!((&*image.image, image.annotations), ("web:1", map(&[("note", "hi")])));
    assert_eq!(sent.sandbox_config, Some(sandbox(&some_sandbox())));
    assert_eq!(pull("web:1", None, None).sandbox_config, None);
    let looked_for = image_status("web:1", Some(&some_sandbox())).image;
    assert_eq!(looked_for, pull("web:1", None, Some(&some_sandbox())).image);
}
