use super::*;
use serde_json::json;

fn create(pod: &str, container: &str) -> Value {
    json!({
        "pod_sandbox_id": "1",
        "config": { "metadata": { "name": container } },
        "sandbox_config": { "metadata": { "name": pod } },
    })
}

fn facts(request: &Value) -> Facts<'_> {
    Facts { path: "/runtime.v1.RuntimeService/CreateContainer", verb: "", user: "", request: Some(request) }
}

#[test]
fn requests_are_known_by_what_they_say() {
    let request = create("web", "main");
    for (matcher, expected) in [
        (Matcher::any(), true),
        (Matcher::method("CreateContainer"), true),
        (Matcher::method("*Container"), true),
        (Matcher::method("RunPodSandbox"), false),
        (Matcher::any().pod("web").container("main"), true),
        (Matcher::any().pod("main"), false),
        (Matcher::any().container("web"), false),
        (Matcher::any().field("/config/metadata/name", "main"), true),
        (Matcher::any().field("/config/metadata/name", "other"), false),
        (Matcher::any().field("/config/no/such", "main"), false),
        (Matcher::any().user("system:*"), false),
        (Matcher::any().when(|facts| facts.path.ends_with("Container")), true),
    ] {
        assert_eq!(matcher.matches(&facts(&request)), expected, "{matcher:?}");
    }
    let sandbox = json!({ "config": { "metadata": { "name": "web" } } });
    assert!(Matcher::any().pod("web").matches(&facts(&sandbox)));
    assert!(!Matcher::any().container("web").matches(&facts(&sandbox)));
}

#[test]
fn rules_have_their_turns() {
    let turns = |rule: Rule| -> Vec<u64> {
        let rules = Rules::default();
        rules.add(rule);
        let request = create("web", "main");
        (1..=6).filter(|_| rules.decide(&facts(&request)).is_some()).collect()
    };
    let rule = || Rule::new(Matcher::any(), Action::Drop);
    assert_eq!(turns(rule()), [1, 2, 3, 4, 5, 6]);
    assert_eq!(turns(rule().first(2)), [1, 2]);
    assert_eq!(turns(rule().nth(3)), [3]);
    assert_eq!(turns(rule().after(4)), [5, 6]);
    assert_eq!(turns(rule().between(2, 3)), [2, 3]);
}

#[test]
fn the_first_rule_decides_until_its_turns_are_over_or_it_is_removed() {
    let rules = Rules::default();
    let request = create("web", "main");
    let decided = || rules.decide(&facts(&request)).map(|fired| fired.rule);
    let first = rules.add(Rule::new(Matcher::any(), Action::Drop).named("a").first(1));
    let second = rules.add(Rule::new(Matcher::any(), Action::Drop));
    assert_eq!(decided().as_deref(), Some("a"));
    assert_eq!(decided().as_deref(), Some("rule 2"));
    assert_eq!((rules.fired(first), rules.fired(second)), (1, 1));
    rules.wait_fired(second, 1, Duration::ZERO).unwrap();
    assert!(rules.wait_fired(second, 2, Duration::ZERO).is_err());
    rules.remove(second);
    assert_eq!(decided(), None);
}
