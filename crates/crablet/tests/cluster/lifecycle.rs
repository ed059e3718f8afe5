//! How containers of every role begin and end: order, restarts, deadlines. Hooks have a file of their own.
//!
//! Containers write what happens to them into a file of the room, so that its lines tell the order.

use std::fs;

use anyhow::{Context, Result, ensure};
use crablet_testbed::images;
use serde_json::{Value, json};

use super::support::{Room, ensure_has, main_container, shell};

/// Writes a word, runs until it is told to stop, and writes another.
pub fn diary(name: &str) -> String {
    format!(
        "trap 'echo {name} stops >> /room/diary; exit 0' TERM; echo {name} begins >> /room/diary; \
         while true; do sleep 0.1; done"
    )
}

/// A pod whose containers all have the room at `/room`.
pub fn pod_of(room: &Room<'_>, name: &str, containers: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "containers": containers,
            "terminationGracePeriodSeconds": 30,
            "volumes": [{ "name": "room", "hostPath": { "path": room.folder(), "type": "Directory" } }],
        },
    });
    see_the_room(&mut pod["spec"]["containers"]);
    pod
}

fn see_the_room(containers: &mut Value) {
    for container in containers.as_array_mut().into_iter().flatten() {
        container["volumeMounts"] = json!([{ "name": "room", "mountPath": "/room" }]);
    }
}

pub fn with_init(mut pod: Value, mut init: Value) -> Value {
    see_the_room(&mut init);
    pod["spec"]["initContainers"] = init;
    pod
}

pub fn sidecar(name: &str) -> Value {
    let mut container = shell(name, &diary(name));
    container["restartPolicy"] = json!("Always");
    container
}

