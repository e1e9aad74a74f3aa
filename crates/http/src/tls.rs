//! TLS: trusted CA certificates, fingerprint of the server certificate, and client certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bowline_config::Secret;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::TlsHandshakeError;
use crate::fingerprint::{Fingerprint, FingerprintMismatch, FingerprintVerifier};

/// TLS settings of a client.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Trusted CA certificates.
    pub roots: Roots,
    /// Fingerprint of the server certificate, which is accepted even if no trusted CA signed it or if it is for another host name.
    pub fingerprint: Option<Fingerprint>,
    /// Client certificate, for servers that request one.
    pub client: Option<ClientCertificate>,
    /// Server certificates are not verified, not even by their fingerprint.
    pub insecure: bool,
}

/// Trusted CA certificates.
#[derive(Debug, Clone, Default)]
pub enum Roots {
    /// The system's CA certificates. A server may also present one of them as its own.
    #[default]
    System,
    /// Only the certificates in this PEM text. A server may also present one of them as its own.
    Pem(String),
    /// None, for clients that use only http.
    None,
}

/// Client certificate with its key.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// The certificate and its intermediate certificates, as PEM text.
    pub chain: String,
    /// Private key, as PEM text.
    pub key: Secret,
}

/// Invalid TLS settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The CA certificates are invalid.
    #[error("invalid CA certificates: {0}")]
    Roots(String),
    /// The client certificate or its key is invalid.
    #[error("invalid client certificate: {0}")]
    Client(String),
}

/// A file that cannot be used as CA certificates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaFileError {
    /// The file cannot be read.
    #[error("cannot read the CA certificates in {}: {message}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// The file has no certificate in it, or none that can be parsed.
    #[error("invalid certificate '{}', cannot be used as a trusted CA certificate", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
    },
}

impl Tls {
    /// Returns the rustls configuration.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = self.verifier(&provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Roots(error.to_string()))?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let (chain, key) = client.read()?;
                builder.with_client_auth_cert(chain, key).map_err(|error| TlsError::Client(error.to_string()))?
            }
        };
        Ok(Arc::new(config))
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        // CA certificates that cannot be read are an error even with `insecure`.
        let given = match &self.roots {
            Roots::Pem(text) => Some(TrustedCertificates::read(text, provider)?),
            Roots::System | Roots::None => None,
        };
        let verifier: Arc<dyn ServerCertVerifier> = match given {
            _ if self.insecure => return Ok(Arc::new(Unverified::accept_all(provider))),
            Some(given) => Arc::new(given),
            None if matches!(self.roots, Roots::None) => Arc::new(Unverified::reject_all(provider)),
            None => Arc::new(SystemCertificates { provider: provider.clone(), read: OnceLock::new() }),
        };
        Ok(match &self.fingerprint {
            Some(expected) => Arc::new(FingerprintVerifier::new(verifier, expected.clone(), provider)),
            None => verifier,
        })
    }
}

/// Verifier that trusts the system's CA certificates. They are read in the first handshake: a system has more than a hundred, and
/// clients of many private clouds use only http.
#[derive(Debug)]
struct SystemCertificates {
    provider: Arc<CryptoProvider>,
    read: OnceLock<Arc<dyn ServerCertVerifier>>,
}

impl SystemCertificates {
    fn verifier(&self) -> &dyn ServerCertVerifier {
        self.read.get_or_init(|| SystemCertificates::read(&self.provider)).as_ref()
    }

    /// Reads the certificates. If there are none, https fails.
    fn read(provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "cannot read some CA certificates of the system");
        }
        match TrustedCertificates::new(found.certs, provider) {
            Ok(given) => Arc::new(given),
            Err(error) => {
                tracing::warn!(%error, "the system has no CA certificates; https will fail");
                Arc::new(Unverified::reject_all(provider))
            }
        }
    }
}

impl ServerCertVerifier for SystemCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertificate {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let invalid = |what: &str, error: &dyn std::fmt::Display| TlsError::Client(format!("{what}: {error}"));
        let chain = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| invalid("the certificate", &error))?;
        if chain.is_empty() {
            return Err(TlsError::Client("the certificate: no certificate found in the PEM text".to_owned()));
        }
        // Errors must not quote the key.
        let key = PrivateKeyDer::from_pem_slice(self.key.reveal().as_bytes());
        let key = key.map_err(|_| invalid("the key", &"not a private key in PEM"))?;
        Ok((chain, key))
    }
}

