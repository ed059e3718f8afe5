//! As much HTTP/1.1 as tests need: one request on one connection, over TCP or a unix socket, always with a deadline.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::wait::Deadline;

/// A connection whose every read gives up at the deadline.
struct Connection {
    stream: Stream,
    deadline: Deadline,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.left().ok_or(io::ErrorKind::TimedOut)?;
        let result = match &mut self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(left)).and_then(|()| stream.read(buffer)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(left)).and_then(|()| stream.read(buffer)),
        };
        // A socket's timeout reads as "would block", which callers would take for something else.
        result.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

impl Connection {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.deadline.left().ok_or(io::ErrorKind::TimedOut)?;
        match &mut self.stream {
            Stream::Tcp(stream) => {
                stream.set_write_timeout(Some(left)).and_then(|()| stream.write_all(bytes))
            }
            Stream::Unix(stream) => {
                stream.set_write_timeout(Some(left)).and_then(|()| stream.write_all(bytes))
            }
        }
    }
}

/// An answer whose body is read as it comes.
pub struct Response {
    pub status: u16,
    body: Body,
}

impl Response {
    /// The whole body.
    pub fn text(mut self) -> Result<String> {
        let mut bytes = Vec::new();
        self.body.read_to_end(&mut bytes).context("the answer broke off")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The body as lines, for a stream without end.
    pub fn lines(self) -> impl Iterator<Item = io::Result<String>> {
        BufReader::new(self.body).lines()
    }
}

/// Over TCP.
pub fn tcp(address: SocketAddr, method: &str, path: &str, deadline: Deadline) -> Result<Response> {
    let left = deadline.left().context("no time left")?;
    let stream =
        TcpStream::connect_timeout(&address, left).with_context(|| format!("cannot connect to {address}"))?;
    request(Stream::Tcp(stream), &address.to_string(), method, path, "", deadline)
}

/// Over a unix socket.
pub fn unix(socket: &Path, method: &str, path: &str, body: &str, deadline: Deadline) -> Result<Response> {
    let stream =
        UnixStream::connect(socket).with_context(|| format!("cannot connect to `{}`", socket.display()))?;
    request(Stream::Unix(stream), "localhost", method, path, body, deadline)
}

fn request(
    stream: Stream,
    host: &str,
    method: &str,
    path: &str,
    body: &str,
    deadline: Deadline,
) -> Result<Response> {
    let mut connection = Connection { stream, deadline };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: */*\r\nContent-Length: {length}\r\n\r\n"
    );
    connection.send(format!("{head}{body}").as_bytes()).context("cannot send the request")?;
    let mut reader = BufReader::new(connection);
    let status_line = read_line(&mut reader)?;
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("not an HTTP answer: `{status_line}`"))?;
    let mut left = Left::UntilClosed;
    loop {
        let line = read_line(&mut reader)?;
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => left = Left::Bytes(value.trim().parse().context("a bad content length")?),
            "transfer-encoding" if value.trim() == "chunked" => {
                left = Left::Chunks { in_chunk: 0, first: true }
            }
            _ => {}
        }
    }
    Ok(Response { status, body: Body { reader, left } })
}

fn read_line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line).context("no answer")? == 0 {
        bail!("the connection was closed before the answer was whole");
    }
    Ok(line.trim_end().to_owned())
}

struct Body {
    reader: BufReader<Connection>,
    left: Left,
}

/// What is still to come.
enum Left {
    UntilClosed,
    Bytes(u64),
    Chunks { in_chunk: u64, first: bool },
    Nothing,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Left::Chunks { in_chunk: 0, first } = self.left {
            let size = self.next_chunk(first)?;
            self.left = if size == 0 { Left::Nothing } else { Left::Chunks { in_chunk: size, first: false } };
        }
        match &mut self.left {
            Left::Nothing | Left::Bytes(0) => Ok(0),
            Left::UntilClosed => self.reader.read(buffer),
            Left::Bytes(left) | Left::Chunks { in_chunk: left, .. } => {
                let most = buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                let read = self.reader.read(&mut buffer[..most])?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *left -= read as u64;
                Ok(read)
            }
        }
    }
}

impl Body {
    /// The size of the next chunk: a line in hex, after the line end that closes the chunk before.
    fn next_chunk(&mut self, first: bool) -> io::Result<u64> {
        let mut line = String::new();
        if !first {
            self.reader.read_line(&mut line)?;
            line.clear();
        }
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let digits = line.trim_end().split(';').next().unwrap_or_default();
        u64::from_str_radix(digits, 16).map_err(|_| io::Error::other(format!("a bad chunk size: `{digits}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    /// Serves one connection with a fixed answer and gives the request that came.
    fn serve(answer: &'static str) -> (SocketAddr, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (address, server)
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(5))
    }

    #[test]
    fn a_body_with_a_length_is_read() {
        let (address, server) = serve("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok and more");
        let response = tcp(address, "GET", "/healthz", soon()).unwrap();
        assert_eq!(response.status, 201);
        assert_eq!(response.text().unwrap(), "ok");
        assert!(server.join().unwrap().starts_with("GET /healthz HTTP/1.1\r\n"));
    }

    #[test]
    fn a_chunked_body_is_put_together_and_lines_cross_chunks() {
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n3\r\ntwo\r\n2\r\n!\n\r\n0\r\n\r\n";
        let (address, _server) = serve(answer);
        let lines: Vec<String> =
            tcp(address, "GET", "/watch", soon()).unwrap().lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["one", "two!"]);
    }

    #[test]
    fn a_body_that_breaks_off_is_an_error() {
        let (address, _server) = serve("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
        assert!(tcp(address, "GET", "/", soon()).unwrap().text().is_err());
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let deadline = Deadline::after(Duration::from_millis(50));
        let error = tcp(listener.local_addr().unwrap(), "GET", "/", deadline).err().unwrap();
        assert!(format!("{error:#}").contains("no answer"), "{error:#}");
    }
}
