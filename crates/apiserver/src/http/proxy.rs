//! `pods/proxy`: forwards a request to a port of a Pod.
//!
//! ```text
//!  /api/v1/namespaces/NS/pods/[SCHEME:]NAME[:PORT]/proxy/PATH?QUERY  ──►  SCHEME://POD-IP:PORT/PATH?QUERY
//! ```
//!
//! The client's credentials stay here: the Pod gets neither `Authorization` nor impersonation headers. Certificates of Pods are not
//! verified, as upstream, because the server does not know who signs them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, LOCATION,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::respond::{self, Body};
use crate::state::State;
use crate::status::{ApiError, ApiResult, Named};
use crate::value::Json;

/// Timeout of the connection and the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes that are escaped in a path.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A request to forward.
pub(super) struct ProxyRequest<'a> {
    pub(super) state: &'a State,
    pub(super) head: &'a Parts,
    /// Path on the Pod: empty, or `/` and more.
    pub(super) path: &'a str,
    pub(super) body: Bytes,
    pub(super) client: Option<IpAddr>,
}

/// Forwards the request to the Pod that `id` names: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
pub(super) async fn forward(request: ProxyRequest<'_>, namespace: &str, id: &str) -> ApiResult<Response<Body>> {
    let address = PodAddress::parse(id)?;
    let pod = request.state.store.get("pods", namespace, address.name);
    let pod = pod.ok_or_else(|| ApiError::not_found(Named { group: "", kind: "pods" }, address.name))?.value();
    let (ip, port) = address.resolve(&pod, request.state.options.loopback_endpoints)?;
    if let Some(redirect) = request.redirect() {
        return Ok(redirect);
    }
    let response = exchange(ip, &port, address.https, request.to_forwarded()?).await;
    let response = response.map_err(|error| {
        // upstream: this wording, for every failure of the exchange.
        ApiError::service_unavailable(format!("error trying to reach service: {error}"))
    })?;
    Ok(to_client(response))
}

/// The part of the path that identifies a port of a Pod.
#[derive(Debug, PartialEq, Eq)]
struct PodAddress<'a> {
    https: bool,
    name: &'a str,
    /// Empty for the first port of the first container with one.
    port: &'a str,
}

impl<'a> PodAddress<'a> {
    fn parse(id: &'a str) -> ApiResult<PodAddress<'a>> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("", "", ""),
        };
        match scheme {
            _ if name.is_empty() => {}
            "" | "http" => return Ok(PodAddress { https: false, name, port }),
            "https" => return Ok(PodAddress { https: true, name, port }),
            _ => {}
        }
        Err(ApiError::bad_request(format!("invalid pod request {id:?}")))
    }

    /// Returns the address of the Pod and the port; the port may still be a name, which cannot be reached.
    fn resolve(&self, pod: &Value, loopback: bool) -> ApiResult<(IpAddr, String)> {
        let ip = pod.list("status.podIPs").first().map_or("", |entry| entry.text("ip"));
        let ip = ip.parse().ok().map(|ip: IpAddr| ip.to_canonical()).filter(|ip| is_allowed(*ip, loopback));
        let ip = ip.ok_or_else(|| ApiError::bad_request("address not allowed"))?;
        Ok((ip, self.port_of(pod)))
    }

    fn port_of(&self, pod: &Value) -> String {
        if !self.port.is_empty() {
            return self.port.to_owned();
        }
        let first = |container: &Value| container.list("ports").first().and_then(|port| port.int("containerPort"));
        let declared = pod.list("spec.containers").iter().find_map(first);
        declared.unwrap_or(if self.https { 443 } else { 80 }).to_string()
    }
}

/// upstream: only global unicast addresses, so that a forged status cannot lead to the API server itself or to a
/// metadata service.
fn is_allowed(ip: IpAddr, loopback: bool) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    (loopback || !ip.is_loopback()) && !ip.is_unspecified() && !ip.is_multicast() && !link_local
}

