//! Whether somebody listens on a port.

use std::time::Duration;

use tokio::time::{self, Instant};

use super::Answer;
use super::dial::{addresses, connect, host_and_port};

pub(crate) async fn ask(host: &str, port: u16, timeout: Duration) -> Answer {
    let deadline = Instant::now() + timeout;
    let addresses = match time::timeout_at(deadline, addresses(host, port)).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(message)) => return Answer::Failure(message),
        Err(_) => return Answer::Failure(format!("dial tcp: lookup {host}: i/o timeout")),
    };
    match time::timeout_at(deadline, connect(&addresses)).await {
        Ok(Ok(_)) => Answer::Success(String::new()),
        Ok(Err(message)) => Answer::Failure(message),
        Err(_) => Answer::Failure(format!("dial tcp {}: i/o timeout", host_and_port(host, port))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SOON: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_port_that_somebody_listens_on_is_well() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(ask("127.0.0.1", port, PATIENCE).await, Answer::Success(String::new()));
        // No host is this machine, as for Go.
        assert_eq!(ask("", port, PATIENCE).await, Answer::Success(String::new()));
        drop(listener);
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(ask("127.0.0.1", port, PATIENCE).await, Answer::Failure(refused));
    }

    #[tokio::test]
    async fn nobody_who_answers_is_a_timeout() {
        // A listener whose queue is full lets further connections wait.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        while let Ok(connected) = time::timeout(SOON, TcpStream::connect(address)).await {
            queue.push(connected.unwrap());
        }
        let answer = ask("127.0.0.1", address.port(), SOON).await;
        assert_eq!(answer, Answer::Failure(format!("dial tcp {address}: i/o timeout")));
    }
}