/// What the containers wrote.
pub fn lines(room: &Room<'_>) -> Vec<String> {
    let text = fs::read_to_string(room.folder().join("diary")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A container that runs may not have come to its first word yet.
pub fn ensure_lines(room: &Room<'_>, expected: &[&str]) -> Result<()> {
    let waited = room.until("as many lines as expected", || Ok(lines(room).len() >= expected.len()));
    let lines = lines(room);
    ensure!(lines == expected, "the diary says {lines:#?}");
    waited
}

pub fn init_containers_run_one_after_the_other(room: &Room<'_>) -> Result<()> {
    let once = "echo second tries >> /room/diary; [ -e /room/tried ] || { touch /room/tried; exit 3; }";
    let init = json!([shell("first", "sleep 1; echo first ends >> /room/diary"), shell("second", once)]);
    let pod = with_init(pod_of(room, "staged", json!([shell("main", &diary("main"))])), init);
    room.create_ready(&pod)?;
    ensure_lines(room, &["first ends", "second tries", "second tries", "main begins"])?;
    let seen = room.get("pod/staged")?;
    let statuses = &seen["status"]["initContainerStatuses"];
    for (index, name, restarts) in [(0, "first", 0), (1, "second", 1)] {
        let status = &statuses[index];
        let state = &status["state"]["terminated"];
        ensure!(
            status["name"] == name
                && status["ready"] == true
                && status["restartCount"] == restarts
                && state["exitCode"] == 0
                && state["reason"] == "Completed",
            "the status of {name}: {status:#}"
        );
    }
    ensure!(main_container(&seen)["restartCount"] == 0, "{:#}", seen["status"]);
    for place in ["spec.initContainers{first}", "spec.initContainers{second}", "spec.containers{main}"] {
        room.event_at("pod/staged", "Started", place)?;
    }
    room.delete(&["pod", "staged"])
}

pub fn a_failed_init_container_fails_the_pod(room: &Room<'_>) -> Result<()> {
    let init = json!([shell("first", "echo so it goes; exit 3")]);
    let mut pod = with_init(pod_of(room, "stuck", json!([shell("main", &diary("main"))])), init);
    pod["spec"]["restartPolicy"] = json!("Never");
    room.create(&pod)?;
    room.wait("pod/stuck", "jsonpath={.status.phase}=Failed")?;
    let seen = room.get("pod/stuck")?;
    let first = &seen["status"]["initContainerStatuses"][0]["state"]["terminated"];
    ensure!(first["exitCode"] == 3, "the init container: {first}");
    let main = &main_container(&seen)["state"]["waiting"];
    ensure!(main["reason"] == "PodInitializing", "the other container: {main}");
    ensure!(room.kubectl(&["logs", "stuck", "-c", "first"])? == "so it goes\n", "its log is another");
    ensure_lines(room, &[])?;
    room.delete(&["pod", "stuck"])
}

pub fn sidecars_begin_first_and_end_last(room: &Room<'_>) -> Result<()> {
    let init =
        json!([sidecar("outer"), shell("between", "echo between ends >> /room/diary"), sidecar("inner"),]);
    room.create_ready(&with_init(pod_of(room, "carried", json!([shell("main", &diary("main"))])), init))?;
    // A sidecar has started when its process runs: what it writes may come a moment after the next one's words.
    room.until("everybody's begin", || Ok(lines(room).len() == 4))?;
    let begun = lines(room);
    let place = |line: &str| begun.iter().position(|l| l == line);
    ensure!(place("between ends") < place("main begins"), "the diary says {begun:#?}");
    ensure!(place("inner begins").is_some() && place("outer begins").is_some(), "the diary says {begun:#?}");
    let shown = room.kubectl(&["get", "pod", "carried"])?;
    ensure_has(&shown, &["3/3", "Running"])?;
    room.delete(&["pod", "carried"])?;
    ensure!(lines(room)[4..] == ["main stops", "inner stops", "outer stops"], "{:#?}", lines(room));
    Ok(())
}

pub fn sidecars_do_not_keep_a_finished_pod(room: &Room<'_>) -> Result<()> {
    let work = "until [ -e /room/end ]; do sleep 0.1; done; echo main ends >> /room/diary";
    let mut beside = sidecar("beside");
    beside["command"][2] = json!(
        "trap 'echo beside stops >> /room/diary; exit 0' TERM; echo beside begins >> /room/diary; \
         until rm /room/stumble 2> /dev/null; do sleep 0.1; done; exit 5"
    );
    let mut pod = with_init(pod_of(room, "job", json!([shell("main", work)])), json!([beside]));
    pod["spec"]["restartPolicy"] = json!("Never");
    room.create_ready(&pod)?;
    // A sidecar that ends is begun again whatever the pod's policy is.
    fs::write(room.folder().join("stumble"), "")?;
    room.wait("pod/job", "jsonpath={.status.initContainerStatuses[0].restartCount}=1")?;
    room.until("the sidecar's second begin", || Ok(lines(room).len() == 2))?;
    fs::write(room.folder().join("end"), "")?;
    room.wait("pod/job", "jsonpath={.status.phase}=Succeeded")?;
    room.until("the sidecar's end", || Ok(lines(room).len() == 4))?;
    ensure_lines(room, &["beside begins", "beside begins", "main ends", "beside stops"])?;
    room.delete(&["pod", "job"])
}

pub fn an_ephemeral_container_runs_once(room: &Room<'_>) -> Result<()> {
    room.create_ready(&pod_of(room, "sick", json!([shell("main", &diary("main"))])))?;
    let image = format!("--image={}", images::BUSYBOX);
    let script = "ps -o args; echo so it goes; exit 3";
    let words = ["debug", "sick", &image, "--container=look", "--target=main", "--", "sh", "-c", script];
    room.kubectl(&words)?;
    let ended = |name: &str, code: i32| {
        let state =
            format!("{{.status.ephemeralContainerStatuses[?(@.name=='{name}')].state.terminated.exitCode}}");
        format!("jsonpath={state}={code}")
    };
    room.wait("pod/sick", &ended("look", 3))?;
    let said = room.kubectl(&["logs", "sick", "-c", "look"])?;
    // It shares the processes of the container that it was to look at.
    ensure_has(&said, &["main begins", "so it goes"])?;
    // The next one begins, and nothing else has changed.
    room.kubectl(&["debug", "sick", &image, "--container=again", "--", "sh", "-c", "ps -o args"])?;
    room.wait("pod/sick", &ended("again", 0))?;
    let said = room.kubectl(&["logs", "sick", "-c", "again"])?;
    ensure!(!said.contains("main begins"), "it sees what it has no business with: {said}");
    let seen = room.get("pod/sick")?;
    ensure!(seen["status"]["ephemeralContainerStatuses"][0]["restartCount"] == 0, "{:#}", seen["status"]);
    let main = main_container(&seen);
    ensure!(main["restartCount"] == 0 && main["ready"] == true, "the pod's own container: {main:#}");
    room.event_at("pod/sick", "Started", "spec.ephemeralContainers{look}")?;
    room.delete(&["pod", "sick"])
}

pub fn rules_decide_about_restarts(room: &Room<'_>) -> Result<()> {
    let script = "echo run >> /room/diary; [ $(wc -l < /room/diary) -lt 3 ] && exit 42; exit 7";
    let mut pod = pod_of(room, "ruled", json!([shell("main", script)]));
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["restartPolicyRules"] =
        json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
    room.create(&pod)?;
    room.wait("pod/ruled", "jsonpath={.status.phase}=Failed")?;
    ensure_lines(room, &["run", "run", "run"])?;
    let status = main_container(&room.get("pod/ruled")?).clone();
    ensure!(status["restartCount"] == 2 && status["state"]["terminated"]["exitCode"] == 7, "{status:#}");
    room.delete(&["pod", "ruled"])
}

pub fn a_rule_begins_the_whole_pod_again(room: &Room<'_>) -> Result<()> {
    // Not before everybody has begun once: who is stopped too soon leaves no word.
    let script = "echo main >> /room/diary; [ -e /room/again ] && sleep 3600; \
                  until grep -q other /room/diary; do sleep 0.1; done; touch /room/again; exit 42";
    let main = shell("main", script);
    let other =
        shell("other", "trap 'exit 0' TERM; echo other >> /room/diary; while true; do sleep 0.1; done");
    let init = json!([shell("first", "echo first >> /room/diary")]);
    let mut pod = with_init(pod_of(room, "fresh", json!([main, other])), init);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(2);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["restartPolicyRules"] =
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    room.create(&pod)?;
    let again = |lines: &[String], word: &str| lines.iter().filter(|line| *line == word).count() == 2;
    room.until("a second begin of everybody", || {
        let lines = lines(room);
        Ok(["first", "main", "other"].iter().all(|word| again(&lines, word)))
    })?;
    room.wait_ready("fresh")?;
    let seen = room.get("pod/fresh")?;
    ensure!(seen["status"]["phase"] == "Running", "{:#}", seen["status"]);
    for status in seen["status"]["containerStatuses"].as_array().context("no statuses")? {
        ensure!(status["restartCount"] == 1, "{status:#}");
    }
    room.delete(&["pod", "fresh"])
}

pub fn a_deadline_ends_a_pod(room: &Room<'_>) -> Result<()> {
    let mut pod = pod_of(room, "late", json!([shell("main", &diary("main"))]));
    pod["spec"]["activeDeadlineSeconds"] = json!(3600);
    room.create_ready(&pod)?;
    room.until("its begin", || Ok(lines(room).len() == 1))?;
    // It may be made shorter at any time, and this one has passed.
    room.kubectl(&["patch", "pod", "late", "--patch", r#"{"spec": {"activeDeadlineSeconds": 1}}"#])?;
    room.wait("pod/late", "jsonpath={.status.phase}=Failed")?;
    let status = room.get("pod/late")?["status"].clone();
    let message = "Pod was active on the node longer than the specified deadline";
    ensure!(status["reason"] == "DeadlineExceeded" && status["message"] == message, "{status:#}");
    ensure!(room.event("pod/late", "DeadlineExceeded")? == message, "the event says something else");
    room.until("the container's end", || Ok(room.running("late")?.is_empty()))?;
    ensure_lines(room, &["main begins", "main stops"])?;
    // Its log can still be read.
    room.kubectl(&["logs", "late"])?;
    room.delete(&["pod", "late"])
}
