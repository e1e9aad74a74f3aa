//! The server's certificate authority: serving certificate, client certificates and kubeconfig files.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, SigningKey as _,
};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Any, BitString, ObjectIdentifier, SetOfVec};
use x509_cert::der::{self, Decode as _, Encode as _, Tag};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

pub(crate) const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
pub(crate) const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// Error when creating certificates or the TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate could not be created or signed.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A user or group name cannot be encoded in a certificate.
    #[error("cannot encode the subject of a certificate: {0}")]
    Name(#[from] der::Error),
    /// The TLS library rejected a certificate or key.
    #[error("cannot set up TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// The client-certificate verifier could not be built.
    #[error("cannot set up client certificate verification: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The certificate authority that signs all certificates of this server.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Authority, TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name("bowline-apiserver-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Authority { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// The CA certificate as PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a client certificate with the user as common name and the groups as organisations.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Identity, TlsError> {
        let mut params = CertificateParams::default();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = self.with_subject(params.signed_by(&key, &self.issuer)?.der(), user, groups)?;
        Ok(Identity { certificate: pem::encode(&pem::Pem::new("CERTIFICATE", certificate)), key: key.serialize_pem() })
    }

    /// Replaces the subject of a certificate and signs it again, because rcgen supports only one organisation.
    fn with_subject(&self, certificate: &[u8], user: &str, groups: &[&str]) -> Result<Vec<u8>, TlsError> {
        let mut certificate = Certificate::from_der(certificate)?;
        certificate.tbs_certificate.subject = subject(user, groups)?;
        let signature = self.issuer.key().sign(&certificate.tbs_certificate.to_der()?)?;
        certificate.signature = BitString::from_bytes(&signature)?;
        Ok(certificate.to_der()?)
    }

    /// The TLS configuration of a server at this address, with the DNS names it has in a cluster.
    pub(crate) fn server_config(&self, address: IpAddr, service: IpAddr) -> Result<rustls::ServerConfig, TlsError> {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned))?;
        let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
        params.subject_alt_names.extend(loopback.into_iter().chain([address, service]).map(SanType::IpAddress));
        params.distinguished_name = name("bowline-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// A subject with one attribute for the user and one for each group.
fn subject(user: &str, groups: &[&str]) -> Result<RdnSequence, der::Error> {
    let groups = groups.iter().map(|group| (ORGANIZATION, *group));
    let names = groups.chain([(COMMON_NAME, user)]).map(|(oid, text)| attribute(oid, text));
    Ok(RdnSequence(names.collect::<Result<_, _>>()?))
}

fn attribute(oid: ObjectIdentifier, text: &str) -> Result<RelativeDistinguishedName, der::Error> {
    let value = Any::new(Tag::Utf8String, text.as_bytes())?;
    Ok(RelativeDistinguishedName(SetOfVec::try_from([AttributeTypeAndValue { oid, value }])?))
}

/// A kubeconfig with one cluster and one user.
pub(crate) fn kubeconfig(url: &str, authority: &Authority, user: &str, identity: &Identity) -> String {
    let encode = |pem: &str| BASE64.encode(pem);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: bowline\n\
         \x20 cluster:\n\
         \x20   server: {url}\n\
         \x20   certificate-authority-data: {}\n\
         users:\n\
         - name: {user:?}\n\
         \x20 user:\n\
         \x20   client-certificate-data: {}\n\
         \x20   client-key-data: {}\n\
         contexts:\n\
         - name: bowline\n\
         \x20 context:\n\
         \x20   cluster: bowline\n\
         \x20   user: {user:?}\n\
         current-context: bowline\n",
        encode(&authority.pem()),
        encode(&identity.certificate),
        encode(&identity.key),
    )
}
