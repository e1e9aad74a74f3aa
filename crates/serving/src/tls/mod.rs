//! TLS configuration of the server.

mod pair;
mod self_signed;
mod suites;

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

pub(crate) use pair::{Certificates, certificates as certificates_in};
pub use suites::{UnknownCipherSuite, check_cipher_suites};

use crate::TlsOptions;
use crate::files::FileError;

/// A failure to set up TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key file is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// Creating the self-signed certificate failed.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library rejected the configuration.
    #[error("cannot set up TLS: {0}")]
    Library(#[from] rustls::Error),
    /// A cipher suite is unknown.
    #[error(transparent)]
    Suite(#[from] UnknownCipherSuite),
}

/// Loads or creates the certificates and configures TLS.
pub(crate) fn set_up(
    options: &TlsOptions,
    address: IpAddr,
    http2: bool,
) -> Result<(Arc<ServerConfig>, Arc<Certificates>), TlsError> {
    check_cipher_suites(&options.cipher_suites)?;
    let certificates = Arc::new(Certificates::new(options, address)?);
    let suites = suites::offered(&options.cipher_suites);
    let provider = Arc::new(CryptoProvider { cipher_suites: suites, ..rustls::crypto::ring::default_provider() });
    let algorithms = provider.signature_verification_algorithms;
    let has_tls12 = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
    let versions: &[_] = if options.only_tls13 || !has_tls12 { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(RequestCertificate(algorithms)))
        .with_cert_resolver(certificates.clone());
    config.alpn_protocols = if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![b"http/1.1".to_vec()] };
    Ok((Arc::new(config), certificates))
}

/// Requests a client certificate and verifies that the client has its key. The chain is verified per request, so that a client with an
/// untrusted certificate gets a 401 instead of a broken connection.
#[derive(Debug)]
struct RequestCertificate(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for RequestCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
