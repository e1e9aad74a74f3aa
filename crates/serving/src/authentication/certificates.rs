//! Client certificates: the common name is the user, the organisations are the groups.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;

use crate::files::FileError;
use crate::tls::certificates_in;
use crate::user::User;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
/// `kubernetes.io/uid` as part of a subject.
const KUBERNETES_UID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");

/// CA bundle that verifies client certificates.
#[derive(Debug, Clone)]
pub(super) struct Bundle(Arc<dyn ClientCertVerifier>);

impl Bundle {
    /// Parses all certificates in a PEM text.
    pub(super) fn parse(pem: &[u8]) -> Result<Bundle, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates_in(pem)? {
            roots.add(certificate).map_err(|error| format!("contains an invalid certificate: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map(Bundle).map_err(|error| format!("cannot be used: {error}"))
    }

    /// Identity from the client certificate, if one was presented and a trusted CA signed it.
    pub(super) fn user(&self, chain: &[CertificateDer<'static>]) -> Result<Option<User>, String> {
        match self.subject(chain)? {
            Some(subject) if subject.name.is_empty() => Ok(None),
            subject => Ok(subject),
        }
    }

    /// Subject of the client certificate, if a trusted CA signed it.
    pub(super) fn subject(&self, chain: &[CertificateDer<'static>]) -> Result<Option<User>, String> {
        let Some((leaf, intermediates)) = chain.split_first() else { return Ok(None) };
        let verified = self.0.verify_client_cert(leaf, intermediates, UnixTime::now());
        verified.map_err(|error| format!("verifying the client certificate failed: {error}"))?;
        subject(leaf).map(Some)
    }
}

/// Parser for [`Files`](crate::files::Files) with one path.
pub(super) fn bundle_from_files(paths: &[PathBuf], contents: &[Vec<u8>]) -> Result<Bundle, FileError> {
    let (path, pem) = (paths.first().cloned().unwrap_or_default(), contents.first().map_or(&[][..], Vec::as_slice));
    Bundle::parse(pem).map_err(|message| FileError { path, message })
}

/// Maps a certificate to a user: the last common name is the name, each organization a group.
fn subject(der: &[u8]) -> Result<User, String> {
    let certificate = Certificate::from_der(der).map_err(|error| format!("invalid client certificate: {error}"))?;
    let names = || certificate.tbs_certificate.subject.0.iter().flat_map(|rdn| rdn.0.iter());
    let texts = |oid: ObjectIdentifier| names().filter(move |name| name.oid == oid).filter_map(text);
    Ok(User {
        name: texts(COMMON_NAME).next_back().unwrap_or_default(),
        uid: texts(KUBERNETES_UID).next().unwrap_or_default(),
        groups: texts(ORGANIZATION).collect(),
        ..User::default()
    })
}

fn text(name: &AttributeTypeAndValue) -> Option<String> {
    String::from_utf8(name.value.value().to_vec()).ok()
}
