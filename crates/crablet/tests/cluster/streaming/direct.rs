//! The kubelet's port without an API server, with a client certificate.

use anyhow::{Context, Result, ensure};
use crablet_testbed::kubelet_port::{KubeletPort, Protocol, Wanted};
use http_body_util::BodyExt;
use tokio::runtime::Runtime;

use crate::cluster::support::{PATIENCE, QUIET, Room, shell_pod};

pub fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

pub fn each_protocol_carries_a_command(room: &Room<'_>) -> Result<()> {
    room.create_ready(&shell_pod("sh", QUIET))?;
    // Without it, an API server turns WebSockets into SPDY before the kubelet sees them.
    let declared = room.get("node/node")?["status"]["declaredFeatures"].to_string();
    ensure!(declared.contains("ExtendWebSocketsToKubelet"), "the node declares {declared}");
    let port = KubeletPort::of(room.cluster)?;
    let path = format!("/exec/{}/sh/main", room.namespace());
    runtime()?.block_on(async {
        for protocol in Protocol::ALL {
            let one = one_protocol(&port, protocol, &path);
            tokio::time::timeout(PATIENCE, one).await?.with_context(|| format!("{protocol:?}"))?;
        }
        anyhow::Ok(())
    })?;
    room.delete(&["pod", "sh"])
}

async fn one_protocol(port: &KubeletPort, protocol: Protocol, path: &str) -> Result<()> {
    let wanted = Wanted::command(&["sh", "-c", "echo out; echo err >&2; exit 42"]);
    let outcome = port.session(protocol, path, &wanted).await?.finish().await?;
    ensure!(outcome.exit_code()? == 42 && outcome.output_text() == "out\n", "{outcome:?}");
    ensure!(outcome.error_text() == "err\n", "{outcome:?}");

    let session = port.session(protocol, path, &Wanted::command(&["head", "-n", "1"]).with_input()).await?;
    session.talker.send(b"a line\n").await?;
    let outcome = session.finish().await?;
    ensure!(outcome.exit_code()? == 0 && outcome.output_text() == "a line\n", "{outcome:?}");

    // The fourth version of the channels on WebSocket has no word for the end of an input.
    if protocol != Protocol::WebSocketV4 {
        let session = port.session(protocol, path, &Wanted::command(&["cat"]).with_input()).await?;
        session.talker.send(b"more\n").await?;
        session.talker.close_input().await?;
        let outcome = session.finish().await?;
        ensure!(outcome.exit_code()? == 0 && outcome.output_text() == "more\n", "{outcome:?}");
    }

    let script = "until [ \"$(stty size 2>/dev/null)\" = '30 100' ]; do sleep 0.1; done; echo large; exit 3";
    let wanted = Wanted { tty: true, ..Wanted::command(&["sh", "-c", script]).with_input() };
    let session = port.session(protocol, path, &wanted).await?;
    session.talker.resize(100, 30).await?;
    let outcome = session.finish().await?;
    ensure!(outcome.exit_code()? == 3 && outcome.output_text() == "large\r\n", "{outcome:?}");

    let wanted = Wanted::command(&["/no/such"]);
    let outcome = port.session(protocol, path, &wanted).await?.finish().await?;
    let error = format!("{:#}", outcome.exit_code().err().context("it ran")?);
    for part in
        ["Internal error occurred: error executing command in container", "\"InternalError\"", "/no/such"]
    {
        ensure!(error.contains(part), "`{part}` is not in: {error}");
    }
    Ok(())
}

pub fn what_is_wrong_is_answered(room: &Room<'_>) -> Result<()> {
    room.create_ready(&shell_pod("sh", QUIET))?;
    let port = KubeletPort::of(room.cluster)?;
    let namespace = room.namespace().to_owned();
    let at = |kind: &str, rest: &str| format!("/{kind}/{namespace}/{rest}");
    runtime()?.block_on(async {
        for protocol in [Protocol::Spdy, Protocol::WebSocketV5] {
            for (path, answer) in [
                (at("exec", "none/main"), "404 Not Found: pod does not exist"),
                (at("attach", "none/main"), "404 Not Found: pod does not exist"),
                (at("exec", "sh/none"), "500 Internal Server Error: container not found (\"none\")"),
            ] {
                let refused = port.session(protocol, &path, &Wanted::command(&["true"])).await;
                let error = refused.err().with_context(|| format!("{path} was not refused"))?.to_string();
                ensure!(error.ends_with(answer), "{protocol:?}: {error}");
            }
        }
        for (path, answer) in [
            (
                at("exec", "sh/main?command=true"),
                "400 Bad Request: you must specify at least 1 of stdin, stdout, stderr",
            ),
            (
                at("exec", "sh/main?command=true&output=1"),
                "500 Internal Server Error: Upgrade request required",
            ),
            (at("containerLogs", "none/main"), "404 Not Found: pod \"none\" does not exist"),
            (at("containerLogs", "sh/none"), "404 Not Found: container \"none\" not found in pod \"sh\""),
            (
                at("containerLogs", "sh/main?tailLines=x"),
                "400 Bad Request: {\"message\": \"Unable to decode query.\"}",
            ),
            (
                at("containerLogs", "sh/main?tailLines=-1"),
                "422 Unprocessable Entity: {\"message\": \"Invalid request.\"}",
            ),
        ] {
            let refused = port.get(&path).await;
            let error = refused.err().with_context(|| format!("{path} was not refused"))?.to_string();
            ensure!(error.ends_with(answer), "{error}");
        }
        let nobody = KubeletPort::asked_by(room.cluster, "nobody", "nothing")?;
        for (protocol, verb) in [(Protocol::Spdy, "create"), (Protocol::WebSocketV5, "get")] {
            let refused = nobody.session(protocol, &at("exec", "sh/main"), &Wanted::command(&["true"])).await;
            let error = refused.err().context("nobody may run commands")?.to_string();
            let answer =
                format!("Forbidden (user=nobody, verb={verb}, resource=nodes, subresource(s)=[proxy])");
            ensure!(error.ends_with(&answer), "{error}");
        }
        let logs = port.get(&at("containerLogs", "sh/main")).await?.collect().await?.to_bytes();
        ensure!(logs.is_empty(), "it said {logs:?}");
        anyhow::Ok(())
    })?;
    room.delete(&["pod", "sh"])
}
