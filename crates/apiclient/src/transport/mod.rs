//! From an address to requests under way.
//!
//! | module | what it is |
//! |---|---|
//! | `address` | the server's address and URLs on it |
//! | `socket` | a stream that can be cut from outside |
//! | `dial` | TCP, TLS and the choice of the protocol |
//! | `connection` | one connection, HTTP/2 or HTTP/1.1 |
//! | `pool` | the connections of a lane, dialled when needed |

mod address;
mod connection;
mod dial;
mod pool;
mod socket;

pub use address::Address;
pub use connection::{Lost, Outgoing};
pub use dial::{DialError, Dialler, Pings};
pub use pool::{Pool, Slot};
