//! What the environment takes from config maps, secrets and services.

use crablet_model::runtime::EnvValue;
use serde_json::{Value, json};

use super::super::{EnvObjects, Missing, Service, env_references, service_env};
use super::{Around, one};

/// A config map, a secret, and services.
fn around() -> Around {
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let map = [("COLOUR", "blue"), ("size", "9"), ("REF", "$(COLOUR)")].map(text);
    let secret = [("PASS", &b"p"[..]), ("BLOB", &b"\xff"[..])]
        .map(|(key, value)| (key.to_owned(), EnvValue::from(value.to_vec())));
    let not_there = |kind: &str, name: &str| Missing::NotThere(format!("{kind} {name:?} not found"));
    let objects = EnvObjects {
        config_maps: [
            ("m".to_owned(), Ok(map.into())),
            ("gone".to_owned(), Err(not_there("configmap", "gone"))),
            ("dark".to_owned(), Err(Missing::Unknown("failed to sync configmap cache".to_owned()))),
        ]
        .into(),
        secrets: [
            ("s".to_owned(), Ok(secret.into())),
            ("gone".to_owned(), Err(not_there("secret", "gone"))),
            ("dark".to_owned(), Err(Missing::Unknown("failed to sync secret cache".to_owned()))),
        ]
        .into(),
        services: [("DB_SERVICE_HOST", "10.96.0.5"), ("COLOUR", "of a service"), ("EMPTY", "")]
            .map(text)
            .into(),
        ..EnvObjects::default()
    };
    Around { objects, ..Around::default() }
}

/// The environment as `NAME=value`.
fn env(container: Value) -> Result<Vec<String>, String> {
    let config = around().container(container)?;
    Ok(config.env.iter().map(|(name, value)| format!("{name}={value}")).collect())
}

/// The same without the services that nobody mentions.
fn own(container: Value) -> Result<Vec<String>, String> {
    let services = ["DB_SERVICE_HOST=10.96.0.5", "COLOUR=of a service", "EMPTY="];
    Ok(env(container)?.into_iter().filter(|var| !services.contains(&var.as_str())).collect())
}

fn whole(kind: &str, name: &str, prefix: &str, optional: bool) -> Value {
    json!({"prefix": prefix, kind: {"name": name, "optional": optional}})
}

fn key(kind: &str, name: &str, key: &str, optional: Option<bool>) -> Value {
    json!({"name": "X", "valueFrom": {kind: {"name": name, "key": key, "optional": optional}}})
}

#[test]
fn whole_objects_come_with_their_prefix_and_later_ones_win() {
    let from = |sources: Value| own(json!({"name": "c", "envFrom": sources})).expect("a container");
    assert_eq!(
        from(json!([whole("configMapRef", "m", "", false)])),
        ["COLOUR=blue", "REF=$(COLOUR)", "size=9"]
    );
    assert_eq!(from(json!([whole("secretRef", "s", "DB_", false)])), ["DB_BLOB=\u{fffd}", "DB_PASS=p"]);
    // The prefix makes the names meet.
    let both = own(json!({
        "name": "c",
        "envFrom": [whole("secretRef", "s", "", false), whole("configMapRef", "m", "my.", false)],
        "env": [{"name": "PASS", "value": "own"}, {"name": "my.size", "value": "$(my.size)0"}],
    }));
    let expected = ["BLOB=\u{fffd}", "PASS=own", "my.COLOUR=blue", "my.REF=$(COLOUR)", "my.size=90"];
    assert_eq!(both.expect("a container"), expected, "the container's own word counts most");
}

#[test]
fn single_keys_are_taken_as_they_are() {
    let value = |var: Value| own(json!({"name": "c", "env": [var]})).expect("a container");
    assert_eq!(value(key("configMapKeyRef", "m", "size", None)), ["X=9"]);
    assert_eq!(value(key("configMapKeyRef", "m", "REF", None)), ["X=$(COLOUR)"], "a value is no template");
    assert_eq!(value(key("secretKeyRef", "s", "PASS", None)), ["X=p"]);
}

