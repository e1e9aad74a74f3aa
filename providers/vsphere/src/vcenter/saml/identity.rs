//! Certificate and key of a login, from PEM text.

use bowline_config::Secret;
use bowline_http::sign::{KeyError, RsaKey, SignError};
use jiff::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// Certificate with its key.
pub(super) struct Identity {
    /// The certificate in DER.
    pub certificate: Vec<u8>,
    key: RsaKey,
}

/// A certificate or key that cannot be used. Its text quotes neither.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdentityError {
    #[error("user is not a certificate: {0}; fix: use PEM text from BEGIN to END CERTIFICATE")]
    Certificate(&'static str),
    #[error("the certificate in user is valid only {0}; fix: configure a new certificate")]
    Validity(String),
    #[error("password is not the key of the certificate in user: {0}")]
    Key(#[from] KeyError),
    #[error("password is not the key of the certificate in user: it belongs to another certificate")]
    Mismatch,
}

impl Identity {
    /// Reads the first certificate and the first key.
    pub(super) fn from_pem(certificate: &str, key: &Secret, now: Timestamp) -> Result<Identity, IdentityError> {
        let block = pem::parse(certificate).map_err(|_| IdentityError::Certificate("it is not valid PEM"))?;
        if block.tag() != "CERTIFICATE" {
            return Err(IdentityError::Certificate("the PEM text has something else in it"));
        }
        let certificate = block.into_contents();
        let parsed = Certificate::from_der(&certificate);
        let parsed = parsed.map_err(|_| IdentityError::Certificate("it is not valid X.509"))?.tbs_certificate;
        check_validity(&parsed.validity, now)?;
        let key = RsaKey::from_pem(key)?;
        match parsed.subject_public_key_info.subject_public_key.raw_bytes() == key.public_key() {
            true => Ok(Identity { certificate, key }),
            false => Err(IdentityError::Mismatch),
        }
    }

    /// Signs with RSA and SHA-256.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        self.key.sign(message)
    }

    #[cfg(test)]
    pub(super) fn public_key(&self) -> &[u8] {
        self.key.public_key()
    }
}

/// Fails if the certificate is not valid now: the STS only answers that the authentication failed.
fn check_validity(validity: &x509_cert::time::Validity, now: Timestamp) -> Result<(), IdentityError> {
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let (from, until) = (validity.not_before, validity.not_after);
    if seconds < from.to_unix_duration().as_secs() {
        return Err(IdentityError::Validity(format!("from {from} on")));
    }
    if seconds > until.to_unix_duration().as_secs() {
        return Err(IdentityError::Validity(format!("until {until}")));
    }
    Ok(())
}
