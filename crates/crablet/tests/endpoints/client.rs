//! HTTP/1.1 as plainly as possible, over TLS or without: requests go out byte for byte as they are written, and what
//! comes back is shown as it is.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use crablet_testbed::cluster::pki::Identity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// An answer that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any answer of these tests is cut off there.
const MOST_BODY: u64 = 8 << 20;

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Where a server is, and with which certificate one goes there.
#[derive(Clone)]
pub struct Door {
    pub address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

impl Door {
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    pub fn tls(address: SocketAddr, identity: Option<&Identity>) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
        let config = match identity {
            Some(identity) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
                builder.with_client_auth_cert(chain?, key)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self { address, tls: Some(Arc::new(config)) })
    }

    pub fn open(&self) -> Result<Connection> {
        self.open_for(PATIENCE)
    }

    /// Each read and write may take so long.
    pub fn open_for(&self, patience: Duration) -> Result<Connection> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let wire: Box<dyn Wire> = match &self.tls {
            Some(config) => {
                let name = ServerName::try_from("node")?;
                Box::new(StreamOwned::new(ClientConnection::new(config.clone(), name)?, stream))
            }
            None => Box::new(stream),
        };
        Ok(Connection { reader: BufReader::new(wire) })
    }
}

pub struct Connection {
    reader: BufReader<Box<dyn Wire>>,
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl Connection {
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)?;
        self.reader.get_mut().flush()
    }

    /// The answer to a request with this method.
    pub fn receive(&mut self, method: &str) -> Result<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.with_context(|| format!("not an HTTP answer: `{status_line}`"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        if method != "HEAD" && !matches!(status, 101 | 204 | 304) {
            answer.body = self.body(&answer)?;
        }
        Ok(answer)
    }

    fn body(&mut self, answer: &Answer) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = self.line()?;
                let size = u64::from_str_radix(size.split(';').next().unwrap_or_default(), 16)
                    .with_context(|| format!("a bad chunk size: `{size}`"))?;
                ensure!(body.len() as u64 + size <= MOST_BODY, "an answer without end");
                (&mut self.reader).take(size).read_to_end(&mut body)?;
                self.line()?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        let length = answer.header("content-length").map(str::parse).transpose()?;
        let read = (&mut self.reader).take(length.unwrap_or(MOST_BODY)).read_to_end(&mut body);
        // Without a length the end of the connection is the end, whichever way it comes.
        match (read, length) {
            (Ok(_), Some(length)) => ensure!(body.len() as u64 == length, "the answer broke off"),
            (Ok(_), None) | (Err(_), None) => {}
            (Err(error), Some(_)) => return Err(error.into()),
        }
        Ok(body)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        if (&mut self.reader).take(64 << 10).read_until(b'\n', &mut line)? == 0 {
            bail!("the connection was closed before the answer was whole");
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

#[derive(Debug)]
struct AnyServer(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
