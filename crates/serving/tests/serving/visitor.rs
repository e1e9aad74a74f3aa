//! A client over TLS that shows a certificate or not, asks, and looks at what it was shown.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::Pair;

/// How a visitor comes.
#[derive(Clone)]
pub(crate) struct Visitor {
    address: SocketAddr,
    certificate: Option<Pair>,
    /// The server's name in the handshake; an address, which is not sent, if there is none.
    name: Option<&'static str>,
    protocols: Vec<&'static [u8]>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

/// An answer, with all that came with it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// What the server showed.
    pub(crate) certificate: Vec<u8>,
    pub(crate) http2: bool,
}

impl Visitor {
    pub(crate) fn to(address: SocketAddr) -> Visitor {
        let versions = vec![&rustls::version::TLS12, &rustls::version::TLS13];
        Visitor { address, certificate: None, name: Some("localhost"), protocols: vec![b"h2", b"http/1.1"], versions }
    }

    pub(crate) fn with(self, pair: &Pair) -> Visitor {
        Visitor { certificate: Some(pair.clone()), ..self }
    }

    pub(crate) fn named(self, name: Option<&'static str>) -> Visitor {
        Visitor { name, ..self }
    }

    pub(crate) fn speaking(self, protocol: &'static [u8]) -> Visitor {
        Visitor { protocols: vec![protocol], ..self }
    }

    pub(crate) fn in_version(self, version: &'static SupportedProtocolVersion) -> Visitor {
        Visitor { versions: vec![version], ..self }
    }

    pub(crate) async fn gets(&self, path: &str) -> Told {
        self.asks(Method::GET, path, &[], "").await
    }

    pub(crate) async fn gets_with(&self, path: &str, headers: &[(&str, &str)]) -> Told {
        self.asks(Method::GET, path, headers, "").await
    }

    pub(crate) async fn asks(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Told {
        self.tries(method, path, headers, body).await.unwrap()
    }

    /// The encrypted connection.
    pub(crate) async fn connects(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = match self.name {
            Some(name) => ServerName::try_from(name).unwrap(),
            None => ServerName::IpAddress(self.address.ip().into()),
        };
        TlsConnector::from(Arc::new(self.config())).connect(name, stream).await
    }

    pub(crate) async fn tries(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Told, Box<dyn std::error::Error + Send + Sync>> {
        let stream = self.connects().await?;
        let session = stream.get_ref().1;
        let http2 = session.alpn_protocol() == Some(b"h2");
        let certificate = session.peer_certificates().unwrap()[0].to_vec();
        let uri = format!("https://localhost{path}");
        let mut request = Request::builder().method(method).uri(if http2 { uri.as_str() } else { path });
        for (name, value) in [("host", "localhost")].iter().filter(|_| !http2).chain(headers) {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned())))?;
        let response = match http2 {
            true => {
                let (mut sender, connection) =
                    hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            }
            false => {
                let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            }
        };
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        Ok(Told { status: head.status.as_u16(), headers: head.headers, body, certificate, http2 })
    }

    fn config(&self) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TakesAny));
        let mut config = match &self.certificate {
            Some(pair) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain.unwrap(), key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config
    }
}

/// Believes every server: which certificate it shows is what tests look at.
#[derive(Debug)]
struct TakesAny;

impl ServerCertVerifier for TakesAny {
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
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
