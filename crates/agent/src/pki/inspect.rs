//! What a certificate says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::der::asn1::Utf8StringRef;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{SubjectAltName, SubjectKeyIdentifier};

use crate::certificate_names::COMMON_NAME;

/// A parsed certificate.
pub(super) struct Certificate {
    pub(super) der: CertificateDer<'static>,
    /// Subject alternative names: DNS names and IP addresses.
    pub(super) names: Vec<String>,
    /// Common name, if it is the whole subject.
    pub(super) subject: Option<String>,
    /// Key identifier, which certificates that it signs refer to.
    pub(super) key_id: Option<Vec<u8>>,
    /// Public key, in DER.
    pub(super) public_key: Vec<u8>,
    /// End of its validity, since 1970.
    pub(super) not_after: Duration,
    /// The same as `YYYY-MM-DD`.
    pub(super) expires: String,
}

impl Certificate {
    /// Parses the first certificate in a PEM text.
    pub(super) fn parse(pem: &str) -> Result<Certificate, String> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| "contains no PEM certificate")?;
        let parsed = x509_cert::Certificate::from_der(&der).map_err(|error| format!("is not valid: {error}"))?;
        let fields = &parsed.tbs_certificate;
        let not_after = fields.validity.not_after;
        let date = not_after.to_date_time();
        let key_id = fields.get::<SubjectKeyIdentifier>().ok().flatten();
        Ok(Certificate {
            names: names(fields),
            subject: subject(fields),
            key_id: key_id.map(|(_, id)| id.0.as_bytes().to_vec()),
            public_key: fields.subject_public_key_info.to_der().map_err(|error| error.to_string())?,
            not_after: not_after.to_unix_duration(),
            expires: format!("{}-{:02}-{:02}", date.year(), date.month(), date.day()),
            der,
        })
    }

    /// Whether it has exactly these names.
    pub(super) fn has_names(&self, names: &[String]) -> bool {
        let sorted = |names: &[String]| {
            let mut names: Vec<_> = names.iter().map(|name| canonical(name)).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        sorted(&self.names) == sorted(names)
    }
}

/// One spelling of an address or name.
fn canonical(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_ascii_lowercase(), |ip| ip.to_string())
}

fn names(fields: &x509_cert::TbsCertificate) -> Vec<String> {
    let names = fields.get::<SubjectAltName>().ok().flatten();
    let name = |name: GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => ip(bytes.as_bytes()).map(|ip| ip.to_string()),
        _ => None,
    };
    names.into_iter().flat_map(|(_, names)| names.0).filter_map(name).collect()
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}

/// Returns the common name if the subject has nothing else, in the encoding of rcgen: then rcgen writes the same subject.
fn subject(fields: &x509_cert::TbsCertificate) -> Option<String> {
    let [attributes] = fields.subject.0.as_slice() else { return None };
    let [attribute] = attributes.0.as_slice() else { return None };
    let text = attribute.value.decode_as::<Utf8StringRef<'_>>().ok()?;
    (attribute.oid == COMMON_NAME).then(|| text.as_str().to_owned())
}
