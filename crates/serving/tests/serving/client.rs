//! A TLS client with an optional certificate, which records the server's certificate.

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

/// Options of a client.
#[derive(Clone)]
pub(crate) struct TestClient {
    address: SocketAddr,
    certificate: Option<Pair>,
    /// Server name in the handshake; without one the address is used, which is not sent as SNI.
    name: Option<&'static str>,
    protocols: Vec<&'static [u8]>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

/// A response, with the certificate and protocol of its connection.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// Certificate of the server.
    pub(crate) certificate: Vec<u8>,
    pub(crate) http2: bool,
}

impl TestClient {
    pub(crate) fn to(address: SocketAddr) -> TestClient {
        let versions = vec![&rustls::version::TLS12, &rustls::version::TLS13];
        TestClient {
            address,
            certificate: None,
            name: Some("localhost"),
            protocols: vec![b"h2", b"http/1.1"],
            versions,
        }
    }

    pub(crate) fn with(self, pair: &Pair) -> TestClient {
        TestClient { certificate: Some(pair.clone()), ..self }
    }

    pub(crate) fn with_server_name(self, name: Option<&'static str>) -> TestClient {
        TestClient { name, ..self }
    }

    pub(crate) fn with_alpn(self, protocol: &'static [u8]) -> TestClient {
        TestClient { protocols: vec![protocol], ..self }
    }

    pub(crate) fn with_tls_version(self, version: &'static SupportedProtocolVersion) -> TestClient {
        TestClient { versions: vec![version], ..self }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path, &[], "").await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.request(Method::GET, path, headers, "").await
    }

    pub(crate) async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        self.try_request(method, path, headers, body).await.unwrap()
    }

    /// Opens a TLS connection.
    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = match self.name {
            Some(name) => ServerName::try_from(name).unwrap(),
            None => ServerName::IpAddress(self.address.ip().into()),
        };
        TlsConnector::from(Arc::new(self.config())).connect(name, stream).await
    }

    pub(crate) async fn try_request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Response, Box<dyn std::error::Error + Send + Sync>> {
        let stream = self.connect().await?;
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
        Ok(Response { status: head.status.as_u16(), headers: head.headers, body, certificate, http2 })
    }

    fn config(&self) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny));
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

/// Accepts every certificate: tests check which one the server presents.
#[derive(Debug)]
struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
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
