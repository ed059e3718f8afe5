//! Through which interfaces the machine reaches the rest of the world.

use std::fs;
use std::io;

use crablet_planner::node::DefaultRoute;

pub(super) fn read() -> io::Result<Option<Vec<DefaultRoute>>> {
    let v4 = match fs::read_to_string("/proc/net/route") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    // A kernel without IPv6 has no such file.
    let v6 = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    Ok(Some(v4_routes(&v4).chain(v6_routes(&v6)).collect()))
}

fn v4_routes(table: &str) -> impl Iterator<Item = DefaultRoute> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000").then(|| DefaultRoute { interface: interface.to_owned(), ipv6: false })
    })
}

/// A route without a gateway is the kernel's own, which leads nowhere.
fn v6_routes(table: &str) -> impl Iterator<Item = DefaultRoute> {
    const NONE: &str = "00000000000000000000000000000000";
    table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (destination, gateway, interface) = (fields.first()?, fields.get(4)?, fields.get(9)?);
        (*destination == NONE && *gateway != NONE)
            .then(|| DefaultRoute { interface: (*interface).to_owned(), ipv6: true })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_those_to_everywhere() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  eth0\t00000000\t0102000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                  eth0\t0002000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        let v6 = "20010001000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth1\n\
                  00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth1\n\
                  00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
        let route = |interface: &str, ipv6| DefaultRoute { interface: interface.to_owned(), ipv6 };
        assert_eq!(v4_routes(v4).collect::<Vec<_>>(), [route("eth0", false)]);
        assert_eq!(v6_routes(v6).collect::<Vec<_>>(), [route("eth1", true)]);
    }
}
