//! What is typed, and what it becomes.

mod support;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crablet_config::{
    Answer, Authentication, Authorization, ChangeDetection, CheckOutput, Command, ImagePulls, LogFormat,
    Settings, Taint, TlsVersion, reload_diff,
};
use support::Tree;

const FILE: &str = "/etc/crablet/config.yaml";

fn command(args: &str, file: &str) -> Result<Command, String> {
    let files = Tree(BTreeMap::from([(PathBuf::from(FILE), file.as_bytes().to_vec())]));
    support::parse(args, &files).map_err(|error| error.to_string())
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
    if file.is_empty() { args.to_owned() } else { format!("--config={FILE} {args}") }
}

fn config(file: &str) -> String {
    format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{file}\n")
}

fn answer(args: &str, file: &str) -> Answer {
    match command(args, &config(file)) {
        Ok(Command::Config(answer)) => answer,
        other => panic!("{args}: {other:?}"),
    }
}

#[test]
fn nothing_said_means_these_defaults() {
    let found = settings("");
    let seconds = Duration::from_secs;
    assert_eq!((found.static_pod_path.clone(), found.static_pod_url.clone()), (None, None));
    assert_eq!((found.file_check_frequency, found.http_check_frequency), (seconds(20), seconds(20)));
    assert_eq!((found.sync_frequency, found.runtime_request_timeout), (seconds(60), seconds(120)));
    assert_eq!(found.root_dir, PathBuf::from("/var/lib/kubelet"));
    assert_eq!(found.pod_logs_dir, PathBuf::from("/var/log/pods"));
    assert_eq!(found.container_logs_dir, PathBuf::from("/var/log/containers"));
    assert_eq!(found.container_runtime_endpoint, "unix:///run/containerd/containerd.sock");
    assert_eq!(found.image_pulls, ImagePulls { parallel: 5, qps: 5.0, burst: 10 });
    assert_eq!(found.node_name, "node1");
    assert_eq!((found.read_only_port, found.healthz_port, found.port), (None, Some(10248), 10250));
    assert_eq!(found.healthz_bind_address, IpAddr::from([127, 0, 0, 1]));
    assert_eq!(found.max_container_restart_period, seconds(300));
    assert!(found.cpu_cfs_quota && !found.seccomp_default && !found.run_once);
    assert_eq!(found.resolv_conf, Some(PathBuf::from("/etc/resolv.conf")));
    assert_eq!((found.oom_score_adj, found.max_open_files), (-999, 1_000_000));
    assert_eq!((found.logging.format, found.logging.verbosity), (LogFormat::Text, 0));
    assert_eq!(found.local_socket(), PathBuf::from("/var/lib/kubelet/crablet.sock"));
    assert!(
        found.warnings.is_empty() && found.not_yet.is_empty(),
        "{:?} {:?}",
        found.warnings,
        found.not_yet
    );
    assert!(found.feature_gates.enabled("NodeSwap"));
    assert!(found.configz.contains("\"anonymous\":{\"enabled\":false}"), "{}", &*found.configz);
}

