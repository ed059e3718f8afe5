//! What is typed, and what it becomes.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_config::{Command, Environment, ImagePulls, Settings, parse};
use proptest::prelude::*;

fn command(args: &str, file: &str) -> Result<Command, String> {
    let env = Environment { hostname: "Node1\n".to_owned() };
    let args = args.split_whitespace().map(OsString::from);
    let read = |path: &Path| match path.to_str() {
        Some("/etc/crablet/config.yaml") => Ok(file.as_bytes().to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    parse(args, &env, read).map_err(|error| error.to_string())
}

fn settings(args: &str) -> Settings {
    with_file(args, "")
}

/// `file` is the inside of a KubeletConfiguration.
fn with_file(args: &str, file: &str) -> Settings {
    match command(&args_with(args, file), &config(file)) {
        Ok(Command::Run(settings)) => *settings,
        other => panic!("{args} {file}: {other:?}"),
    }
}

fn refused(args: &str, file: &str) -> String {
    match command(&args_with(args, file), &config(file)) {
        Err(text) => text,
        other => panic!("{args} {file}: {other:?}"),
    }
}

fn args_with(args: &str, file: &str) -> String {
    if file.is_empty() { args.to_owned() } else { format!("--config=/etc/crablet/config.yaml {args}") }
}

fn config(file: &str) -> String {
    format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{file}\n")
}

#[test]
fn nothing_said_means_these_defaults() {
    let seconds = Duration::from_secs;
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let defaults = settings("");
    assert_eq!(
        defaults,
        Settings {
            static_pod_path: None,
            static_pod_url: None,
            static_pod_url_headers: Default::default(),
            file_check_frequency: seconds(20),
            http_check_frequency: seconds(20),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            pod_logs_dir: PathBuf::from("/var/log/pods"),
            container_logs_dir: PathBuf::from("/var/log/containers"),
            container_runtime_endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
            runtime_request_timeout: seconds(120),
            image_pulls: ImagePulls { parallel: 5, qps: 5.0, burst: 10 },
            node_name: "node1".to_owned(),
            address: IpAddr::from([0, 0, 0, 0]),
            read_only_port: None,
            healthz_port: Some(10248),
            healthz_bind_address: loopback,
            sync_frequency: seconds(60),
            max_container_restart_period: seconds(300),
            cpu_cfs_quota: true,
            seccomp_default: false,
            resolv_conf: Some(PathBuf::from("/etc/resolv.conf")),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            verbosity: 0,
        }
    );
    assert_eq!(defaults.local_socket(), PathBuf::from("/var/lib/kubelet/crablet.sock"));
    assert_eq!(with_file("", "healthzPort: 10248"), defaults, "a file changes only what it says");
}

#[test]
fn flags_may_be_spelled_as_gos_parser_allows() {
    for args in
        ["--healthz-port=1", "--healthz-port 1", "--healthz_port=1", "--healthz-port=7 --healthz-port=1"]
    {
        assert_eq!(settings(args).healthz_port, Some(1), "{args}");
    }
    for args in ["-v=4", "-v4", "-v 4", "--v=4", "--v 4", "-v 1 --v 4"] {
        assert_eq!(settings(args).verbosity, 4, "{args}");
    }
    for (args, expected) in [
        ("--cpu-cfs-quota", true),
        ("--cpu-cfs-quota=true", true),
        ("--cpu-cfs-quota=F", false),
        ("--cpu-cfs-quota=0 --cpu-cfs-quota", true),
        ("--cpu-cfs-quota=false", false),
    ] {
        assert_eq!(settings(args).cpu_cfs_quota, expected, "{args}");
    }
    assert_eq!(settings("--resolv-conf=").resolv_conf, None);
    assert_eq!(settings("--read-only-port=10255").read_only_port, Some(10255));
    assert_eq!(settings("--healthz-port=0").healthz_port, None);
    assert_eq!(settings("--root-dir=/a//b/").root_dir, PathBuf::from("/a/b"));
    assert_eq!(settings("--container-runtime-endpoint=/a.sock").container_runtime_endpoint, "unix:///a.sock");
    assert_eq!(settings("--hostname-override=OTHER.example").node_name, "other.example");
    assert_eq!(settings("--sync-frequency=1h2m3.5s").sync_frequency, Duration::from_millis(3_723_500));
}

#[test]
fn lists_add_up_and_the_first_one_replaces_what_the_file_says() {
    let file = "clusterDNS: [10.0.0.1]\nstaticPodURLHeader: {A: [p, q]}\nstaticPodURL: http://h/";
    let only_file = with_file("", file);
    assert_eq!(only_file.cluster_dns, [IpAddr::from([10, 0, 0, 1])]);
    assert_eq!(*only_file.static_pod_url_headers, [("A".into(), "p".into()), ("A".into(), "q".into())]);

    let both = with_file("--cluster-dns=10.0.0.2,::1 --cluster-dns=10.0.0.3", file);
    assert_eq!(both.cluster_dns.len(), 3);
    let both = with_file("--manifest-url-header=A:1,B:http://c --manifest-url-header=C:", file);
    let expected =
        [("A", "1"), ("B", "http://c"), ("C", "")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(*both.static_pod_url_headers, expected);
}

#[test]
fn header_values_do_not_print() {
    let text = format!("{:?}", settings("--manifest-url-header=Authorization:secret"));
    assert!(text.contains("Authorization") && !text.contains("secret"), "{text}");
    let text = refused("--manifest-url-header=secret", "");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let file = "syncFrequency: 2m\ncpuCFSQuota: false\nlogging: {verbosity: 3}\nresolvConf: ''\n\
                crashLoopBackOff: {maxContainerRestartPeriod: 10s}\nregistryPullQPS: 0";
    let found = with_file("--sync-frequency=3m", file);
    assert_eq!(found.sync_frequency, Duration::from_secs(180));
    assert_eq!(found.max_container_restart_period, Duration::from_secs(10));
    assert_eq!((found.cpu_cfs_quota, found.verbosity, found.resolv_conf), (false, 3, None));
    assert_eq!(found.image_pulls.qps, 0.0);
    // Upstream joins these two with "or".
    assert!(with_file("--seccomp-default=false", "seccompDefault: true").seccomp_default);
}

#[test]
fn zero_in_the_file_means_not_said_where_upstream_reads_it_so() {
    let file = "syncFrequency: 0s\nregistryBurst: 0\nhealthzBindAddress: ''\npodLogsDir: ''\nhealthzPort: 0\naddress: null";
    let found = with_file("", file);
    assert_eq!(found, Settings { healthz_port: None, ..settings("") });
}

#[test]
fn relative_paths_in_the_file_start_at_its_folder() {
    let found = with_file("--pod-manifest-path=", "staticPodPath: manifests\npodLogsDir: logs");
    assert_eq!(found.static_pod_path, None);
    assert_eq!(found.pod_logs_dir, PathBuf::from("/etc/crablet/logs"));
    let found = with_file("", "staticPodPath: manifests");
    assert_eq!(found.static_pod_path, Some(PathBuf::from("/etc/crablet/manifests")));
}

#[test]
fn one_stuck_registry_holds_nobody_up_unless_serial_pulls_are_asked_for() {
    for (args, file, parallel) in [
        ("", "", 5),
        ("--serialize-image-pulls", "", 1),
        ("--serialize-image-pulls=false", "", ImagePulls::NO_LIMIT),
        ("", "maxParallelImagePulls: 3", 3),
        ("", "maxParallelImagePulls: 1", 1),
        ("--serialize-image-pulls=false", "maxParallelImagePulls: 2", 2),
        ("", "serializeImagePulls: true\nmaxParallelImagePulls: 1", 1),
    ] {
        assert_eq!(with_file(args, file).image_pulls.parallel, parallel, "{args} {file}");
    }
}

#[test]
fn mistakes_on_the_command_line_are_named_with_a_hint() {
    for (args, text) in [
        (
            "--pod-manifest-pth=/x",
            "error: unknown flag: --pod-manifest-pth\nhint: did you mean `--pod-manifest-path`?",
        ),
        ("--banana", "error: unknown flag: --banana"),
        (
            "--staticPodPath=/x",
            "error: unknown flag: --staticPodPath\nhint: `staticPodPath` is a config field; the flag is `--pod-manifest-path`",
        ),
        ("--kubeconfig=/x", "error: flag --kubeconfig is not supported by this version yet"),
        ("--eviction_hard x", "error: flag --eviction-hard is not supported by this version yet"),
        ("-x", "error: unknown flag: -x"),
        ("-config=/x", "error: unknown flag: -config=/x\nhint: long flags have two dashes: `--config`"),
        ("--=x", "error: bad flag syntax: --=x"),
        ("---v", "error: bad flag syntax: ---v"),
        ("--config", "error: flag needs an argument: --config"),
        ("-v", "error: flag needs an argument: -v"),
        (
            "--cpu-cfs-quota false",
            "error: unexpected argument \"false\"\nhint: a switch takes its value after `=`, like `--cpu-cfs-quota=false`",
        ),
        ("run", "error: unexpected argument \"run\"\nhint: run `crablet --help` for what can be said"),
        ("-- --v", "error: unexpected argument \"--v\"\nhint: run `crablet --help` for what can be said"),
        ("-", "error: unexpected argument \"-\"\nhint: run `crablet --help` for what can be said"),
        (
            "--healthz-port=x",
            "error: invalid argument \"x\" for --healthz-port: expected a whole number from 0 to 65535",
        ),
        (
            "--healthz-port=65536",
            "error: invalid argument \"65536\" for --healthz-port: expected a whole number from 0 to 65535",
        ),
        (
            "--registry-qps=-1",
            "error: invalid argument \"-1\" for --registry-qps: expected a whole number, at least 0",
        ),
        (
            "--cpu-cfs-quota=yes",
            "error: invalid argument \"yes\" for --cpu-cfs-quota: expected `true` or `false`",
        ),
        (
            "--sync-frequency=20",
            "error: invalid argument for --sync-frequency: \"20\" has no unit; add one of `ns`, `us`, `ms`, `s`, `m`, `h`",
        ),
        ("--sync-frequency=1ms", "error: --sync-frequency is 1ms\nhint: give at least `100ms`"),
        (
            "--root-dir=relative",
            "error: --root-dir is \"relative\"\nhint: give an absolute path without `..`",
        ),
        ("--root-dir=/a/../b", "error: --root-dir is \"/a/../b\"\nhint: give an absolute path without `..`"),
        ("--address=localhost", "error: --address is \"localhost\"\nhint: give an IP address"),
        (
            "--manifest-url=ftp://x",
            "error: --manifest-url is not an http or https address\nhint: write it like `https://example.com/pods.yaml`",
        ),
        (
            "--container-runtime-endpoint=tcp://x:1",
            "error: --container-runtime-endpoint is \"tcp://x:1\"\nhint: give a unix socket, such as `unix:///run/containerd/containerd.sock`",
        ),
        ("--config=/missing", "error: cannot read config file \"/missing\": entity not found"),
        (
            "--address=x --cluster-dns=y",
            "error: --address is \"x\"\nhint: give an IP address\nerror: --cluster-dns is \"y\"\nhint: give an IP address",
        ),
        (
            "explain",
            "error: explain needs the name of a pod\nhint: crablet explain [NAMESPACE/]POD [--root-dir DIR]; for example `crablet explain default/web-node1`",
        ),
        (
            "explain a/b/c",
            "error: \"b/c\" cannot be the name of a pod or namespace\nhint: crablet explain [NAMESPACE/]POD [--root-dir DIR]; for example `crablet explain default/web-node1`",
        ),
        ("explain a --config x", "error: unknown flag: --config"),
    ] {
        assert_eq!(refused(args, ""), text, "{args}");
    }
}

#[test]
fn mistakes_in_the_file_are_all_named() {
    const IN: &str = "error: config file \"/etc/crablet/config.yaml\": ";
    for (file, text) in [
        (
            "evictionHard: {memory.available: 1Mi}",
            "field \"evictionHard\" is not supported by this version yet",
        ),
        (
            "authentication: {anonymous: {enabled: true}}",
            "field \"authentication\" is not supported by this version yet",
        ),
        ("logging: {format: json}", "field \"logging.format\" is not supported by this version yet"),
        ("foo: 1", "unknown field \"foo\""),
        ("logging: {foo: 1}", "unknown field \"logging.foo\""),
        ("staticPodpath: /x", "unknown field \"staticPodpath\"\nhint: did you mean `staticPodPath`?"),
        ("logging: 4", "field \"logging\" must be an object, not a number"),
        ("healthzPort: '10248'", "field \"healthzPort\" must be a whole number, not a text"),
        ("healthzPort: 1.5", "field \"healthzPort\" must be a whole number, not a number with a fraction"),
        ("healthzPort: -1", "field \"healthzPort\" is -1: expected a whole number from 0 to 65535"),
        (
            "maxParallelImagePulls: 0",
            "field \"maxParallelImagePulls\" is 0: expected a whole number, at least 1",
        ),
        ("syncFrequency: 60", "field \"syncFrequency\" must be a duration such as \"1m30s\", not a number"),
        (
            "syncFrequency: 1d",
            "field \"syncFrequency\": \"1d\" has the unknown unit \"d\"; use one of `ns`, `us`, `ms`, `s`, `m`, `h`",
        ),
        ("cpuCFSQuota: 'true'", "field \"cpuCFSQuota\" must be true or false, not a text"),
        ("clusterDNS: 10.0.0.1", "field \"clusterDNS\" must be a list of texts, not a text"),
        ("clusterDNS: [1]", "field \"clusterDNS[0]\" must be a text, not a number"),
        ("staticPodURLHeader: {A: b}", "field \"staticPodURLHeader.A\" must be a list of texts, not a text"),
    ] {
        assert_eq!(refused("", file), format!("{IN}{text}"), "{file}");
    }
    let both = refused("", "foo: 1\nbar: 2");
    assert!(both.contains("\"foo\"") && both.contains("\"bar\"") && both.lines().count() == 2, "{both}");
    let twice = refused("", "healthzPort: 1\nhealthzPort: 2");
    assert!(twice.starts_with(IN) && twice.contains("duplicate") && !twice.contains('\n'), "{twice}");
    let both = refused("", "serializeImagePulls: true\nmaxParallelImagePulls: 2");
    assert!(both.starts_with("error: field \"maxParallelImagePulls\" is 2 while"), "{both}");
    let long = refused("", "crashLoopBackOff: {maxContainerRestartPeriod: 301s}");
    assert!(
        long.starts_with("error: field \"crashLoopBackOff.maxContainerRestartPeriod\" is 301s"),
        "{long}"
    );
}

#[test]
fn a_file_that_is_no_kubelet_configuration_is_refused() {
    for (file, text) in [
        ("", " is empty"),
        (" \n", " is empty"),
        ("[]", " holds a list, not a KubeletConfiguration"),
        ("{}", ": apiVersion or kind is missing"),
        ("apiVersion: v1\nkind: Pod", ": it is a \"Pod\" of \"v1\""),
        ("{", ": "),
    ] {
        let found = command("--config=/etc/crablet/config.yaml", file).expect_err(file);
        let start = format!("error: config file \"/etc/crablet/config.yaml\"{text}");
        assert!(found.starts_with(&start), "{file}: {found}");
    }
    let json =
        r#"{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","healthzPort":7}"#;
    match command("--config=/etc/crablet/config.yaml", json) {
        Ok(Command::Run(settings)) => assert_eq!(settings.healthz_port, Some(7)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn help_names_every_setting_and_version_is_what_kubeadm_expects() {
    for args in ["--help", "-h", "--v=4 --help"] {
        match command(args, "") {
            Ok(Command::Help(text)) => {
                for setting in crablet_config::table::SETTINGS {
                    let name = setting
                        .flag
                        .map_or(setting.field.unwrap_or_default().to_owned(), |flag| format!("--{flag}"));
                    assert!(text.contains(&name), "{name}");
                }
                assert!(text.lines().all(|line| line.len() <= 100), "{text}");
            }
            other => panic!("{args}: {other:?}"),
        }
    }
    let version = format!("Kubernetes v1.36.4+crablet-{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(command("--version", ""), Ok(Command::Version(version)));
    assert!(matches!(command("--version=false", ""), Ok(Command::Run(_))));
}

#[test]
fn explain_takes_a_pod_and_a_root_directory() {
    let explain = |namespace: &str, pod: &str, root_dir: &str| {
        let (namespace, pod) = (namespace.to_owned(), pod.to_owned());
        Ok(Command::Explain { namespace, pod, root_dir: PathBuf::from(root_dir) })
    };
    assert_eq!(command("explain web", ""), explain("default", "web", "/var/lib/kubelet"));
    assert_eq!(command("explain kube-system/web --root-dir /x", ""), explain("kube-system", "web", "/x"));
    assert!(matches!(command("explain --help", ""), Ok(Command::Help(_))));
}

#[test]
fn names_leave_the_unsupported_lists_when_they_enter_the_table() {
    use crablet_config::{table::SETTINGS, upstream};
    for setting in SETTINGS {
        assert!(setting.flag.is_none_or(|flag| !upstream::FLAGS.contains(&flag)), "{}", setting.name());
        assert!(setting.field.is_none_or(|field| !upstream::FIELDS.contains(&field)), "{}", setting.name());
    }
}

proptest! {
    #[test]
    fn no_arguments_panic(args in proptest::collection::vec("(--?)?[a-z_=-]{0,12}(=\\PC{0,12})?|--v=\\PC{0,8}", 0..6)) {
        let env = Environment { hostname: "node".to_owned() };
        let _ = parse(args.into_iter().map(OsString::from), &env, |_| Err(io::Error::other("no")));
    }

    #[test]
    fn no_file_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[a-zA-Z0-9:{}\\[\\], \n&*!|>'\"#-]{0,200}") {
        let env = Environment { hostname: "node".to_owned() };
        for file in [bytes, config(&text).into_bytes(), text.into_bytes()] {
            let _ = parse([OsString::from("--config=/x")].into_iter(), &env, |_| Ok(file.clone()));
        }
    }

    #[test]
    fn no_value_of_a_field_panics(field in 0..crablet_config::table::SETTINGS.len(), value in "\\PC{0,20}") {
        if let Some(field) = crablet_config::table::SETTINGS[field].field {
            let _ = command("--config=/etc/crablet/config.yaml", &config(&format!("{field}: {value}")));
        }
    }
}
