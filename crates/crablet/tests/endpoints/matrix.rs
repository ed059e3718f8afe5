//! Asks everything of everybody, and compares.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, Result, ensure};

use super::alike;
use super::cases::{Case, METHODS, PATHS};
use super::client::{Answer, Connection, Door};
use super::world::{FRIEND, Side, World};

/// How the kubelets are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// As nodes usually are.
    Open,
    /// Without debugging handlers, and nobody in particular is let in as anonymous.
    Closed,
}

/// All answers that one of the sides gave to one who asked: by path, method.
type Answers = Vec<(Case, &'static str, String)>;

/// One line for each answer that differs.
pub fn judge(world: &World, round: Round) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    let sides = world.sides();
    let asked: Vec<Vec<(String, Answers)>> = thread::scope(|scope| {
        let asking: Vec<_> = sides.iter().map(|side| scope.spawn(|| ask(world, side))).collect();
        asking.into_iter().map(|side| side.join().expect("no panic in there")).collect::<Result<_>>()
    })?;
    for (index, (who, theirs)) in asked[0].iter().enumerate() {
        if std::env::var_os("CRABLET_TEST_PRINT").is_some() {
            print(round, who, theirs);
        }
        let Some(ours) = asked.get(1).map(|ours| &ours[index].1) else { continue };
        for ((case, method, theirs), (_, _, ours)) in theirs.iter().zip(ours) {
            if theirs != ours && !alike::is_meant(case.path) {
                let Case { path, headers, .. } = case;
                differences.push(format!(
                    "{round:?} {who}: {method} {path} {headers:?}\n    upstream {theirs}\n    crablet  {ours}"
                ));
            }
        }
    }
    Ok(differences)
}

/// `kubectl exec -- sh -c "$(cat script)"` sends the script in the query: as long as a program's argument may be.
pub fn long_commands(world: &World) -> Result<()> {
    let friend = world.credentials.iter().find(|one| one.name == FRIEND).context("no friend")?;
    let token = friend.token.as_deref().unwrap_or_default();
    let script = format!("echo {}", "x".repeat(120_000));
    for side in world.sides() {
        let node = side.name;
        let head = |target: &str| {
            format!(
                "POST {target} HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\nAuthorization: Bearer {token}\r\n"
            )
        };
        let query = format!("command=sh&command=-c&command={}&output=1", script.replace(' ', "+"));
        let exec = head(&format!("/exec/{node}/web/main?{query}"));
        let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
        let run = head(&format!("/run/{node}/web/main?cmd={}", script.replace(' ', "+"))) + "\r\n";
        for (request, status, said) in [(exec + upgrade, 101, 0), (run, 200, 120_001)] {
            let mut connection = world.door(side, friend)?.open()?;
            connection.send(request.as_bytes())?;
            let answer = connection.receive("POST")?;
            ensure!(
                answer.status == status && answer.body.len() == said,
                "{node}: a long command gets {} and {} bytes",
                answer.status,
                answer.body.len()
            );
        }
    }
    Ok(())
}

fn ask(world: &World, side: &Side) -> Result<Vec<(String, Answers)>> {
    let mut doors =
        vec![("10255".to_owned(), side.read_only(), None), ("10248".to_owned(), side.healthz(), None)];
    for credential in &world.credentials {
        let door = world.door(side, credential)?;
        doors.push((format!("10250 {}", credential.name), door, credential.token.as_deref()));
    }
    thread::scope(|scope| {
        let asking: Vec<_> = doors
            .into_iter()
            .map(|(who, door, token)| {
                scope.spawn(move || {
                    let answers = ask_all(&door, token, side.name).with_context(|| who.clone())?;
                    Ok((who, answers))
                })
            })
            .collect();
        asking.into_iter().map(|one| one.join().expect("no panic in there")).collect()
    })
}

/// On one connection for as long as the server keeps it.
fn ask_all(door: &Door, token: Option<&str>, node: &str) -> Result<Answers> {
    let mut connection = None;
    let mut answers = Vec::new();
    for case in PATHS {
        for method in METHODS {
            let request = request(case, method, token, node);
            let answer = exchange(door, &mut connection, &request, method)
                .with_context(|| format!("{node}: {method} {}", case.path))?;
            answers.push((*case, *method, alike::shown(&answer, case, node)));
        }
    }
    Ok(answers)
}

fn request(case: &Case, method: &str, token: Option<&str>, node: &str) -> String {
    let path = case.path.replace("NS", node);
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {}\r\n", case.body.len());
    for (name, value) in case.headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(token) = token {
        request.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    request + "\r\n" + case.body
}

fn exchange(door: &Door, connection: &mut Option<Connection>, request: &str, method: &str) -> Result<Answer> {
    if let Some(open) = connection {
        let answer = open.send(request.as_bytes()).map_err(Into::into).and_then(|()| open.receive(method));
        match answer {
            Ok(answer) if stays_open(&answer) => return Ok(answer),
            Ok(answer) => {
                *connection = None;
                return Ok(answer);
            }
            // Closed between two requests: asked again on a new one.
            Err(_) => {}
        }
    }
    let mut open = door.open()?;
    open.send(request.as_bytes())?;
    let answer = open.receive(method)?;
    *connection = stays_open(&answer).then_some(open);
    Ok(answer)
}

fn stays_open(answer: &Answer) -> bool {
    let says = |name: &str| answer.header(name).is_some();
    answer.header("connection") != Some("close")
        && answer.status != 101
        && (says("content-length") || says("transfer-encoding") || answer.body.is_empty())
}

/// Methods that got the same answer share a line.
fn print(round: Round, who: &str, answers: &Answers) {
    eprintln!("\n== {round:?}, {who}");
    for asked in answers.chunks(METHODS.len()) {
        let mut by_answer: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (_, method, answer) in asked {
            by_answer.entry(answer).or_default().push(method);
        }
        let Case { path, headers, body } = asked[0].0;
        eprintln!(
            "{path} {}{body}",
            headers.iter().map(|(name, value)| format!("[{name}: {value}] ")).collect::<String>()
        );
        for (answer, methods) in by_answer {
            eprintln!("    {}: {answer}", methods.join(" "));
        }
    }
}
