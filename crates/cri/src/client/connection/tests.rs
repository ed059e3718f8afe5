use super::*;

#[test]
fn endpoints_are_unix_sockets() {
    for (endpoint, expected) in [
        ("unix:///run/containerd/containerd.sock", Some("/run/containerd/containerd.sock")),
        ("/run/crio/crio.sock", Some("/run/crio/crio.sock")),
        ("unix://relative.sock", None),
        ("relative.sock", None),
        ("tcp://localhost:3735", None),
        ("", None),
    ] {
        let got = socket_path(endpoint);
        assert_eq!(got.as_deref().ok(), expected, "{endpoint:?}");
        if let Err(error) = got {
            assert!(error.message.contains(&format!("`{endpoint}`")), "{error}");
        }
    }
}

#[test]
fn what_the_runtime_says_is_passed_on_with_and_without_the_code() {
    for (code, kind, name) in [
        (Code::NotFound, ErrorKind::NotFound, "NotFound"),
        (Code::Unimplemented, ErrorKind::Unimplemented, "Unimplemented"),
        (Code::Unavailable, ErrorKind::Unavailable, "Unavailable"),
        (Code::DeadlineExceeded, ErrorKind::DeadlineExceeded, "DeadlineExceeded"),
        (Code::ResourceExhausted, ErrorKind::Exhausted, "ResourceExhausted"),
        (Code::Unknown, ErrorKind::Refused, "Unknown"),
        (Code::InvalidArgument, ErrorKind::Refused, "InvalidArgument"),
        (Code::Cancelled, ErrorKind::Refused, "Canceled"),
    ] {
        let error = error("/s", &Status::new(code, "its words"));
        assert_eq!((error.kind, error.to_string()), (kind, "its words".to_owned()), "{code:?}");
        let with_code = format!("rpc error: code = {name} desc = its words");
        assert_eq!(error.with_code(), with_code);
        let known = if code == Code::Unknown { "its words" } else { with_code.as_str() };
        assert_eq!(error.with_known_code(), known);
    }
}

#[test]
fn what_the_client_found_itself_names_the_socket() {
    let cause = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
    let status = Status::from_error(Box::new(tonic::ConnectError(Box::new(cause))));
    let expected = CriError::new(ErrorKind::Unavailable, "no answer on `/s`: no such file");
    assert_eq!(error("/s", &status), expected);

    let status = Status::from_error(Box::new(tonic::TimeoutExpired(())));
    assert_eq!(error("/s", &status), CriError::new(ErrorKind::DeadlineExceeded, DEADLINE_MESSAGE));
}

#[tokio::test]
async fn nobody_listening_is_unavailable() {
    let connection = Connection::new("unix:///nonexistent/crablet.sock", None).unwrap();
    let call = connection.call(Some(Duration::from_secs(5)), Default::default(), |mut to, q| async move {
        to.runtime.status(q).await
    });
    let error = call.await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.starts_with("no answer on `/nonexistent/crablet.sock`: "), "{error}");
}

#[tokio::test]
async fn a_runtime_that_accepts_and_says_nothing_runs_into_the_deadline() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("silent.sock");
    let _listener = tokio::net::UnixListener::bind(&path).unwrap();
    let connection = Connection::new(path.to_str().unwrap(), None).unwrap();
    let call = connection.call(Some(Duration::from_millis(50)), Default::default(), |mut to, q| async move {
        to.runtime.status(q).await
    });
    assert_eq!(call.await.unwrap_err(), CriError::new(ErrorKind::DeadlineExceeded, DEADLINE_MESSAGE));
}
