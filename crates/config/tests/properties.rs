//! Whatever is typed or written: an answer, without a panic, soon, and without eating the machine.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crablet_config::merge::merge_patch;
use crablet_config::{Environment, schema, yaml};
use proptest::prelude::*;
use serde_json::Value;
use support::Tree;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn parse(args: Vec<String>, file: &[u8]) {
    let paths = ["/c.yaml", "/d/a.conf", "/d/b/c.conf"];
    let files =
        Tree(paths.into_iter().map(|path| (PathBuf::from(path), file.to_vec())).collect::<BTreeMap<_, _>>());
    let env = Environment { hostname: "node".to_owned() };
    let _ = crablet_config::parse(args.into_iter().map(OsString::from), &env, &files);
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// RFC 7386, word by word.
fn by_the_book(target: &Value, patch: &Value) -> Value {
    let Some(patch) = patch.as_object() else { return patch.clone() };
    let mut merged = target.as_object().cloned().unwrap_or_default();
    for (name, value) in patch {
        match value {
            Value::Null => {
                merged.remove(name);
            }
            value => {
                let inner = by_the_book(merged.get(name).unwrap_or(&Value::Null), value);
                merged.insert(name.clone(), inner);
            }
        }
    }
    merged.into()
}

proptest! {
    #[test]
    fn no_arguments_panic(args in proptest::collection::vec("(--?)?[a-z_=-]{0,12}(=\\PC{0,12})?|--v=\\PC{0,8}", 0..6)) {
        parse(args, b"");
    }

    #[test]
    fn no_value_of_a_flag_panics(index in 0..schema::settings().count(), value in "\\PC{0,24}|[0-9a-z,=:;<.%\"-]{0,24}") {
        if let Some(flag) = schema::settings().nth(index).and_then(|setting| setting.flag) {
            parse(vec![format!("--{flag}={value}")], b"");
            parse(vec!["config".into(), "view".into(), format!("--{flag}={value}"), format!("--{flag}={value}")], b"");
        }
    }

    #[test]
    fn no_file_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[a-zA-Z0-9:{}\\[\\], \n&*!|>'\"#<-]{0,200}") {
        for file in [bytes, format!("{HEAD}{text}").into_bytes(), text.into_bytes()] {
            parse(vec!["--config=/c.yaml".into()], &file);
            parse(vec!["--config-dir=/d".into()], &file);
        }
    }

    #[test]
    fn no_value_of_a_field_panics(index in 0..schema::fields().count(), value in json(), text in "\\PC{0,20}") {
        if let Some((path, _)) = schema::fields().nth(index) {
            let nested = path.rsplit('.').fold(value.to_string(), |inner, name| format!("{{{name:?}: {inner}}}"));
            let nested = nested.replacen('{', "", 1);
            for file in [format!("{HEAD}{}", &nested[..nested.len() - 1]), format!("{HEAD}{path}: {text}")] {
                parse(vec!["--config=/c.yaml".into(), "--config-dir=/d".into()], file.as_bytes());
                parse(vec!["config".into(), "check".into(), "/c.yaml".into()], file.as_bytes());
            }
        }
    }

    #[test]
    fn yaml_of_json_is_the_json(value in json()) {
        prop_assert_eq!(yaml::parse(&value.to_string()).map(|node| node.to_json()), Ok(value));
    }

    #[test]
    fn merging_follows_the_rfc(target in json(), patch in json()) {
        let expected = by_the_book(&target, &patch);
        let mut merged = target;
        merge_patch(&mut merged, patch.clone());
        prop_assert_eq!(&merged, &expected);
        merge_patch(&mut merged, patch);
        prop_assert_eq!(merged, expected, "a second time changes nothing");
    }
}

#[test]
fn laughter_is_refused_soon() {
    let mut laughs = format!("{HEAD}a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..40 {
        let before = vec![format!("*a{}", level - 1); 10].join(",");
        laughs.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let deep = format!("{HEAD}a: {}", "[".repeat(200_000));
    let wide = format!("{HEAD}clusterDNS: [{}]", "a,".repeat(200_000));
    for (file, why) in [(laughs, "too many parts"), (deep, ""), (wide, "too many parts")] {
        let files = Tree(BTreeMap::from([(PathBuf::from("/c.yaml"), file.into_bytes())]));
        let error = support::parse("--config=/c.yaml", &files).expect_err("too large").to_string();
        assert!(error.contains(why), "{error}");
    }
}
