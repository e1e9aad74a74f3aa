//! Certificates of an agent, for its server and as a client of its peers. Changed files are loaded without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bowline_http::{Client, ClientCertificate, Options, Proxies, Roots, Tls};
use bowline_runtime::{Fingerprint, Reloadable};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::certificate_names::names_in;
use crate::config::TlsConfig;
use crate::group::peer_client::PeerClient;

/// Default timeout of requests to peers.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A TLS file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}", path = path.display())]
pub struct TlsFileError {
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub message: String,
}

/// The current certificates.
pub(crate) struct Credentials {
    files: TlsConfig,
    name: String,
    fingerprint: Fingerprint,
    server: RwLock<Arc<ServerConfig>>,
    client: PeerClient,
}

/// Parsed certificates.
struct Loaded {
    server: Arc<ServerConfig>,
    client: Client,
}

impl Credentials {
    /// Reads the files. The certificate must have the name of the agent.
    pub(crate) fn open(files: &TlsConfig, name: &str) -> Result<Credentials, TlsFileError> {
        let fingerprint = Fingerprint::of(&paths(files));
        let Loaded { server, client } = load(files, name)?;
        let (server, client) = (RwLock::new(server), PeerClient::new(client));
        Ok(Credentials { files: files.clone(), name: name.to_owned(), fingerprint, server, client })
    }

    /// Configuration for the next connection of a client.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.server.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Client of the peers, which uses changed certificates as well.
    pub(crate) fn client(&self) -> PeerClient {
        self.client.clone()
    }
}

impl Reloadable for Credentials {
    fn files(&self) -> Vec<PathBuf> {
        paths(&self.files)
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn reload(&self) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async {
            let loaded = load(&self.files, &self.name).map_err(|error| error.to_string())?;
            *self.server.write().unwrap_or_else(PoisonError::into_inner) = loaded.server;
            self.client.replace(loaded.client);
            Ok(())
        })
    }
}

fn paths(files: &TlsConfig) -> Vec<PathBuf> {
    vec![files.certificate_file.clone(), files.key_file.clone(), files.client_ca_file.clone()]
}

fn load(files: &TlsConfig, name: &str) -> Result<Loaded, TlsFileError> {
    let certificate = read(&files.certificate_file)?;
    let key = read(&files.key_file)?;
    let authority = read(&files.client_ca_file)?;
    let wrong = |path: &Path, message: String| TlsFileError { path: path.to_owned(), message };
    let chain = certificates(certificate.as_bytes()).map_err(|message| wrong(&files.certificate_file, message))?;
    let names = chain.first().map(|leaf| names_in(leaf)).unwrap_or_default();
    if !names.iter().any(|found| found == name) {
        let message = format!("the certificate has the names {names:?}, but the agent is {name:?}");
        return Err(wrong(
            &files.certificate_file,
            format!("{message}; fix: create one with that name, or set `name`"),
        ));
    }
    let verifier = client_verifier(authority.as_bytes()).map_err(|message| wrong(&files.client_ca_file, message))?;
    let private = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let private = private.map_err(|_| wrong(&files.key_file, "contains no PEM private key".to_owned()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| wrong(&files.certificate_file, error.to_string()))?;
    let server = builder.with_client_cert_verifier(verifier).with_single_cert(chain, private);
    let mut server =
        server.map_err(|error| wrong(&files.key_file, format!("does not fit the certificate: {error}")))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let tls = tls(authority, certificate, key);
    let client = Client::new(Options { tls, proxies: Proxies::default(), timeout: TIMEOUT });
    let client = client.map_err(|error| wrong(&files.certificate_file, error.to_string()))?;
    Ok(Loaded { server: Arc::new(server), client })
}

/// TLS settings of an agent as a client.
pub(crate) fn client_tls(files: &TlsConfig) -> Result<Tls, TlsFileError> {
    Ok(tls(read(&files.client_ca_file)?, read(&files.certificate_file)?, read(&files.key_file)?))
}

fn tls(authority: String, chain: String, key: String) -> Tls {
    let client = ClientCertificate { chain, key: key.into() };
    Tls { roots: Roots::Pem(authority), client: Some(client), ..Tls::default() }
}

/// Certificate of an agent, in DER, without those of its CAs.
pub(crate) fn leaf(files: &TlsConfig) -> Result<CertificateDer<'static>, TlsFileError> {
    let (path, text) = (&files.certificate_file, read(&files.certificate_file)?);
    let chain = CertificateDer::from_pem_slice(text.as_bytes());
    chain.map_err(|_| TlsFileError { path: path.clone(), message: "contains no PEM certificate".to_owned() })
}

fn read(path: &Path) -> Result<String, TlsFileError> {
    std::fs::read_to_string(path)
        .map_err(|error| TlsFileError { path: path.to_owned(), message: format!("cannot be read: {error}") })
}

/// Verifier of client certificates that these CA certificates signed.
pub(crate) fn client_verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| format!("contains an invalid certificate: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| format!("cannot be used: {error}"))
}

/// All certificates in a PEM text, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => Err("contains no PEM certificate".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("is not valid PEM: {error}")),
    }
}
