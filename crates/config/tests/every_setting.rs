//! Every row of the table: its default, a round trip through `config view -o json`, and a value that it refuses.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crablet_config::schema::{self, Items, Kind, Pairs, Setting};
use crablet_config::{Command, Settings};
use serde_json::Value;
use support::Tree;

const FILE: &str = "/etc/crablet/config.yaml";

fn run(args: &str, file: &str) -> Result<Settings, String> {
    let file = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{file}\n");
    let files = Tree(BTreeMap::from([(PathBuf::from(FILE), file.into_bytes())]));
    match support::parse(args, &files) {
        Ok(Command::Run(settings)) => Ok(*settings),
        Ok(other) => panic!("{args}: {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

fn configz(settings: &Settings) -> Value {
    serde_json::from_str(&settings.configz).expect("json")
}

fn at(tree: &Value, path: &str) -> Value {
    path.split('.').fold(tree.clone(), |value, name| value[name].clone())
}

/// A value that is allowed and is not the default: as typed behind the flag, and as JSON in the file.
fn other_value(setting: &Setting) -> (String, String) {
    let same = |text: &str| (text.to_owned(), text.to_owned());
    let quoted = |text: &str| (text.to_owned(), format!("{text:?}"));
    let key = setting.key();
    match key.as_str() {
        "containerRuntimeEndpoint" | "imageServiceEndpoint" => quoted("unix:///x.sock"),
        "staticPodURL" => quoted("https://example.com/"),
        "imagePullCredentialsVerificationPolicy" => quoted("AlwaysVerify"),
        "hairpinMode" => quoted("hairpin-veth"),
        "topologyManagerPolicy" => quoted("restricted"),
        "topologyManagerScope" => quoted("pod"),
        "cpuManagerPolicy" => quoted("static"),
        "memoryManagerPolicy" => quoted("Static"),
        "memorySwap.swapBehavior" => quoted("LimitedSwap"),
        "configMapAndSecretChangeDetectionStrategy" => quoted("Get"),
        "authorization.mode" => quoted("AlwaysAllow"),
        "tlsMinVersion" => quoted("VersionTLS13"),
        "logging.format" => quoted("json"),
        "cgroupDriver" => quoted("systemd"),
        "showHiddenMetricsForVersion" => quoted("1.35"),
        "reservedSystemCPUs" => quoted("0-1"),
        "containerLogMaxSize" => quoted("20Mi"),
        "systemReserved" | "kubeReserved" => ("cpu=1".to_owned(), r#"{"cpu":"1"}"#.to_owned()),
        "qosReserved" => ("memory=50%".to_owned(), r#"{"memory":"50%"}"#.to_owned()),
        "evictionHard" => ("memory.available<1Gi".to_owned(), r#"{"memory.available":"1Gi"}"#.to_owned()),
        "evictionSoftGracePeriod" => {
            ("memory.available=1m".to_owned(), r#"{"memory.available":"1m"}"#.to_owned())
        }
        "evictionMinimumReclaim" => {
            ("memory.available=1Gi".to_owned(), r#"{"memory.available":"1Gi"}"#.to_owned())
        }
        "tlsCipherSuites" => {
            ("TLS_AES_128_GCM_SHA256".to_owned(), r#"["TLS_AES_128_GCM_SHA256"]"#.to_owned())
        }
        "enforceNodeAllocatable" => ("none".to_owned(), r#"["none"]"#.to_owned()),
        "allowedUnsafeSysctls" => ("net.a".to_owned(), r#"["net.a"]"#.to_owned()),
        "clusterDNS" => ("10.0.0.1".to_owned(), r#"["10.0.0.1"]"#.to_owned()),
        "featureGates" => ("EventedPLEG=true".to_owned(), r#"{"EventedPLEG":true}"#.to_owned()),
        "maxParallelImagePulls" => same("1"),
        "imageGCLowThresholdPercent" => same("7"),
        "imageGCHighThresholdPercent" => same("99"),
        "userNamespaces.idsPerPod" => same("131072"),
        "memoryThrottlingFactor" => same("0.5"),
        "cpuCFSQuotaPeriod" => quoted("7ms"),
        "imageMaximumGCAge" => quoted("1h0m0s"),
        "--node-ip" => same("10.0.0.1"),
        "--cloud-provider" => same("external"),
        _ => by_kind(setting),
    }
}

fn by_kind(setting: &Setting) -> (String, String) {
    let quoted = |text: &str| (text.to_owned(), format!("{text:?}"));
    match setting.kind {
        Kind::Bool => {
            let other = (setting.default != Some("true")).to_string();
            (other.clone(), other)
        }
        Kind::Int32 | Kind::Int64 | Kind::Level => ("7".to_owned(), "7".to_owned()),
        Kind::Float => ("0.5".to_owned(), "0.5".to_owned()),
        Kind::Duration | Kind::Flush => quoted("7s"),
        Kind::Text(_) => quoted("text"),
        Kind::Path => quoted("/some/path"),
        Kind::Ip => quoted("10.1.2.3"),
        Kind::Quantity => quoted("64Ki"),
        Kind::TextList(_) => ("a".to_owned(), r#"["a"]"#.to_owned()),
        Kind::Int32List => (String::new(), "[29]".to_owned()),
        Kind::TextMap(Pairs::Less) => ("a<b".to_owned(), r#"{"a":"b"}"#.to_owned()),
        Kind::TextMap(_) => ("a=b".to_owned(), r#"{"a":"b"}"#.to_owned()),
        Kind::BoolMap => ("a=true".to_owned(), r#"{"a":true}"#.to_owned()),
        Kind::Headers => ("A:b".to_owned(), r#"{"A":["b"]}"#.to_owned()),
        Kind::Objects(Items::Taints) => {
            ("a=b:NoSchedule".to_owned(), r#"[{"effect":"NoSchedule","key":"a","value":"b"}]"#.to_owned())
        }
        Kind::Objects(Items::VModule) => {
            ("a=1".to_owned(), r#"[{"filePattern":"a","verbosity":1}]"#.to_owned())
        }
        Kind::Objects(Items::ReservedMemory) => {
            ("0:memory=1Gi".to_owned(), r#"[{"limits":{"memory":"1Gi"},"numaNode":0}]"#.to_owned())
        }
        Kind::Objects(Items::ShutdownByPriority) => {
            (String::new(), r#"[{"priority":1,"shutdownGracePeriodSeconds":2}]"#.to_owned())
        }
    }
}

/// What else must be said for the value to be allowed.
fn company(key: &str) -> &'static str {
    match key {
        "logging.options.text.splitStream"
        | "logging.options.json.splitStream"
        | "logging.options.text.infoBufferSize"
        | "logging.options.json.infoBufferSize" => "featureGates: {LoggingAlphaOptions: true}",
        "shutdownGracePeriodCriticalPods" => "shutdownGracePeriod: 1m",
        "systemCgroups" => "cgroupRoot: /",
        "cgroupsPerQOS" => "enforceNodeAllocatable: [none]",
        "preloadedImagesVerificationAllowlist" => {
            "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages"
        }
        "memoryReservationPolicy" => "featureGates: {MemoryQoS: true}",
        "enableSystemLogHandler" => "enableSystemLogQuery: false",
        "evictionSoft" => "evictionSoftGracePeriod: {memory.available: 1m}",
        "--exit-on-lock-contention" => "lock",
        _ => "",
    }
}

fn other(setting: &Setting) -> (String, String) {
    match setting.key().as_str() {
        "evictionSoft" => ("memory.available<1Gi".to_owned(), r#"{"memory.available":"1Gi"}"#.to_owned()),
        "memoryReservationPolicy" => (String::new(), "\"TieredReservation\"".to_owned()),
        _ => other_value(setting),
    }
}

/// The file that says one field, its objects around it.
fn file_of(path: &str, json: &str) -> String {
    path.rsplit('.')
        .fold(json.to_owned(), |inner, name| format!("{{{name:?}: {inner}}}"))
        .trim_start_matches('{')
        .strip_suffix('}')
        .map_or_else(String::new, str::to_owned)
}

#[test]
fn every_field_says_its_default_and_goes_round() {
    let defaults = configz(&run(&format!("--config={FILE}"), "").expect("the defaults"));
    for (path, setting) in schema::fields() {
        let (_, json) = other(setting);
        let company = company(path);
        let file = format!("{company}\n{}", file_of(path, &json));
        let found = run(&format!("--config={FILE}"), &file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let expected: Value = serde_json::from_str(&json).expect("json");
        assert_eq!(at(&configz(&found), path), expected, "{path}");
        assert_ne!(at(&defaults, path), expected, "{path}");
        // What `/configz` shows, given back as a file, is the same configuration.
        let again = run(&format!("--config={FILE}"), &body(&configz(&found)));
        assert_eq!(again.map(|again| again.configz), Ok(found.configz), "{path}");
        // Saying the default is as good as saying nothing.
        if let Some(default) = setting.default {
            let shown = at(&defaults, path);
            let typed = crablet_config::value::from_default(setting).expect("a default");
            assert!(shown.is_null() || shown == typed, "{path}: {shown} {default}");
        }
    }
}

/// The inside of a KubeletConfiguration as lines of JSON values.
fn body(configz: &Value) -> String {
    let map = configz.as_object().expect("an object").iter();
    map.filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect()
}

#[test]
fn every_flag_sets_its_field() {
    for setting in schema::settings() {
        let Some(flag) = setting.flag.filter(|flag| !["config", "config-dir"].contains(flag)) else {
            continue;
        };
        let (typed, json) = other(setting);
        let company = company(&setting.key());
        let args = match company {
            "lock" => format!("--lock-file=/x --{flag}={typed}"),
            "" => format!("--{flag}={typed}"),
            _ => format!("--config={FILE} --{flag}={typed}"),
        };
        let found = run(&args, company).unwrap_or_else(|error| panic!("{args}: {error}"));
        if let Some(path) = setting.field {
            let expected: Value = serde_json::from_str(&json).expect("json");
            assert_eq!(at(&configz(&found), path), expected, "{args}");
        }
        let notice = setting.deprecated.map(|notice| format!("Flag --{flag} has been deprecated, {notice}"));
        assert_eq!(
            found.warnings.first().filter(|text| text.starts_with("Flag --")),
            notice.as_ref(),
            "{args}"
        );
    }
}

#[test]
fn every_flag_and_field_refuses_nonsense() {
    for setting in schema::settings() {
        let (typed, why) = match setting.kind {
            Kind::Bool => ("maybe", "give `true` or `false`"),
            Kind::Int32 | Kind::Int64 => ("many", "give a whole number"),
            Kind::Level => ("-1", "give a whole number, at least 0"),
            Kind::Duration | Kind::Flush => ("10", "has no unit"),
            Kind::Ip => ("localhost", "is not a valid IP address"),
            Kind::Quantity => ("much", "is not a quantity"),
            Kind::TextMap(Pairs::Equals | Pairs::One) => ("a", "malformed pair, expect string=string"),
            Kind::TextMap(Pairs::Less) => ("a", "malformed pair, expect string<string"),
            Kind::BoolMap => ("a", "malformed pair, expect string=bool"),
            Kind::Headers => ("a", "malformed pair, expect string:string"),
            Kind::TextList(_) => ("\"a", "its quotes do not match"),
            Kind::Objects(Items::Taints) => ("a", "invalid taint spec: a"),
            Kind::Objects(Items::VModule) => ("a", "does not have the pattern=N format"),
            Kind::Objects(Items::ReservedMemory) => ("a", "the reserved memory has incorrect format"),
            _ => ("", ""),
        };
        if let Some(flag) = setting.flag.filter(|_| !why.is_empty()) {
            let error = run(&format!("--{flag}={typed}"), "").expect_err(flag);
            assert!(error.starts_with("error: invalid argument ") && error.contains(why), "{flag}: {error}");
            assert!(error.contains(&format!("--{flag}\" flag: ")), "{flag}: {error}");
        }
        if let Some(path) = setting.field {
            // No field takes a list of lists.
            let error = run(&format!("--config={FILE}"), &file_of(path, "[[1]]")).expect_err(path);
            assert!(error.starts_with(&format!("error: {FILE}:")), "{path}: {error}");
            assert!(
                error.contains(&format!("field \"{path}")) && error.contains(" must be "),
                "{path}: {error}"
            );
        }
    }
}
