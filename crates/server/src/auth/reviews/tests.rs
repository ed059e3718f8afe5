use std::sync::Mutex;

use crablet_apiserver::{WatchCall, WatchStream};

use super::*;

/// Answers in turn, and remembers the calls.
struct Script {
    answers: Mutex<Vec<Result<&'static str, ErrorKind>>>,
    calls: Mutex<Vec<Call>>,
}

#[async_trait]
impl ApiServer for Script {
    async fn call(&self, call: Call) -> Result<Bytes, ApiError> {
        self.calls.lock().expect("a lock").push(call);
        match self.answers.lock().expect("a lock").remove(0) {
            Ok(body) => Ok(body.into()),
            Err(kind) => Err(ApiError::new(kind, "no")),
        }
    }

    async fn watch(&self, _: WatchCall) -> Result<WatchStream, ApiError> {
        Err(ApiError::new(ErrorKind::Other, "no watches here"))
    }
}

fn script(answers: &[Result<&'static str, ErrorKind>]) -> (Arc<Script>, ApiReviews) {
    let script = Arc::new(Script { answers: Mutex::new(answers.to_vec()), calls: Mutex::default() });
    (script.clone(), ApiReviews::new(script))
}

fn sent(script: &Script) -> Vec<(String, Value)> {
    let calls = script.calls.lock().expect("a lock");
    calls.iter().map(|call| (call.path.clone(), serde_json::from_slice(&call.body).expect("JSON"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_token_is_reviewed_until_there_is_an_answer() {
    let known = r#"{"status":{"authenticated":true,"user":{"username":"jane","uid":"7","groups":["dev"],"extra":{"k":["v"]}}}}"#;
    let (script, reviews) = script(&[Err(ErrorKind::Server), Err(ErrorKind::Unreachable), Ok(known)]);
    let user = UserInfo {
        name: "jane".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["dev".to_owned()],
        extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
    };
    assert_eq!(reviews.token_review("secret").await, Ok(Some(user)));
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": "secret" },
    });
    assert_eq!(sent(&script), vec![("/apis/authentication.k8s.io/v1/tokenreviews".to_owned(), review); 3]);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_yes_is_a_no_or_an_error() {
    let (_, reviews) = script(&[
        Ok(r#"{"status":{"authenticated":false}}"#),
        Ok(r#"{"status":{"error":"token expired"}}"#),
        Ok("secret"),
        Err(ErrorKind::Forbidden),
    ]);
    assert_eq!(reviews.token_review("secret").await, Ok(None));
    assert_eq!(reviews.token_review("secret").await, Err("token expired".to_owned()));
    let garbled = reviews.token_review("secret").await.expect_err("no JSON");
    assert!(!garbled.contains("secret"), "{garbled}");
    assert_eq!(reviews.token_review("secret").await, Err("no".to_owned()), "asked once only");

    let (script, reviews) = script(&[Err(ErrorKind::Server); 5]);
    assert!(reviews.token_review("secret").await.is_err());
    assert_eq!(sent(&script).len(), 5, "not asked for ever");
}

#[tokio::test]
async fn access_is_asked_for_in_upstreams_terms() {
    let (script, reviews) = script(&[
        Ok(r#"{"status":{"allowed":true}}"#),
        Ok(r#"{"status":{"allowed":false,"reason":"no"}}"#),
        Ok(r#"{"status":{"allowed":true,"denied":true}}"#),
    ]);
    let user = UserInfo { name: "jane".to_owned(), groups: vec!["dev".to_owned()], ..UserInfo::default() };
    let wanted =
        AccessAttributes { user: Arc::new(user), verb: "get", subresource: "proxy", node: "node-1".into() };
    assert_eq!(reviews.access_review(&wanted).await, Ok(Decision::Allowed));
    assert_eq!(reviews.access_review(&wanted).await, Ok(Decision::Denied));
    assert!(reviews.access_review(&wanted).await.is_err());
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "jane",
            "groups": ["dev"],
            "resourceAttributes": {
                "verb": "get", "version": "v1", "resource": "nodes", "subresource": "proxy", "name": "node-1",
            },
        },
    });
    assert_eq!(sent(&script)[0], ("/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(), review));
}