#[test]
fn a_value_that_is_no_text_is_given_as_it_is() {
    let config = around().container(json!({
        "name": "c",
        "envFrom": [whole("secretRef", "s", "", false)],
        "env": [key("secretKeyRef", "s", "BLOB", None), {"name": "Y", "value": "<$(X)$(PASS)$(X)>"}],
    }));
    let config = config.expect("a container");
    let value = |name: &str| config.env.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_bytes());
    assert_eq!(value("BLOB"), Some(&b"\xff"[..]));
    assert_eq!(value("X"), Some(&b"\xff"[..]));
    assert_eq!(value("Y"), Some(&b"<\xffp\xff>"[..]));
}

#[test]
fn commands_and_paths_are_text() {
    let container = |field: &str, of_field: Value| {
        let mut container = json!({"name": "c", "env": [key("secretKeyRef", "s", "BLOB", None)]});
        container[field] = of_field;
        container
    };
    let refused = |container: Value| around().container(container).expect_err("a refusal");
    let why = "grpc: error while marshaling: string field contains invalid UTF-8";
    assert_eq!(refused(container("command", json!(["run", "-$(X)"]))), why);
    assert_eq!(refused(container("args", json!(["$(X)"]))), why);
    assert!(around().container(container("args", json!(["$$(X)"]))).is_ok());
    // What cannot be configured is said first.
    let mut both = container("command", json!(["$(X)"]));
    both["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    assert_eq!(refused(both), "cannot find volume \"v\" to mount into container \"c\"");
    let part = json!([{"name": "v", "mountPath": "/v", "subPathExpr": "a/$(X)"}]);
    let refused = around().sub_paths(container("volumeMounts", part)).expect_err("a refusal");
    assert_eq!(refused, "the value of \"a/$(X)\" is no text");
}

#[test]
fn what_is_optional_and_not_there_is_left_out() {
    for var in [
        key("configMapKeyRef", "gone", "k", Some(true)),
        key("configMapKeyRef", "m", "nope", Some(true)),
        key("secretKeyRef", "gone", "k", Some(true)),
        key("secretKeyRef", "s", "nope", Some(true)),
    ] {
        let container = json!({"name": "c", "env": [{"name": "X", "value": "earlier"}, var, {"name": "Y", "value": "y"}]});
        assert_eq!(own(container).expect("a container"), ["X=earlier", "Y=y"], "{var}");
    }
    let sources = [whole("configMapRef", "gone", "", true), whole("secretRef", "gone", "", true)];
    assert!(own(json!({"name": "c", "envFrom": sources})).expect("a container").is_empty());
}

#[test]
fn what_is_needed_and_missing_is_said_in_upstreams_words() {
    let of_var = |var: Value| json!({"name": "c", "env": [var]});
    let of_whole = |source: Value| json!({"name": "c", "envFrom": [source]});
    for (container, expected) in [
        (of_var(key("configMapKeyRef", "m", "nope", None)), "couldn't find key nope in ConfigMap shop/m"),
        (of_var(key("secretKeyRef", "s", "nope", Some(false))), "couldn't find key nope in Secret shop/s"),
        (of_var(key("configMapKeyRef", "gone", "k", None)), "configmap \"gone\" not found"),
        (of_var(key("secretKeyRef", "gone", "k", None)), "secret \"gone\" not found"),
        (of_whole(whole("configMapRef", "gone", "", false)), "configmap \"gone\" not found"),
        (of_whole(whole("secretRef", "gone", "", false)), "secret \"gone\" not found"),
        // Nobody knows whether it is there: optional or not, the container waits.
        (of_var(key("configMapKeyRef", "dark", "k", Some(true))), "failed to sync configmap cache"),
        (of_var(key("secretKeyRef", "dark", "k", Some(true))), "failed to sync secret cache"),
        (of_whole(whole("configMapRef", "dark", "", true)), "failed to sync configmap cache"),
        (of_whole(whole("secretRef", "dark", "", true)), "failed to sync secret cache"),
    ] {
        assert_eq!(env(container.clone()), Err(expected.to_owned()), "{container}");
    }
}

