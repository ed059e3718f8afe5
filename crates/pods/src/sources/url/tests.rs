use super::super::testing::{Rig, manifest, new_disk, settings, with_image};
use super::*;

const URL: &str = "http://manifests.example/pods";
const EMPTY: [&str; 0] = [];

fn rig() -> Rig {
    let headers = vec![("X-Key".to_owned(), "1".to_owned()), ("X-Key".to_owned(), "2".to_owned())];
    let url = Some(URL.to_owned());
    Rig::with(&new_disk(), SourceSettings { folder: None, url, url_headers: headers, ..settings() })
}

fn list(names: &[&str]) -> String {
    let item = |name: &&str| {
        format!("{{metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}]}}}}")
    };
    format!(
        "{{apiVersion: v1, kind: PodList, items: [{}]}}",
        names.iter().map(item).collect::<Vec<_>>().join(", ")
    )
}

/// The updates of one poll.
async fn poll(rig: &mut Rig) -> Vec<String> {
    rig.told_within(Duration::from_secs(20)).await
}

#[tokio::test(start_paused = true)]
async fn each_answer_is_what_the_pods_are_until_the_next_good_one() {
    let mut rig = rig();
    rig.web.answers(503, "503 Service Unavailable", manifest("no"));
    // Nothing is said for the URL before it has answered well.
    assert_eq!(poll(&mut rig).await, ["Submitted Add"]);
    type Answer = (u16, String);
    let steps: [(&str, Answer, &[&str]); 9] = [
        ("a pod", (200, manifest("a")), &["Url Add a-n1"]),
        ("the same", (200, manifest("a")), &EMPTY),
        ("a list", (200, list(&["b", "c"])), &["Url Remove a-n1", "Url Add b-n1 c-n1"]),
        ("nonsense", (200, "nonsense".to_owned()), &EMPTY),
        ("one bad pod in a list", (200, list(&["d", "''"])), &EMPTY),
        ("an empty answer", (200, String::new()), &["Url Remove b-n1 c-n1"]),
        ("the list again", (200, list(&["b", "c"])), &["Url Add b-n1 c-n1"]),
        ("another good status", (204, String::new()), &EMPTY),
        ("an empty list", (200, list(&[])), &["Url Remove b-n1 c-n1"]),
    ];
    for (what, (status, body), expected) in steps {
        rig.web.answers(status, "", body);
        assert_eq!(poll(&mut rig).await, expected, "{what}");
    }
    rig.web.fails(FetchError::Connection("refused".to_owned()));
    assert_eq!(poll(&mut rig).await, EMPTY);
}

#[tokio::test(start_paused = true)]
async fn the_headers_go_with_each_request() {
    let mut rig = rig();
    rig.told_within(Duration::from_secs(50)).await;
    let asked = rig.web.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 3, "at once, then every 20 s");
    for (url, headers) in asked {
        assert_eq!(url, URL);
        assert_eq!(headers, [("X-Key".to_owned(), "1".to_owned()), ("X-Key".to_owned(), "2".to_owned())]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_given_twice_in_a_list_is_an_event() {
    let mut rig = rig();
    let twice = list(&["a", "b"]).replace("name: b}, spec: {", "name: a}, spec: {hostNetwork: true, ");
    rig.web.answers(200, "", twice);
    assert_eq!(poll(&mut rig).await, ["Submitted Add", "Url Add a-n1"]);
    let messages = rig.events.messages();
    assert_eq!(messages.len(), 1);
    assert!(
        messages[0].starts_with("Warning FailedValidation: Error validating pod a-n1_default("),
        "{messages:?}"
    );
    assert!(messages[0].ends_with(" from http due to duplicate pod name \"a-n1\", ignoring"), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn problems_name_the_url_and_the_field_and_no_password() {
    let outlet = {
        let (sender, _receiver) = tokio::sync::mpsc::channel(1);
        let clock = std::sync::Arc::new(crablet_host::SystemClock);
        Outlet::new(sender, clock, std::sync::Arc::new(super::super::testing::Heard::default()))
    };
    let url = "https://me:secret@manifests.example/pods?x=a@b".to_owned();
    let mut poll = Poll { url, node_name: "n1".to_owned(), gates: Gates::default(), seen: None };
    let mut problem = async |status, line: &str, body: String| {
        let fetched = Fetched { status, status_line: line.to_owned(), body: body.into_bytes() };
        poll.state(Ok(fetched), &outlet).await.unwrap().unwrap_err()
    };
    let shown = "`https://manifests.example/pods?x=a@b`";
    assert_eq!(problem(404, "404 Not Found", String::new()).await, format!("{shown}: 404 Not Found"));
    let bad_image = problem(200, "200 OK", with_image("web", "' busybox'")).await;
    assert!(bad_image.starts_with(&format!("{shown}: spec.containers[0].image: ")), "{bad_image}");
}
