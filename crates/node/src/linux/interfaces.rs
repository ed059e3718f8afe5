//! The kernel's interfaces and their addresses, over netlink.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crablet_planner::node::Interface;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// `NLM_F_REQUEST | NLM_F_DUMP`
const REQUEST_ALL: u16 = 0x301;
const IFLA_IFNAME: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const HEADER: usize = 16;
/// The kernel fills at most this much at once.
const BUFFER: usize = 32 << 10;

pub(super) fn read() -> io::Result<Vec<Interface>> {
    // The default protocol of this family is the one for routing.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(2)))?;
    let mut interfaces = BTreeMap::new();
    dump(&socket, RTM_GETLINK, RTM_NEWLINK, |body| {
        if let Some((index, interface)) = link(body) {
            interfaces.insert(index, interface);
        }
    })?;
    dump(&socket, RTM_GETADDR, RTM_NEWADDR, |body| {
        if let Some((index, address)) = address(body)
            && let Some(interface) = interfaces.get_mut(&index)
        {
            interface.addresses.push(address);
        }
    })?;
    Ok(interfaces.into_values().collect())
}

/// Asks for everything of a kind and gives each answer's body to `each`.
fn dump(socket: &OwnedFd, request: u16, wanted: u16, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    // A header, and a body of zeros that is long enough for either request.
    let mut message = [0_u8; HEADER + 16];
    message[0..4].copy_from_slice(&((HEADER + 16) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&request.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    rustix::net::send(socket, &message, SendFlags::empty())?;
    let mut buffer = vec![0_u8; BUFFER];
    loop {
        let (length, _) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        while let (Some(length), Some(kind)) = (u32_at(rest, 0), u16_at(rest, 4)) {
            let length = length as usize;
            let Some(body) = rest.get(HEADER..length) else { break };
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = u32_at(body, 0).map_or(0, |code| (code as i32).wrapping_neg());
                    return Err(io::Error::from_raw_os_error(code));
                }
                kind if kind == wanted => each(body),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn link(body: &[u8]) -> Option<(u32, Interface)> {
    let (index, flags) = (u32_at(body, 4)?, u32_at(body, 8)?);
    let name = attributes(body.get(16..)?).find(|(kind, _)| *kind == IFLA_IFNAME)?.1;
    let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    let has = |flag: u32| flags & flag != 0;
    let interface = Interface {
        name,
        up: has(0x1),
        loopback: has(0x8),
        point_to_point: has(0x10),
        addresses: Vec::new(),
    };
    Some((index, interface))
}

fn address(body: &[u8]) -> Option<(u32, IpAddr)> {
    let index = u32_at(body, 4)?;
    let of_kind =
        |wanted: u16| attributes(body.get(8..).unwrap_or_default()).find(|(kind, _)| *kind == wanted);
    // On a point-to-point link `IFA_ADDRESS` is the other end.
    let (_, bytes) = of_kind(IFA_LOCAL).or_else(|| of_kind(IFA_ADDRESS))?;
    let address = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some((index, address))
}

fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let interfaces = read().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.loopback).expect("every Linux has one");
        assert_eq!((loopback.name.as_str(), loopback.point_to_point), ("lo", false));
        if loopback.up {
            assert!(loopback.addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{loopback:?}");
        }
    }
}