#[test]
fn services_are_known_to_references_and_never_replace_what_is_said() {
    let config = around()
        .container(json!({
            "name": "c",
            "env": [
                {"name": "URL", "value": "tcp://$(DB_SERVICE_HOST)/$(COLOUR)/$(LATER)"},
                {"name": "COLOUR", "value": "mine, not $(COLOUR)"},
                {"name": "LATER", "value": "$(COLOUR)"},
            ],
            "command": ["$(DB_SERVICE_HOST)", "$(COLOUR)"],
        }))
        .expect("a container");
    let env: Vec<_> = config.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        env,
        [
            "URL=tcp://10.96.0.5/of a service/$(LATER)",
            "COLOUR=mine, not of a service",
            "LATER=mine, not of a service",
            "DB_SERVICE_HOST=10.96.0.5",
            "EMPTY=",
        ]
    );
    assert_eq!(config.command, ["10.96.0.5", "mine, not of a service"]);
}

#[test]
fn services_have_the_names_that_links_once_had() {
    let port = |name: &str, protocol: &str, port| (name.to_owned(), protocol.to_owned(), port);
    let service =
        |name: &str, ip: &str, ports| Service { name: name.to_owned(), cluster_ip: ip.to_owned(), ports };
    let vars = service_env(&[
        service("my-db", "10.96.0.5", vec![port("", "", 5432), port("dns-udp", "UDP", 53)]),
        service("v6", "fd00::5", vec![port("http", "TCP", 80)]),
        service("portless", "10.96.0.9", Vec::new()),
    ]);
    let vars: Vec<_> = vars.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        vars,
        [
            "MY_DB_PORT=tcp://10.96.0.5:5432",
            "MY_DB_PORT_53_UDP=udp://10.96.0.5:53",
            "MY_DB_PORT_53_UDP_ADDR=10.96.0.5",
            "MY_DB_PORT_53_UDP_PORT=53",
            "MY_DB_PORT_53_UDP_PROTO=udp",
            "MY_DB_PORT_5432_TCP=tcp://10.96.0.5:5432",
            "MY_DB_PORT_5432_TCP_ADDR=10.96.0.5",
            "MY_DB_PORT_5432_TCP_PORT=5432",
            "MY_DB_PORT_5432_TCP_PROTO=tcp",
            "MY_DB_SERVICE_HOST=10.96.0.5",
            "MY_DB_SERVICE_PORT=5432",
            "MY_DB_SERVICE_PORT_DNS_UDP=53",
            "V6_PORT=tcp://[fd00::5]:80",
            "V6_PORT_80_TCP=tcp://[fd00::5]:80",
            "V6_PORT_80_TCP_ADDR=fd00::5",
            "V6_PORT_80_TCP_PORT=80",
            "V6_PORT_80_TCP_PROTO=tcp",
            "V6_SERVICE_HOST=fd00::5",
            "V6_SERVICE_PORT=80",
            "V6_SERVICE_PORT_HTTP=80",
        ]
    );
}

#[test]
fn each_object_is_asked_for_once() {
    let pod = one(json!({
        "name": "c",
        "envFrom": [whole("configMapRef", "m", "", false), whole("secretRef", "s", "", false)],
        "env": [
            key("configMapKeyRef", "m", "k", None), key("configMapKeyRef", "a", "k", None),
            key("secretKeyRef", "s", "k", None), {"name": "Y", "value": "y"},
        ],
    }));
    let found = env_references(&pod.spec.expect("a spec").containers[0]);
    assert_eq!((found.config_maps, found.secrets), (super::strings(&["a", "m"]), super::strings(&["s"])));
}
