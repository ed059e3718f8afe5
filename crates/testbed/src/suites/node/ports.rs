//! The ports that the node suite and its kubelet cannot choose, and who holds one of them.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

use crate::process;

/// The API server and the kubelet's health listen on the machine itself only, the kubelet's API on all its addresses.
const FIXED: &[(Ipv4Addr, u16, &str)] = &[
    (Ipv4Addr::LOCALHOST, 6443, "the suite's API server"),
    (Ipv4Addr::LOCALHOST, 10248, "the kubelet's health"),
    (Ipv4Addr::UNSPECIFIED, 10250, "the kubelet's API"),
    (Ipv4Addr::UNSPECIFIED, 10255, "the kubelet's read-only port"),
];

/// An error that names the first port which is taken, and by whom.
pub fn ensure_free() -> Result<()> {
    for (address, port, what) in FIXED {
        if let Err(error) = TcpListener::bind((*address, *port)) {
            let holder = holder(*port).unwrap_or_else(|| error.to_string());
            bail!(
                "port {port} is needed for {what} and is taken: {holder}\n\
                 hint: the node suite cannot use other ports; end that process first"
            );
        }
    }
    Ok(())
}

/// The process that listens on a port, as `<pid> <command line>`.
fn holder(port: u16) -> Option<String> {
    let table = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let sockets = [table("/proc/net/tcp"), table("/proc/net/tcp6")].concat();
    let inode = sockets.lines().find_map(|line| listening_inode(line, port))?;
    let link = format!("socket:[{inode}]");
    let holds = |pid: i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
        files
            .into_iter()
            .any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == link.as_str()))
    };
    let found = process::all().into_iter().find(|process| holds(process.pid))?;
    let command = process::command_line(found);
    Some(format!("{} {}", found.pid, command.into_iter().take(2).collect::<Vec<_>>().join(" ")))
}

/// `  0: 0100007F:1F90 00000000:0000 0A ... uid timeout inode`: state 0A listens.
fn listening_inode(line: &str, port: u16) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, hex) = fields.get(1)?.rsplit_once(':')?;
    let is_it = u16::from_str_radix(hex, 16).ok()? == port && *fields.get(3)? == "0A";
    is_it.then(|| fields.get(9).map(|inode| inode.to_string()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_named() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(holder(port).unwrap().starts_with(&std::process::id().to_string()));
        drop(listener);
        assert_eq!(holder(port), None);
    }
}