/// Verifier that trusts the given certificates, both as CAs and as server certificates.
///
/// Many private clouds have a self-signed server certificate and publish it as the CA certificate. Such a certificate is marked as
/// a CA, which webpki does not accept from a server, while Go does.
#[derive(Debug)]
struct TrustedCertificates {
    inner: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl TrustedCertificates {
    /// Reads certificates from PEM text.
    fn read(text: &str, provider: &Arc<CryptoProvider>) -> Result<TrustedCertificates, TlsError> {
        let certificates = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| TlsError::Roots(error.to_string()))?;
        if certificates.is_empty() {
            return Err(TlsError::Roots("no certificate found; PEM is required".to_owned()));
        }
        TrustedCertificates::new(certificates, provider)
    }

    /// Creates a verifier. At least one certificate must be valid.
    fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<TrustedCertificates, TlsError> {
        let mut roots = RootCertStore::empty();
        let (used, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        if used == 0 {
            return Err(TlsError::Roots("none of the certificates can be parsed".to_owned()));
        }
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let inner = builder.build().map_err(|error| TlsError::Roots(error.to_string()))?;
        Ok(TrustedCertificates { inner, certificates })
    }
}

impl ServerCertVerifier for TrustedCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // webpki checks the expiry first, which has an error of its own.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.certificates.iter().any(|given| given == end_entity) =>
            {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Verifier that accepts or rejects every certificate without parsing it: some servers have certificates that webpki cannot parse,
/// with X.509 v1 or short keys. Handshake signatures are not verified either, because they prove nothing for an unknown server.
#[derive(Debug)]
struct Unverified {
    accepts: bool,
    schemes: Vec<SignatureScheme>,
}

impl Unverified {
    /// Accepts every certificate, as configured by `insecure`.
    fn accept_all(provider: &CryptoProvider) -> Unverified {
        Unverified { accepts: true, schemes: provider.signature_verification_algorithms.supported_schemes() }
    }

    /// Rejects every certificate, because no CA certificates are trusted.
    fn reject_all(provider: &CryptoProvider) -> Unverified {
        Unverified { accepts: false, ..Unverified::accept_all(provider) }
    }

    fn verdict<T>(&self, trust: T) -> Result<T, rustls::Error> {
        match self.accepts {
            true => Ok(trust),
            false => Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verdict(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verdict(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verdict(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

impl Roots {
    /// Reads CA certificates from PEM files. Each file must have a certificate that can be parsed. Returns all errors.
    pub fn from_files(paths: &[PathBuf]) -> Result<Roots, Vec<CaFileError>> {
        let mut errors = Vec::new();
        let mut text = String::new();
        for path in paths {
            match read_certificates(path) {
                // A file may end without a line break.
                Ok(certificates) => text = format!("{text}{certificates}\n"),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(Roots::Pem(text)) } else { Err(errors) }
    }
}

fn read_certificates(path: &Path) -> Result<String, CaFileError> {
    let text = crate::tls_files::pem_text(path);
    let text = text.map_err(|error| CaFileError::Unreadable { path: path.into(), message: error.message })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    match TrustedCertificates::read(&text, &provider) {
        Ok(_) => Ok(text),
        Err(_) => Err(CaFileError::Invalid { path: path.into() }),
    }
}

/// Returns the handshake error in an I/O error, if there is one.
pub(crate) fn handshake_error(error: &io::Error) -> Option<TlsHandshakeError> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(classify)
}

fn classify(error: &rustls::Error) -> TlsHandshakeError {
    use CertificateError as Certificate;
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            // A bad signature means an issuer with the name of a trusted CA and another key.
            Certificate::UnknownIssuer | Certificate::BadSignature => TlsHandshakeError::UnknownIssuer,
            Certificate::Expired | Certificate::ExpiredContext { .. } => TlsHandshakeError::Expired,
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => TlsHandshakeError::NotYetValid,
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => TlsHandshakeError::WrongName,
            Certificate::Other(other) => match other.0.downcast_ref::<FingerprintMismatch>() {
                Some(mismatch) => TlsHandshakeError::WrongFingerprint(mismatch.clone()),
                None => TlsHandshakeError::Other(error.to_string()),
            },
            other => TlsHandshakeError::Other(other.to_string()),
        },
        rustls::Error::AlertReceived(alert) if is_about_our_certificate(*alert) => {
            TlsHandshakeError::Refused(format!("{alert:?}"))
        }
        other => TlsHandshakeError::Other(other.to_string()),
    }
}

fn is_about_our_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            // The certificate of an issuer with the name of a trusted CA and another key.
            | Alert::DecryptError
    )
}
