//! Fingerprints of server certificates, for servers without a certificate of a trusted CA.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

/// SHA-1 or SHA-256 fingerprint of a certificate, written as hex pairs joined by `:`.
///
/// ```
/// use bowline_http::Fingerprint;
///
/// let fingerprint: Fingerprint = "c7:d1:50:3e:92:3f:ad:f2:70:b3:8c:a9:7d:b9:56:4e:cc:2b:12:2c".parse().unwrap();
/// assert_eq!(fingerprint.to_string(), "C7:D1:50:3E:92:3F:AD:F2:70:B3:8C:A9:7D:B9:56:4E:CC:2B:12:2C");
/// assert!("C7:D1".parse::<Fingerprint>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(Vec<u8>);

/// A text that is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a certificate fingerprint; fix: use the output of openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE: 32 hex \
     pairs joined by \":\" (20 for SHA-1)"
)]
pub struct FingerprintError(String);

/// A server certificate that has another fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "host {host:?} thumbprint does not match \"{expected}\"; its certificate has the SHA-256 fingerprint {presented}"
)]
pub struct FingerprintMismatch {
    /// Host and port of the server.
    pub host: String,
    /// The configured fingerprint.
    pub expected: Fingerprint,
    /// SHA-256 fingerprint of the certificate that the server presented.
    pub presented: Fingerprint,
}

/// Verifier that accepts the certificate with a fingerprint if another verifier rejects it for its issuer or its name.
///
/// All other reasons stay: a certificate that has expired is rejected even if the fingerprint matches.
#[derive(Debug)]
pub(crate) struct FingerprintVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    expected: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Fingerprint {
    /// Returns the SHA-256 fingerprint of a certificate in DER.
    pub fn sha256(certificate: &[u8]) -> Fingerprint {
        Fingerprint(digest::digest(&SHA256, certificate).as_ref().to_vec())
    }

    fn matches(&self, certificate: &[u8]) -> bool {
        let algorithm = if self.0.len() == SHA256.output_len() { &SHA256 } else { &SHA1_FOR_LEGACY_USE_ONLY };
        digest::digest(algorithm, certificate).as_ref() == self.0
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Fingerprint, FingerprintError> {
        let bytes: Option<Vec<u8>> = text.trim().split(':').map(hex_pair).collect();
        let is_known =
            |bytes: &Vec<u8>| [SHA1_FOR_LEGACY_USE_ONLY.output_len(), SHA256.output_len()].contains(&bytes.len());
        bytes.filter(is_known).map(Fingerprint).ok_or_else(|| FingerprintError(text.to_owned()))
    }
}

fn hex_pair(pair: &str) -> Option<u8> {
    let is_pair = pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
    u8::from_str_radix(pair, 16).ok().filter(|_| is_pair)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, byte)| {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02X}")
        })
    }
}

impl FingerprintVerifier {
    pub(crate) fn new(
        inner: Arc<dyn ServerCertVerifier>,
        expected: Fingerprint,
        provider: &CryptoProvider,
    ) -> FingerprintVerifier {
        FingerprintVerifier { inner, expected, algorithms: provider.signature_verification_algorithms }
    }

    /// Fails if the certificate cannot be parsed, has expired or is not valid yet. The other verifier does not check that if there
    /// are no CA certificates at all.
    fn check_validity(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let (roots, algorithms) = (RootCertStore::empty(), self.algorithms.all);
        // The validity is verified first. Without roots, there is always another error after it.
        match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms) {
            Err(rustls::Error::InvalidCertificate(error)) if is_about_validity(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl ServerCertVerifier for FingerprintVerifier {
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
            Err(rustls::Error::InvalidCertificate(error)) if is_about_trust(&error) => {
                self.check_validity(end_entity, now)?;
                if self.expected.matches(end_entity) {
                    return Ok(ServerCertVerified::assertion());
                }
                let (host, expected) = (server_name.to_str().into_owned(), self.expected.clone());
                let mismatch = FingerprintMismatch { host, expected, presented: Fingerprint::sha256(end_entity) };
                Err(CertificateError::Other(OtherError(Arc::new(mismatch))).into())
            }
            verdict => verdict,
        }
    }

    // The server must prove that it has the key of the certificate, however the certificate itself was verified.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns whether a certificate was rejected for its issuer or its name. A self-signed certificate that is marked as a CA is one of
/// the other errors.
fn is_about_trust(error: &CertificateError) -> bool {
    use CertificateError as Certificate;
    matches!(
        error,
        Certificate::UnknownIssuer
            | Certificate::BadSignature
            | Certificate::NotValidForName
            | Certificate::NotValidForNameContext { .. }
            | Certificate::Other(_)
    )
}

fn is_about_validity(error: &CertificateError) -> bool {
    use CertificateError as Certificate;
    matches!(
        error,
        Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_parsed_in_any_case() {
        let sha1 = "C7:D1:50:3E:92:3F:AD:F2:70:B3:8C:A9:7D:B9:56:4E:CC:2B:12:2C";
        let sha256 = [sha1, "00:01:02:03:04:05:06:07:08:09:0A:0B"].join(":");
        for text in [sha1, &sha256] {
            let parsed: Fingerprint = text.parse().unwrap();
            assert_eq!(text.to_lowercase().parse(), Ok(parsed.clone()));
            assert_eq!(format!(" {text}\n").parse(), Ok(parsed.clone()));
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn a_text_that_is_not_a_fingerprint_is_an_error_with_advice() {
        let pairs = |count: usize| vec!["AB"; count].join(":");
        let odd =
            [pairs(19), pairs(21), pairs(31), pairs(33), format!("{}:+1", pairs(19)), format!("{}:ABC", pairs(18))];
        let other = ["", ":", "md5", &"AB".repeat(20), &pairs(20).replace(':', " "), &pairs(20).replace('B', "G")];
        for text in odd.iter().map(String::as_str).chain(other) {
            let error = text.parse::<Fingerprint>().unwrap_err().to_string();
            assert!(error.contains("openssl x509"), "{error}");
        }
    }

    /// Digests of `abc` from FIPS 180.
    #[test]
    fn the_algorithm_follows_from_the_length() {
        let sha1: Fingerprint = "A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D".parse().unwrap();
        let sha256 = "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:B4:10:FF:61:F2:00:15:AD";
        assert_eq!(Fingerprint::sha256(b"abc").to_string(), sha256);
        for fingerprint in [sha1, sha256.parse().unwrap()] {
            assert!(fingerprint.matches(b"abc") && !fingerprint.matches(b"abd"));
        }
    }
}