#[test]
fn flags_may_be_spelled_as_gos_parser_allows() {
    for args in
        ["--healthz-port=1", "--healthz-port 1", "--healthz_port=1", "--healthz-port=7 --healthz-port=0x1"]
    {
        assert_eq!(settings(args).healthz_port, Some(1), "{args}");
    }
    for args in ["-v=4", "-v4", "-v 4", "--v=4", "--v 4", "-v 1 --v 4"] {
        assert_eq!(settings(args).logging.verbosity, 4, "{args}");
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
    assert_eq!(settings("--root-dir=/a/../b").root_dir, PathBuf::from("/b"));
    assert_eq!(settings("--root-dir=relative").root_dir, PathBuf::from("/cwd/relative"));
    assert_eq!(settings("--container-runtime-endpoint=/a.sock").container_runtime_endpoint, "unix:///a.sock");
    assert_eq!(settings("--hostname-override=OTHER.example").node_name, "other.example");
    assert_eq!(settings("--sync-frequency=1h2m3.5s").sync_frequency, Duration::from_millis(3_723_500));
    assert_eq!(settings("--file-check-frequency=1ms").file_check_frequency, Duration::from_millis(100));
    assert_eq!(settings("--vmodule=a=1,b*=2").logging.vmodule, [("a".to_owned(), 1), ("b*".to_owned(), 2)]);
    assert_eq!(settings("--node-ip=10.0.0.1,::1").node_ips.len(), 2);
    assert_eq!(settings("--node-labels=a=b,c --node-labels=d=e").node_labels.len(), 3);
    assert!(settings("--runonce").run_once);
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
    let view = answer("config view --manifest-url=http://h/ --manifest-url-header=Authorization:secret", "");
    assert!(view.stdout.contains("Authorization: <masked>") && !view.stdout.contains("secret"), "{view:?}");
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let file = "syncFrequency: 2m\ncpuCFSQuota: false\nlogging: {verbosity: 3}\nresolvConf: ''\n\
                crashLoopBackOff: {maxContainerRestartPeriod: 10s}\nregistryPullQPS: 0";
    let found = with_file("--sync-frequency=3m", file);
    assert_eq!(found.sync_frequency, Duration::from_secs(180));
    assert_eq!(found.max_container_restart_period, Duration::from_secs(10));
    assert_eq!((found.cpu_cfs_quota, found.logging.verbosity, found.resolv_conf), (false, 3, None));
    assert_eq!(found.image_pulls.qps, 0.0);
    // Upstream joins these two with "or".
    assert!(with_file("--seccomp-default=false", "seccompDefault: true").seccomp_default);
    assert!(with_file("--seccomp-default", "seccompDefault: false").seccomp_default);
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

fn with_drop_ins(args: &str, drop_ins: &[(&str, &str)]) -> Result<Command, String> {
    let mut files =
        BTreeMap::from([(PathBuf::from(FILE), config("maxPods: 5\nclusterDNS: [10.0.0.1]").into_bytes())]);
    files.extend(
        drop_ins.iter().map(|(name, text)| (PathBuf::from("/conf.d").join(name), text.as_bytes().to_vec())),
    );
    support::parse(args, &Tree(files)).map_err(|error| error.to_string())
}

#[test]
fn drop_ins_come_between_the_file_and_the_flags() {
    let (first, second) =
        (config("maxPods: 6\nport: 6\nsyncFrequency: 6s"), config("\nmaxPods: 7\nsyncFrequency: null"));
    let drop_ins = [("b.conf", second.as_str()), ("a.conf", first.as_str()), ("c.txt", "{")];
    let args = format!("config view --config={FILE} --config-dir=/conf.d --port=7");
    let Ok(Command::Config(view)) = with_drop_ins(&args, &drop_ins) else { panic!("{args}") };
    for (start, end) in [
        ("maxPods: 7 ", "# /conf.d/b.conf:4"),
        ("port: 7 ", "# flag --port"),
        ("syncFrequency: 1m0s ", "# default"),
        ("clusterDNS: ", "# /etc/crablet/config.yaml:4"),
    ] {
        assert!(
            view.stdout.lines().any(|line| line.starts_with(start) && line.ends_with(end)),
            "{}",
            view.stdout
        );
    }
}

#[test]
fn bad_drop_ins_are_named() {
    let twice = config("maxPods: 6\nmaxPods: 7");
    let wrong = config("maxPods: many");
    for (drop_in, text) in [
        (
            twice.as_str(),
            "/conf.d/a.conf:4: field \"maxPods\" is already set in this object\nhint: keep one of them",
        ),
        (wrong.as_str(), "/conf.d/a.conf:3: field \"maxPods\" must be a whole number, not a text"),
        ("maxPods: 1", "/conf.d/a.conf: Object 'Kind' is missing\nhint: start the file with"),
        ("", "kubelet config file \"/conf.d/a.conf\" was empty"),
    ] {
        let error = with_drop_ins("--config-dir=/conf.d", &[("a.conf", drop_in)]).expect_err(drop_in);
        assert!(error.starts_with(&format!("error: {text}")), "{error}");
    }
    let error = with_drop_ins("--config-dir=/nowhere", &[]).expect_err("no such folder");
    assert!(
        error.starts_with("error: failed to walk through kubelet dropin directory \"/nowhere\": "),
        "{error}"
    );
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
        (
            "--podLogsDir=/x",
            "error: unknown flag: --podLogsDir\nhint: `podLogsDir` can only be said in the file behind `--config`",
        ),
        (
            "--network_plugin=cni",
            "error: unknown flag: --network-plugin\nhint: it was removed in 1.24: the network is configured in the container runtime",
        ),
        (
            "--docker-tls=x",
            "error: unknown flag: --docker-tls\nhint: there is no docker any more; take it out",
        ),
        ("-x", "error: unknown shorthand flag: 'x' in -x"),
        (
            "-config=/x",
            "error: unknown shorthand flag: 'c' in -config=/x\nhint: long flags have two dashes: `--config`",
        ),
        ("--=x", "error: bad flag syntax: --=x"),
        ("---v", "error: bad flag syntax: ---v"),
        ("--config", "error: flag needs an argument: --config"),
        ("-v", "error: flag needs an argument: -v"),
        (
            "--cpu-cfs-quota false",
            "error: unknown command false\nhint: a switch takes its value after `=`, like `--cpu-cfs-quota=false`",
        ),
        ("run", "error: unknown command run\nhint: run `crablet --help` for what can be said"),
        ("-- --v", "error: unknown command --v\nhint: run `crablet --help` for what can be said"),
        (
            "--v=1 explain",
            "error: unknown command explain\nhint: a subcommand comes first: `crablet explain ...`",
        ),
        (
            "--healthz-port=x",
            "error: invalid argument \"x\" for \"--healthz-port\" flag: give a whole number",
        ),
        (
            "--healthz-port=65536",
            "error: invalid configuration: healthzPort (--healthz-port) 65536 must be between 1 and 65535, inclusive\nhint: give a whole number from 0 to 65535",
        ),
        ("--v=-1", "error: invalid argument \"-1\" for \"-v, --v\" flag: give a whole number, at least 0"),
        (
            "--cpu-cfs-quota=yes",
            "error: invalid argument \"yes\" for \"--cpu-cfs-quota\" flag: give `true` or `false`",
        ),
        (
            "--sync-frequency=20",
            "error: invalid argument \"20\" for \"--sync-frequency\" flag: \"20\" has no unit; add one of `ns`, `us`, `ms`, `s`, `m`, `h`",
        ),
        (
            "--address=localhost",
            "error: invalid argument \"localhost\" for \"--address\" flag: \"localhost\" is not a valid IP address",
        ),
        (
            "--manifest-url=ftp://x",
            "error: staticPodURL (--manifest-url) is not an http or https address\nhint: write it like `https://example.com/pods.yaml`",
        ),
        (
            "--feature-gates=GracefulNodeShutdwn=true",
            "error: unrecognized feature gate: GracefulNodeShutdwn\nhint: did you mean `GracefulNodeShutdown`?",
        ),
        ("--config=/missing", "error: failed to read kubelet config file \"/missing\": entity not found"),
        (
            "--max-pods=-1 --port=0",
            "error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number\nhint: give a whole number, at least 0\nerror: invalid configuration: port (--port) 0 must be between 1 and 65535, inclusive\nhint: give a whole number from 1 to 65535",
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
        ("check -o yaml", "error: unknown output \"yaml\"\nhint: give `text` or `json`"),
        (
            "config",
            "error: config needs a command\nhint: crablet config view [-o origin|yaml|json] [the agent's flags], or crablet config check FILE...",
        ),
    ] {
        assert_eq!(refused(args, ""), text, "{args}");
    }
}

#[test]
fn mistakes_in_the_file_are_all_named_with_their_lines() {
    for (file, text) in [
        ("logging: 4", "3: field \"logging\" must be an object, not a number"),
        ("\nhealthzPort: '10248'", "4: field \"healthzPort\" must be a whole number, not a text"),
        ("healthzPort: 1.5", "3: field \"healthzPort\" must be a whole number, not a number with a fraction"),
        (
            "syncFrequency: 60",
            "3: field \"syncFrequency\" must be a duration such as \"1m30s\", not a number",
        ),
        (
            "syncFrequency: 1d",
            "3: field \"syncFrequency\": \"1d\" has the unknown unit \"d\"; use one of `ns`, `us`, `ms`, `s`, `m`, `h`",
        ),
        ("cpuCFSQuota: 'true'", "3: field \"cpuCFSQuota\" must be true or false, not a text"),
        ("clusterDNS: 10.0.0.1", "3: field \"clusterDNS\" must be a list, not a text"),
        (
            "clusterDNS:\n- 1",
            "4: field \"clusterDNS[0]\" must be a text, not a number\nhint: put it in quotes",
        ),
        ("staticPodURLHeader: {A: b}", "3: field \"staticPodURLHeader.A\" must be a list, not a text"),
        (
            "port: 70000",
            "3: invalid configuration: port (--port) 70000 must be between 1 and 65535, inclusive\nhint: give a whole number from 1 to 65535",
        ),
        ("a: b: c", "3: "),
    ] {
        let found = refused("", file);
        assert!(found.starts_with(&format!("error: {FILE}:{text}")), "{file}: {found}");
    }
    let both = refused("", "logging: 1\nclusterDNS: 2");
    assert!(both.contains(":3: ") && both.contains(":4: ") && both.lines().count() == 2, "{both}");
}

#[test]
fn what_upstream_forgives_is_a_warning() {
    let found = with_file("--max-pods=9", "foo: 1\nhealthzPort: 1\nhealthzPort: 2\nstaticPodpath: /x");
    assert_eq!((found.healthz_port, found.static_pod_path), (Some(2), None));
    assert_eq!(
        found.warnings,
        [
            "Flag --max-pods has been deprecated, This parameter should be set via the config file specified by the Kubelet's --config flag. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information.".to_owned(),
            format!("Using lenient decoding as strict decoding failed: {FILE}: strict decoding error: line 3: unknown field \"foo\", line 6: unknown field \"staticPodpath\", line 5: field \"healthzPort\" is already set in this object"),
        ]
    );
}

#[test]
fn what_is_accepted_but_not_acted_upon_is_named() {
    let found = with_file(
        "--max-pods=9 --kubelet-cgroups=/k --containerd=/x --allowed-unsafe-sysctls=",
        "evictionSoft: {}\ntlsCurvePreferences: [29]\nfailSwapOn: true\nsyncFrequency: 3s",
    );
    assert_eq!(found.not_yet, ["tlsCurvePreferences", "--kubelet-cgroups"]);
    // JSON is spoken whatever is said; who spells the default out need not hear of it.
    let protobuf = "contentType: application/vnd.kubernetes.protobuf";
    assert!(with_file("", protobuf).not_yet.is_empty());
    assert_eq!(with_file("", "contentType: application/cbor").not_yet, ["contentType"]);
}

#[test]
fn view_shows_who_said_what() {
    let view = answer(
        &format!("config view --config={FILE} --max-pods=9 --pod-cidr=10.0.0.0/8"),
        "syncFrequency: 90s\nport: 0",
    );
    assert!(!view.failed, "{view:?}");
    let line =
        |start: &str| view.stdout.lines().find(|line| line.starts_with(start)).expect(start).to_owned();
    assert_eq!(line("maxPods: ").split_once(" # ").expect("an origin").1, "flag --max-pods");
    assert_eq!(
        line("podCIDR: ").split_once(" # ").expect("an origin").1,
        "flag --pod-cidr; accepted, not acted upon yet"
    );
    assert!(line("maxPods: 9 ").len() > 60);
    assert_eq!(line("syncFrequency: 1m30s").split_once(" # ").expect("an origin").1, format!("{FILE}:3"));
    assert_eq!(line("port: 10250").split_once(" # ").expect("an origin").1, "default");
    assert!(view.stderr.starts_with("warning: Flag --max-pods has been deprecated"), "{}", view.stderr);

    let json = answer(&format!("config view -o json --config={FILE}"), "maxPods: 9").stdout;
    let yaml = answer(&format!("config view -o=yaml --config={FILE}"), "maxPods: 9").stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("json");
    assert_eq!(json["maxPods"], 9);
    assert_eq!(crablet_config::yaml::parse(&yaml).expect("yaml").to_json(), json);

    let broken = answer("config view --max-pods=-1", "");
    assert!(broken.failed && broken.stdout.contains("maxPods: -1"), "{broken:?}");
    assert!(refused("config view -o xml", "").contains("unknown output \"xml\""));
}

#[test]
fn check_says_whether_a_file_is_valid() {
    let fine = answer(&format!("config check {FILE}"), "syncFrequency: 1m");
    assert_eq!((fine.stdout.as_str(), fine.failed), (format!("{FILE} is valid\n").as_str(), false));
    let later = answer(&format!("config check {FILE}"), "maxPods: 1\npodCIDR: 10.0.0.0/8");
    assert_eq!(later.stdout, format!("{FILE} is valid; accepted, not acted upon yet: podCIDR\n"));
    let inside =
        answer(&format!("config check {FILE}"), "registerWithTaints:\n- {key: a, efect: NoSchedule}");
    assert_eq!(
        inside.stderr,
        format!(
            "error: {FILE}:4: unknown field \"registerWithTaints[0].efect\"\nhint: did you mean `effect`?\n"
        )
    );
    let wrong = answer(&format!("config check {FILE} /missing"), "maxPod: 1\nport: 1\nport: 2");
    assert!(wrong.failed && wrong.stdout.is_empty());
    assert_eq!(
        wrong.stderr,
        format!(
            "error: {FILE}:3: unknown field \"maxPod\"\nhint: did you mean `maxPods`?\n\
             error: {FILE}:5: field \"port\" is already set in this object\nhint: keep one of them\n\
             error: failed to read kubelet config file \"/missing\": entity not found\n"
        )
    );
}

#[test]
fn the_machine_is_checked_with_the_agents_own_flags() {
    match command("check --root-dir=/x -o json", "") {
        Ok(Command::Check(options)) => {
            assert_eq!((options.settings.root_dir.to_str(), options.output), (Some("/x"), CheckOutput::Json));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_is_no_kubelet_configuration_is_refused() {
    for (file, text) in [
        ("", "kubelet config file \"/etc/crablet/config.yaml\" was empty"),
        (" \n", "/etc/crablet/config.yaml: Object 'Kind' is missing"),
        ("[]", "/etc/crablet/config.yaml: it holds a list, not a KubeletConfiguration"),
        ("{}", "/etc/crablet/config.yaml: Object 'Kind' is missing"),
        ("kind: KubeletConfiguration", "/etc/crablet/config.yaml: Object 'apiVersion' is missing"),
        (
            "apiVersion: v1\nkind: Pod",
            "/etc/crablet/config.yaml: no kind \"Pod\" is registered for version \"v1\"",
        ),
        ("{", "/etc/crablet/config.yaml:"),
    ] {
        let found = command(&format!("--config={FILE}"), file).expect_err(file);
        assert!(found.starts_with(&format!("error: {text}")), "{file}: {found}");
    }
    let json =
        r#"{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","healthzPort":7}"#;
    match command(&format!("--config={FILE}"), json) {
        Ok(Command::Run(settings)) => assert_eq!(settings.healthz_port, Some(7)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn help_names_every_setting_and_version_is_what_kubeadm_expects() {
    for args in ["--help", "-h", "--v=4 --help"] {
        match command(args, "") {
            Ok(Command::Help(text)) => {
                for setting in crablet_config::schema::settings() {
                    let name = setting.flag.map_or(setting.key(), |flag| format!("--{flag}"));
                    assert!(text.contains(&name), "{name}");
                }
                let long = text.lines().find(|line| line.len() > 100 && line.split_whitespace().count() > 1);
                assert_eq!(long, None);
            }
            other => panic!("{args}: {other:?}"),
        }
    }
    for args in ["config --help", "config view -h", "config check --help", "check --help", "explain --help"] {
        assert!(matches!(command(args, ""), Ok(Command::Help(_))), "{args}");
    }
    let version = format!("Kubernetes v1.36.4+crablet-{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(command("--version", ""), Ok(Command::Version(version)));
    assert!(
        matches!(command("--version=raw", ""), Ok(Command::Version(text)) if text.starts_with("version.Info{Major:\"1\""))
    );
    assert!(matches!(command("--version=false", ""), Ok(Command::Run(_))));
    assert_eq!(&*settings("--version=v1.36.4-mine").reported_version, "v1.36.4-mine");
    assert_eq!(
        refused("--version=v1.35.0", ""),
        "error: invalid argument \"v1.35.0\" for \"--version\" flag: version \"v1.35.0\" must match major/minor/patch of default version \"v1.36.4\""
    );
}

#[test]
fn explain_takes_a_pod_and_a_root_directory() {
    let explain = |namespace: &str, pod: &str, root_dir: &str| {
        let (namespace, pod) = (namespace.to_owned(), pod.to_owned());
        Ok(Command::Explain { namespace, pod, root_dir: PathBuf::from(root_dir) })
    };
    assert_eq!(command("explain web", ""), explain("default", "web", "/var/lib/kubelet"));
    assert_eq!(command("explain kube-system/web --root-dir /x", ""), explain("kube-system", "web", "/x"));
}

#[test]
fn pulls_takes_a_root_directory_and_nothing_else() {
    let pulls = |root_dir: &str| Ok(Command::Pulls { root_dir: PathBuf::from(root_dir) });
    assert_eq!(command("pulls", ""), pulls("/var/lib/kubelet"));
    assert_eq!(command("pulls --root-dir=/x", ""), pulls("/x"));
    assert_eq!(
        refused("pulls web", ""),
        "error: unexpected argument \"web\": pulls takes none\nhint: crablet pulls [--root-dir DIR]"
    );
}

#[test]
fn a_reload_knows_what_needs_a_restart() {
    let old = with_file("", "maxPods: 5\nlogging: {verbosity: 1}\nclusterDNS: [10.0.0.1]");
    assert!(reload_diff(&old, &old.clone()).is_empty());
    let new = with_file("", "maxPods: 6\nlogging: {verbosity: 2}\ncontainerRuntimeEndpoint: /x");
    let found = reload_diff(&old, &new);
    assert_eq!(found.now, ["logging.verbosity", "clusterDNS"]);
    assert_eq!(found.needs_restart, ["containerRuntimeEndpoint", "maxPods"]);
}

#[test]
fn a_node_in_a_cluster_has_these_defaults() {
    let seconds = Duration::from_secs;
    let found = settings("--kubeconfig=/k");
    assert!(!found.is_standalone() && settings("").is_standalone());
    assert!(found.register_node && !found.rotate_certificates && !found.server_tls_bootstrap);
    assert!(!found.cloud_provider_external && found.register_with_taints.is_empty());
    assert_eq!((found.tls_cert_file, found.tls_private_key_file, found.provider_id), (None, None, None));
    assert_eq!(found.tls_min_version, TlsVersion::Tls12);
    assert_eq!(found.node_status_update_frequency, seconds(10));
    assert_eq!(found.node_status_report_frequency, seconds(300));
    assert_eq!((found.node_status_max_images, found.node_lease_duration_seconds), (Some(50), 40));
    assert_eq!((found.kube_api_qps, found.kube_api_burst), (50, 100));
    assert_eq!((found.event_record_qps, found.event_burst), (50, 100));
    assert_eq!((found.max_pods, found.pods_per_core, found.pod_pids_limit), (110, 0, None));
    assert_eq!(found.cpu_cfs_quota_period, Duration::from_millis(100));
    assert!(found.cgroups_per_qos && found.enable_controller_attach_detach && found.enable_server);
    assert!(found.local_storage_capacity_isolation && found.enable_debugging_handlers);
    assert_eq!(found.enforce_node_allocatable, ["pods"]);
    // Thresholds come with a file, as upstream.
    assert!(found.eviction_hard.is_empty());
    assert_eq!(with_file("", "port: 1").eviction_hard["memory.available"], "100Mi");
    assert_eq!(found.change_detection_strategy, ChangeDetection::Watch);
    let authentication = Authentication {
        client_ca_file: None,
        anonymous: false,
        webhook: true,
        webhook_cache_ttl: seconds(120),
    };
    assert_eq!(found.authentication, authentication);
    let authorization = Authorization { webhook: true, allow_ttl: seconds(300), deny_ttl: seconds(30) };
    assert_eq!(found.authorization, authorization);
}

#[test]
fn what_a_cluster_is_told_arrives() {
    let file = "registerWithTaints: [{key: a, effect: NoSchedule}]\nnodeStatusUpdateFrequency: 4s\n\
                systemReserved: {cpu: 100m}\nkubeReserved: {memory: 1Gi}\npodPidsLimit: 100\n\
                configMapAndSecretChangeDetectionStrategy: Cache\ntlsMinVersion: VersionTLS11\n\
                authentication: {x509: {clientCAFile: ca.crt}}\nauthorization: {mode: AlwaysAllow}\n\
                tlsCertFile: a.crt\ntlsPrivateKeyFile: a.key\nnodeStatusMaxImages: -1";
    let found = with_file("--cloud-provider=external --enforce-node-allocatable=none", file);
    let taint = Taint { key: "a".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
    assert_eq!(found.register_with_taints, [taint]);
    // Reported as often as computed, unless something else was said.
    assert_eq!(found.node_status_report_frequency, Duration::from_secs(4));
    let both = with_file("", "nodeStatusUpdateFrequency: 4s\nnodeStatusReportFrequency: 6m");
    assert_eq!(both.node_status_report_frequency, Duration::from_secs(360));
    assert_eq!(
        (found.system_reserved["cpu"].as_str(), found.kube_reserved["memory"].as_str()),
        ("100m", "1Gi")
    );
    assert_eq!((found.pod_pids_limit, found.node_status_max_images), (Some(100), None));
    assert_eq!(found.change_detection_strategy, ChangeDetection::Cache);
    assert_eq!(found.tls_min_version, TlsVersion::Tls12);
    assert!(found.warnings.iter().any(|text| text.starts_with("tlsMinVersion is VersionTLS11")));
    assert_eq!(found.authentication.client_ca_file, Some(PathBuf::from("/etc/crablet/ca.crt")));
    assert_eq!(found.tls_cert_file, Some(PathBuf::from("/etc/crablet/a.crt")));
    assert!(!found.authorization.webhook && found.cloud_provider_external);
    assert!(found.enforce_node_allocatable.is_empty());
    assert!(found.not_yet.is_empty(), "{:?}", found.not_yet);
}
