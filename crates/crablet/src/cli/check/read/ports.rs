//! Who listens on a port.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::facts::{Listener, Process, Read};
use super::{kernel_text, processes, text};

/// The kernel's number for a listening socket.
const LISTEN: &str = "0A";

/// Those on these ports, with the process that holds each.
pub fn listeners(ports: &[u16]) -> Read<Vec<Listener>> {
    let four = kernel_text("/proc/net/tcp")?;
    // A kernel without IPv6 has no such file.
    let six = text("/proc/net/tcp6").unwrap_or_default();
    let found = four.lines().chain(six.lines()).filter_map(listening);
    let found = found.filter(|(_, port, _)| ports.contains(port));
    Ok(found.map(|(address, port, inode)| Listener { address, port, holder: holder(inode) }).collect())
}

/// `0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 12345 ...`
fn listening(line: &str) -> Option<(IpAddr, u16, u64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
    if *state != LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    Some((parse_address(address)?, u16::from_str_radix(port, 16).ok()?, inode.parse().ok()?))
}

/// Words of four bytes, each in the machine's own order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// Looks through the open files of every process: only called for a port that is taken.
fn holder(inode: u64) -> Option<Process> {
    let name = format!("socket:[{inode}]");
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == name.as_str()))
    };
    pids.into_iter().find(holds).and_then(processes::one)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_listening_sockets_count() {
        let line = |state: &str| format!(" 0: 0100007F:2808 00000000:0000 {state} 0:0 00:0 0 0 0 4711 1 0");
        let expected = (IpAddr::V4(Ipv4Addr::LOCALHOST), 10248, 4711);
        assert_eq!(listening(&line("0A")), Some(expected));
        assert_eq!(listening(&line("01")), None);
        assert_eq!(listening("  sl  local_address rem_address   st tx_queue"), None);
        assert_eq!(listening(""), None);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        for (hex, expected) in [
            ("00000000", "0.0.0.0"),
            ("00000000000000000000000000000000", "::"),
            ("00000000000000000000000001000000", "::1"),
            ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ] {
            assert_eq!(parse_address(hex), expected.parse().ok(), "{hex}");
        }
        assert_eq!(parse_address("0000"), None);
        assert_eq!(parse_address("xyzxyzxy"), None);
    }

    #[test]
    fn the_holder_of_a_port_is_found() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let found = listeners(&[port]).expect("listeners");
        let [listener] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(listener.holder.as_ref().map(|process| process.pid), Some(std::process::id()));
        drop(socket);
        assert_eq!(listeners(&[port]), Ok(Vec::new()));
    }
}