// === Request ===

impl ProxyRequest<'_> {
    /// upstream: a request without a path is redirected to `/`, because relative links would not work otherwise.
    fn redirect(&self) -> Option<Response<Body>> {
        if !self.path.is_empty() || !matches!(self.head.method, Method::GET | Method::HEAD) {
            return None;
        }
        let query = self.head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let location = HeaderValue::from_str(&format!("{}/{query}", self.head.uri.path())).ok()?;
        let mut response = respond::response(StatusCode::MOVED_PERMANENTLY, "text/plain; charset=utf-8");
        response.headers_mut().insert(LOCATION, location);
        Some(response)
    }

    fn to_forwarded(&self) -> ApiResult<Request<Full<Bytes>>> {
        let path = if self.path.is_empty() { "/" } else { self.path };
        let path = utf8_percent_encode(path, ESCAPED);
        let target = match self.head.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_string(),
        };
        let mut request = Request::new(Full::new(self.body.clone()));
        let invalid = |error: http::uri::InvalidUri| ApiError::bad_request(format!("invalid proxy path: {error}"));
        *request.uri_mut() = target.parse().map_err(invalid)?;
        *request.method_mut() = self.head.method.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.forwarded_headers();
        Ok(request)
    }

    fn forwarded_headers(&self) -> HeaderMap {
        let mut headers = self.head.headers.clone();
        remove_hop_by_hop(&mut headers);
        remove_credentials(&mut headers);
        // The length is that of the body, which has been read.
        headers.remove(CONTENT_LENGTH);
        let host = self.host();
        let facts = [
            ("host", host.clone()),
            ("x-forwarded-host", host),
            ("x-forwarded-proto", "https".to_owned()),
            ("x-forwarded-uri", self.head.uri.path().to_owned()),
            ("x-forwarded-for", self.forwarded_for()),
        ];
        for (name, value) in facts {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        headers
    }

    /// The host that the client addressed: HTTP/2 has it in the URI.
    fn host(&self) -> String {
        let header = self.head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = header.or_else(|| self.head.uri.authority().map(|authority| authority.as_str()));
        host.unwrap_or(&self.state.address).to_owned()
    }

    /// The addresses of all proxies before, and that of the client.
    fn forwarded_for(&self) -> String {
        let before = self.head.headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
        let client = self.client.map(|address| address.to_string());
        before.map(str::to_owned).chain(client).collect::<Vec<_>>().join(", ")
    }
}

/// Removes the headers that concern one connection only.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<String> = listed.flat_map(|value| value.split(',').map(|name| name.trim().to_owned())).collect();
    for name in listed {
        headers.remove(name);
    }
    for name in [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

fn remove_credentials(headers: &mut HeaderMap) {
    let is_identity = |name: &HeaderName| name.as_str().starts_with("impersonate-");
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_identity(name)).cloned().collect();
    for name in names.into_iter().chain([AUTHORIZATION]) {
        headers.remove(name);
    }
}

// === Exchange ===

async fn exchange(
    ip: IpAddr,
    port: &str,
    https: bool,
    request: Request<Full<Bytes>>,
) -> io::Result<Response<hyper::body::Incoming>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("dial tcp: unknown port tcp/{port}"));
    let address = SocketAddr::new(ip, port.parse().map_err(|_| invalid())?);
    let connecting = async {
        let stream = TcpStream::connect(address).await.map_err(|error| dial_error(address, &error))?;
        match https {
            true => {
                let connector = TlsConnector::from(Arc::new(tls_config().map_err(io::Error::other)?));
                let stream = connector.connect(ServerName::IpAddress(ip.into()), stream).await;
                sender(stream.map_err(|error| io::Error::other(format!("tls: {error}")))?).await
            }
            false => sender(stream).await,
        }
    };
    let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, format!("dial tcp {address}: i/o timeout"));
    let mut sender = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(timed_out)??;
    sender.send_request(request).await.map_err(io::Error::other)
}

