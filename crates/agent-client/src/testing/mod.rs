//! Certificates, and a small HTTPS server that requires client certificates, for tests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Temporary folder, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bowline-agent-client-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A CA.
pub(crate) struct Pki {
    pub(crate) ca: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "agents");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap().pem();
        Pki { ca, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key for these names, in PEM.
    pub(crate) fn issue(&self, names: &[&str]) -> (String, String) {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes the CA certificate, and the certificate and key of a client, and returns their paths.
    pub(crate) fn write_client(&self, folder: &Folder, name: &str) -> [String; 3] {
        let (certificate, key) = self.issue(&[name]);
        let ca = folder.write("ca.crt", &self.ca);
        [ca, folder.write(&format!("{name}.crt"), &certificate), folder.write(&format!("{name}.key"), &key)]
    }

    fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let (certificate, key) = self.issue(&["127.0.0.1"]);
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Answer of a server; `None` breaks the connection.
pub(crate) type Answer = Arc<dyn Fn(&Request<Bytes>) -> Option<Response<Bytes>> + Send + Sync>;

/// A server on the loopback interface, stopped on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(pki: &Pki, answer: Answer) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, acceptor) = (listener.local_addr().unwrap(), pki.acceptor());
        let task = tokio::spawn(async move {
            // Dropped with the task, which ends the connections.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(stream, answer).await;
                    }
                });
            }
        });
        Server { address, task }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Serves a Unix socket until the end of the test.
pub(crate) fn serve_unix(listener: UnixListener, answer: Answer) {
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, answer.clone()));
        }
    });
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answer) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap_or_default().to_bytes();
            match answer(&Request::from_parts(head, body)) {
                Some(response) => Ok::<_, Infallible>(response.map(Full::new)),
                None => std::future::pending().await,
            }
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
