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

/// Authorities whose word counts.
#[derive(Debug, Clone)]
pub(super) struct Bundle(Arc<dyn ClientCertVerifier>);

impl Bundle {
    /// All certificates in a PEM text. The error says what is wrong with it.
    pub(super) fn parse(pem: &[u8]) -> Result<Bundle, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates_in(pem)? {
            roots.add(certificate).map_err(|error| format!("has a certificate that is of no use: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map(Bundle).map_err(|error| format!("is of no use: {error}"))
    }

    /// The one of whom these authorities say who they are; nobody if nothing was shown.
    pub(super) fn who(&self, shown: &[CertificateDer<'static>]) -> Result<Option<User>, String> {
        match self.subject(shown)? {
            Some(subject) if subject.name.is_empty() => Ok(None),
            subject => Ok(subject),
        }
    }

    /// The subject of what was shown, if an authority stands by it.
    pub(super) fn subject(&self, shown: &[CertificateDer<'static>]) -> Result<Option<User>, String> {
        let Some((own, between)) = shown.split_first() else { return Ok(None) };
        let believed = self.0.verify_client_cert(own, between, UnixTime::now());
        believed.map_err(|error| format!("a client certificate is not believed: {error}"))?;
        subject(own).map(Some)
    }
}

/// For [`Files`](crate::files::Files) with one path.
pub(super) fn bundle_from_files(paths: &[PathBuf], contents: &[Vec<u8>]) -> Result<Bundle, FileError> {
    let (path, pem) = (paths.first().cloned().unwrap_or_default(), contents.first().map_or(&[][..], Vec::as_slice));
    Bundle::parse(pem).map_err(|message| FileError { path, message })
}

/// The last common name is the user, each organization a group.
fn subject(der: &[u8]) -> Result<User, String> {
    let certificate = Certificate::from_der(der).map_err(|error| format!("a client certificate is none: {error}"))?;
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
