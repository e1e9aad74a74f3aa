//! Names in a certificate.

use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

pub(crate) const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Returns the names of the owner: the DNS names, or the common name if there are none.
pub(crate) fn names_in(der: &[u8]) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(der) else { return Vec::new() };
    let names = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    let dns = names.into_iter().flat_map(|(_, names)| names.0);
    let dns = dns.filter_map(|name| if let GeneralName::DnsName(name) = name { Some(name.to_string()) } else { None });
    let dns: Vec<_> = dns.collect();
    if dns.is_empty() { common_names(&certificate) } else { dns }
}

fn common_names(certificate: &Certificate) -> Vec<String> {
    let attributes = certificate.tbs_certificate.subject.0.iter().flat_map(|rdn| rdn.0.iter());
    let text = |name: &AttributeTypeAndValue| String::from_utf8(name.value.value().to_vec()).ok();
    attributes.filter(|name| name.oid == COMMON_NAME).filter_map(text).collect()
}