/// Starts a connection, which lives until the response is read or dropped.
async fn sender<S>(stream: S) -> io::Result<http1::SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a proxied connection ended");
        }
    });
    Ok(sender)
}

/// upstream: the words of Go's net package.
fn dial_error(address: SocketAddr, error: &io::Error) -> io::Error {
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("dial tcp {address}: {reason}"))
}

fn tls_config() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))).with_no_client_auth())
}

/// Accepts any certificate. The signatures of the handshake are still verified.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

// === Response ===

/// upstream: a Pod cannot allow other origins to read responses of the API server.
fn to_client(response: Response<hyper::body::Incoming>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    remove_hop_by_hop(&mut head.headers);
    let cors = [
        ACCESS_CONTROL_ALLOW_CREDENTIALS,
        ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN,
    ];
    for name in cors {
        head.headers.remove(name);
    }
    respond::add_audit_id(&mut head.headers);
    // The version of the client's connection applies.
    head.version = Version::default();
    Response::from_parts(head, body.map_err(io::Error::other).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn address(https: bool, name: &'static str, port: &'static str) -> PodAddress<'static> {
        PodAddress { https, name, port }
    }

    #[test]
    fn a_pod_is_named_with_an_optional_scheme_and_port() {
        let cases = [
            ("p", Some(address(false, "p", ""))),
            ("p:8080", Some(address(false, "p", "8080"))),
            ("https:p:8443", Some(address(true, "p", "8443"))),
            ("https:p:", Some(address(true, "p", ""))),
            ("http:p:1", Some(address(false, "p", "1"))),
            (":p:1", Some(address(false, "p", "1"))),
            ("ftp:p:1", None),
            ("", None),
            (":1", None),
            ("https::1", None),
            ("https:p:1:2", None),
        ];
        for (id, expected) in cases {
            assert_eq!(PodAddress::parse(id).ok(), expected, "{id}");
        }
        assert_eq!(PodAddress::parse("ftp:p:1").unwrap_err().message, "invalid pod request \"ftp:p:1\"");
    }

    #[test]
    fn only_global_unicast_addresses_are_reached_and_loopback_ones_with_the_option() {
        let resolved = |ip: &str, loopback| {
            let pod = json!({"status": {"podIPs": [{"ip": ip}]}});
            address(false, "p", "1").resolve(&pod, loopback).map(|(ip, _)| ip.to_string())
        };
        for ip in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "fd00::1"] {
            assert_eq!(resolved(ip, false).as_deref(), Ok(ip));
        }
        for ip in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert_eq!(resolved(ip, true).as_deref(), Ok(ip));
            assert_eq!(resolved(ip, false).unwrap_err(), ApiError::bad_request("address not allowed"));
        }
        for ip in [
            "",
            "name",
            "::ffff:169.254.169.254",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "255.255.255.255",
            "224.0.0.1",
            "fe80::1",
            "ff02::1",
        ] {
            assert_eq!(resolved(ip, true).unwrap_err().message, "address not allowed", "{ip}");
        }
    }

    #[test]
    fn the_default_port_is_the_first_that_a_container_declares() {
        let pod = json!({"spec": {"containers": [{}, {"ports": [{"containerPort": 81}, {"containerPort": 82}]}]}});
        assert_eq!(address(false, "p", "").port_of(&pod), "81");
        assert_eq!(address(false, "p", "9").port_of(&pod), "9");
        assert_eq!(address(false, "p", "").port_of(&json!({})), "80");
        assert_eq!(address(true, "p", "").port_of(&json!({})), "443");
    }

    #[test]
    fn headers_of_one_connection_and_credentials_are_not_forwarded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-custom"),
            ("x-custom", "1"),
            ("keep-alive", "timeout=5"),
            ("upgrade", "websocket"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "root"),
            ("impersonate-extra-scopes", "all"),
            ("x-other", "kept"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        remove_credentials(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
    }
}
