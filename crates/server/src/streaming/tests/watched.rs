//! Who writes to somebody who does not read.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::TcpStream;

/// More than all the kernel's buffers on the way.
const MUCH: usize = 64 << 20;
/// As long as nothing moves for so long, nobody reads.
const STILL: Duration = Duration::from_millis(500);

/// Writes a block over and over until nobody takes any more. Returns how much that was, which is bounded by what lies between.
pub async fn fill(stream: &TcpStream, block: &[u8]) -> usize {
    let mut written = 0;
    while tokio::time::timeout(STILL, stream.writable()).await.is_ok() {
        // On from where the last write ended: a block may be a frame.
        match stream.try_write(&block[written % block.len()..]) {
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error} after {written} bytes"),
        }
        assert!(written < MUCH, "nobody reads, and still it is all taken");
    }
    written
}

/// As if the process had been killed with its machine's goodwill: whatever was on its way is gone with it. A mere close
/// would stay behind all that nobody takes, for as long as the kernel's patience lasts.
pub fn vanish(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("an option");
}
