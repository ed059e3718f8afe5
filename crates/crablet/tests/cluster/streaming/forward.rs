//! Ports of pods, reached through a client's own machine.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use crablet_testbed::wait::Deadline;
use crablet_testbed::{http, images};
use serde_json::{Value, json};

use super::clients::{self, Client};
use crate::cluster::follow::Follow;
use crate::cluster::support::{PATIENCE, Room};

const CALLERS: usize = 20;
const CALLS: usize = 10;
const BIG: usize = 20_000_000;

/// A pod that listens: it is ready a little before that, and a first connection that is refused ends a port-forward.
fn start_web(room: &Room<'_>, name: &str) -> Result<()> {
    room.create_ready(&web(name))?;
    let pod = room.get(&format!("pod/{name}"))?;
    let address = pod["status"]["podIP"].as_str().context("no address")?.parse::<Ipv4Addr>()?;
    room.until("the server listens", || Ok(TcpStream::connect((address, images::WEB_PORT)).is_ok()))
}

fn web(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "containers": [{ "name": "main", "image": images::WEB, "imagePullPolicy": "IfNotPresent" }],
            "terminationGracePeriodSeconds": 1,
        },
    })
}

/// Starts it and gives the local port of each port that was asked for.
fn forward(client: &Client, room: &Room<'_>, pod: &str, ports: &[u16]) -> Result<(Follow, Vec<SocketAddr>)> {
    let asked: Vec<String> = ports.iter().map(|port| format!(":{port}")).collect();
    let mut args = vec!["port-forward", pod, "--address=127.0.0.1"];
    args.extend(asked.iter().map(String::as_str));
    let mut command = client.command(room, &args);
    // What it complains of is looked at like what it says.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(command.get_program()).args(command.get_args());
    command = shell;
    let mut follow = Follow::start(command)?;
    let mut addresses = Vec::new();
    for port in ports {
        let wanted = format!(" -> {port}");
        let line = follow.until(|line| line.starts_with("Forwarding from") && line.ends_with(&wanted))?;
        let local = line.split([':', ' ']).find_map(|word| word.parse::<u16>().ok());
        addresses.push((Ipv4Addr::LOCALHOST, local.with_context(|| line.clone())?).into());
    }
    Ok((follow, addresses))
}

fn page(address: SocketAddr, path: &str) -> Result<String> {
    http::tcp(address, "GET", path, Deadline::after(PATIENCE))?.text()
}

pub fn many_connections_are_carried(room: &Room<'_>) -> Result<()> {
    start_web(room, "web")?;
    room.kubectl(&["exec", "web", "--", "sh", "-c", &format!("head -c {BIG} /dev/zero >/www/big")])?;
    for client in clients::both()? {
        let (_forward, addresses) = forward(&client, room, "pod/web", &[images::WEB_PORT])?;
        let at = addresses[0];
        let call = || -> Result<()> {
            for _ in 0..CALLS {
                let page = page(at, "/")?;
                ensure!(page == images::WEB_PAGE, "the page is {page:?}");
            }
            Ok(())
        };
        thread::scope(|scope| -> Result<()> {
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
            let big = page(at, "/big")?;
            ensure!(big.len() == BIG, "{} bytes of {BIG} came", big.len());
            callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| anyhow!("it panicked"))?)
        })
        .with_context(|| format!("the {} kubectl", client.name))?;
    }
    room.delete(&["pod", "web"])
}

pub fn a_port_where_nobody_listens_is_told(room: &Room<'_>) -> Result<()> {
    start_web(room, "web")?;
    for client in clients::both()? {
        let (mut forward, addresses) = forward(&client, room, "pod/web", &[images::WEB_PORT, 9])?;
        ensure!(page(addresses[0], "/")? == images::WEB_PAGE, "another page");
        ensure!(page(addresses[1], "/").is_err(), "somebody answers on port 9");
        forward.until(|line| line.contains("-> 9: ") && line.contains("connection refused"))?;
    }
    room.delete(&["pod", "web"])
}

pub fn a_pod_that_goes_away_is_told(room: &Room<'_>) -> Result<()> {
    for client in clients::both()? {
        start_web(room, client.name)?;
        let pod = format!("pod/{}", client.name);
        let (mut forward, addresses) = forward(&client, room, &pod, &[images::WEB_PORT])?;
        ensure!(page(addresses[0], "/")? == images::WEB_PAGE, "another page");
        room.delete(&["pod", client.name])?;
        // The client learns of it when it next wants something.
        ensure!(page(addresses[0], "/").is_err(), "somebody answers for a pod that is gone");
        forward.until(|line| line.contains("error: lost connection to pod"))?;
        forward.until_its_end()?;
    }
    Ok(())
}
