//! What goes through the kubelet's own port: logs, exec, attach, port-forward, cp and debug, as users ask for them with a
//! new `kubectl` (WebSocket) and with an old one (SPDY), and as a client asks that talks to the kubelet itself.
//!
//! | module | what it is about |
//! |---|---|
//! | `logs` | every way to read them, following them to the end and over a rotation |
//! | `exec`, `attach`, `copy` | commands, running programs, files |
//! | `forward` | ports, with many connections at once, with nobody behind them, with a pod that goes away |
//! | `debug` | `kubectl debug` of nodes and pods |
//! | `direct` | the kubelet's port without an API server, in each protocol |
//! | `crowd` | clients that vanish; hundreds of sessions while pods come and go |
//! | `clients` | the two programs, run to their end with a deadline |

mod attach;
mod clients;
mod copy;
mod crowd;
mod debug;
mod direct;
mod exec;
mod forward;
mod logs;

use anyhow::Result;
use crablet_testbed::cluster::{Cluster, NodeOptions};

use super::support::{Room, Step, kubelet, side_by_side, step};

/// Each with a room of its own, all at once.
const TOGETHER: &[Step] = &[
    step!(logs::logs_are_read_in_every_way),
    step!(logs::a_rotated_log_is_followed_on),
    step!(logs::logs_that_cannot_be_had_are_refused),
    step!(exec::a_command_has_its_streams_and_its_exit_code),
    step!(exec::much_goes_both_ways_at_once),
    step!(exec::what_cannot_be_run_is_refused),
    step!(exec::a_terminal_is_a_terminal),
    step!(exec::a_session_ends_with_its_pod),
    step!(attach::a_program_is_talked_to_and_left_alone),
    step!(attach::an_input_that_is_given_once_ends),
    step!(attach::a_terminal_is_shared),
    step!(forward::many_connections_are_carried),
    step!(forward::a_port_where_nobody_listens_is_told),
    step!(forward::a_pod_that_goes_away_is_told),
    step!(debug::a_node_is_looked_at),
    step!(debug::a_copy_is_looked_at),
    step!(debug::a_container_is_added),
    step!(direct::each_protocol_carries_a_command),
    step!(direct::what_is_wrong_is_answered),
];

pub fn all(cluster: &Cluster) -> Result<()> {
    // Whatever has to be built is built before anybody waits.
    clients::both()?;
    let node = cluster.join(NodeOptions::new(kubelet()))?;
    let log = node.log_path();
    side_by_side(cluster, log, TOGETHER)?;
    // These count what the kubelet holds, or want the machine's whole strength.
    let room = Room::new(cluster, log, "alone")?;
    room.during("two hundred megabytes are copied", copy::two_hundred_megabytes_are_copied)?;
    room.during("clients vanish", |room| crowd::clients_vanish(room, node.kubelet().pid()))?;
    room.during("a crowd of sessions", |room| crowd::many_sessions_at_once(room, node.kubelet().pid()))
}
