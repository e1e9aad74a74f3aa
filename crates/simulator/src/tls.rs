//! TLS for simulated clouds whose clients accept nothing else.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// A self-signed certificate with its key, for a server on the loopback interface.
#[derive(Clone)]
pub struct Certificate {
    pem: String,
    der: CertificateDer<'static>,
    config: Arc<ServerConfig>,
}

impl Certificate {
    /// Creates a certificate for `127.0.0.1`, `::1` and `localhost`.
    pub fn for_loopback() -> std::io::Result<Certificate> {
        let names = ["127.0.0.1", "::1", "localhost"].map(str::to_owned);
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).map_err(std::io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key.into()))
            .map_err(std::io::Error::other)?;
        Ok(Certificate { pem: cert.pem(), der: cert.der().clone(), config: Arc::new(config) })
    }

    /// The certificate in PEM format, which a client can trust as a CA certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// SHA-256 fingerprint: hex pairs in upper case, joined by `:`.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.der);
        let pairs: Vec<_> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        pairs.join(":")
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }
}
