//! Whom to trust, and as whom to appear.

use std::io;
use std::sync::Arc;

use bowline_config::Secret;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::TlsFailure;

/// Whom to trust, and with which certificate.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Who vouches for servers.
    pub roots: Roots,
    /// What we show to servers that ask.
    pub client: Option<ClientCertificate>,
    /// Nobody is checked.
    pub insecure: bool,
}

/// Who vouches for servers.
#[derive(Debug, Clone, Default)]
pub enum Roots {
    /// Those that the system trusts. A server may also show one of them as its own.
    #[default]
    System,
    /// The certificates in this PEM text, and no others. A server may also show one of them as its own.
    Pem(String),
    /// None: only http is spoken.
    None,
}

/// What we show to servers that ask.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// The certificate, and those between it and its root, as PEM text.
    pub chain: String,
    /// Its key, as PEM text.
    pub key: Secret,
}

/// Why there is no TLS to be had with this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// For those whom we are to trust.
    #[error("the certificates to trust cannot be used: {0}")]
    Roots(String),
    /// For what we are to show.
    #[error("the client certificate cannot be used: {0}")]
    Client(String),
}

impl Tls {
    /// As rustls has it.
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
        // Whoever is to trust certificates that cannot be read has something else in mind than to trust everybody.
        let given = match &self.roots {
            Roots::Pem(text) => Some(Given::read(text, provider)?),
            Roots::System | Roots::None => None,
        };
        Ok(match given {
            _ if self.insecure => Arc::new(Blind::trusting_everybody(provider)),
            Some(given) => Arc::new(given),
            None if matches!(self.roots, Roots::None) => Arc::new(Blind::trusting_nobody(provider)),
            None => system(provider),
        })
    }
}

/// Those that the system trusts. An image without any can still ask those that do not encrypt.
fn system(provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some certificates that this system trusts cannot be read");
    }
    match Given::new(found.certs, provider) {
        Ok(given) => Arc::new(given),
        Err(error) => {
            tracing::warn!(%error, "there are no certificates to trust on this system; https will fail");
            Arc::new(Blind::trusting_nobody(provider))
        }
    }
}

impl ClientCertificate {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let bad = |what: &str, error: &dyn std::fmt::Display| TlsError::Client(format!("{what}: {error}"));
        let chain = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| bad("the certificate", &error))?;
        if chain.is_empty() {
            return Err(TlsError::Client("the certificate: there is none in the text".to_owned()));
        }
        // What is wrong with a key is not quoted.
        let key = PrivateKeyDer::from_pem_slice(self.key.reveal().as_bytes());
        let key = key.map_err(|_| bad("the key", &"it is no private key in PEM"))?;
        Ok((chain, key))
    }
}

/// Trusts the certificates that it was given: who they vouch for, and whoever shows one of them.
///
/// Many a private cloud has a certificate that vouches for itself, and hands that out as the one to trust. Such a one says of
/// itself that it is an authority, which webpki does not take from a server, while Go does.
#[derive(Debug)]
struct Given {
    inner: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Given {
    /// From PEM text.
    fn read(text: &str, provider: &Arc<CryptoProvider>) -> Result<Given, TlsError> {
        let certificates = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| TlsError::Roots(error.to_string()))?;
        if certificates.is_empty() {
            return Err(TlsError::Roots("there is no certificate in the text; it must be PEM".to_owned()));
        }
        Given::new(certificates, provider)
    }

    /// Of these, one at least must be readable.
    fn new(certificates: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Result<Given, TlsError> {
        let mut roots = RootCertStore::empty();
        let (used, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        if used == 0 {
            return Err(TlsError::Roots("none of them is a certificate that can be read".to_owned()));
        }
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let inner = builder.build().map_err(|error| TlsError::Roots(error.to_string()))?;
        Ok(Given { inner, certificates })
    }
}

impl ServerCertVerifier for Given {
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
            // Whether it has expired is looked at before whose it is, and has an error of its own.
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

/// Decides without a look at the certificate: there are servers with one that webpki cannot even read, of X.509 v1 or with a
/// short key. So it does not ask whether they have its key, either, which proves nothing of somebody unknown.
#[derive(Debug)]
struct Blind {
    trusts_everybody: bool,
    schemes: Vec<SignatureScheme>,
}

impl Blind {
    /// As the configuration wishes.
    fn trusting_everybody(provider: &CryptoProvider) -> Blind {
        Blind { trusts_everybody: true, schemes: provider.signature_verification_algorithms.supported_schemes() }
    }

    /// Having nobody to ask.
    fn trusting_nobody(provider: &CryptoProvider) -> Blind {
        Blind { trusts_everybody: false, ..Blind::trusting_everybody(provider) }
    }

    fn verdict<T>(&self, trust: T) -> Result<T, rustls::Error> {
        match self.trusts_everybody {
            true => Ok(trust),
            false => Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }
}

impl ServerCertVerifier for Blind {
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

/// What TLS has to do with this error, if anything.
pub(crate) fn failure(error: &io::Error) -> Option<TlsFailure> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(explained)
}

fn explained(error: &rustls::Error) -> TlsFailure {
    use CertificateError as Certificate;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            // Of somebody with the name of one whom we trust, and another key.
            Certificate::UnknownIssuer | Certificate::BadSignature => TlsFailure::UnknownIssuer,
            Certificate::Expired | Certificate::ExpiredContext { .. } => TlsFailure::Expired,
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => TlsFailure::NotYetValid,
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => TlsFailure::WrongName,
            other => TlsFailure::Other(other.to_string()),
        },
        rustls::Error::AlertReceived(alert) if is_about_our_certificate(*alert) => {
            TlsFailure::Refused(format!("{alert:?}"))
        }
        other => TlsFailure::Other(other.to_string()),
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
    )
}
