//! Certificates of the server, and their selection by SNI.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_cert::Certificate;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::{TlsError, self_signed};
use crate::TlsOptions;
use crate::files::{FileError, Files};

/// A self-signed certificate is replaced when it expires within this time.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// All certificates of the server.
pub(crate) struct Certificates {
    main: Main,
    named: Vec<Named>,
}

/// Default certificate, for clients whose SNI matches no named certificate.
enum Main {
    Files(Files<CertifiedKey>),
    SelfSigned(RwLock<Arc<CertifiedKey>>, IpAddr),
}

/// A certificate for certain host names.
struct Named {
    files: Files<CertifiedKey>,
    /// Configured names; if empty, those in the certificate.
    names: Vec<String>,
}

impl Certificates {
    pub(super) fn new(options: &TlsOptions, address: IpAddr) -> Result<Certificates, TlsError> {
        let named = |(certificate, key, names): &(PathBuf, PathBuf, Vec<String>)| {
            let files = open(certificate, key)?;
            Ok::<_, FileError>(Named { files, names: names.iter().map(|name| name.to_ascii_lowercase()).collect() })
        };
        let main = match (&options.files, &options.directory) {
            (Some((certificate, key)), _) => Main::Files(open(certificate, key)?),
            (None, Some(directory)) => {
                let file = |ending| directory.join(format!("{}.{ending}", options.pair_name));
                Main::Files(load_or_create(file("crt"), file("key"), address)?)
            }
            (None, None) => Main::SelfSigned(RwLock::new(Arc::new(self_signed_key(address)?)), address),
        };
        Ok(Certificates { main, named: options.sni.iter().map(named).collect::<Result<_, _>>()? })
    }

    /// Reloads changed files, and renews a self-signed certificate that expires soon.
    pub(crate) fn refresh(&self) {
        self.named.iter().for_each(|named| named.files.refresh());
        match &self.main {
            Main::Files(files) => files.refresh(),
            Main::SelfSigned(current, address) => {
                let ends = |key: &CertifiedKey| key.end_entity_cert().ok().and_then(|der| expiry(der));
                let last = ends(&current.read().unwrap_or_else(PoisonError::into_inner));
                if last.is_some_and(|last| last < SystemTime::now() + RENEW_BEFORE)
                    && let Ok(fresh) = self_signed_key(*address)
                {
                    *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                    tracing::info!("created a new self-signed certificate because the old one expires soon");
                }
            }
        }
    }

    fn main(&self) -> Arc<CertifiedKey> {
        match &self.main {
            Main::Files(files) => files.current(),
            Main::SelfSigned(current, _) => current.read().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificates")
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let for_name = hello.server_name().and_then(|name| {
            let named = self.named.iter().map(|named| (named.files.current(), named));
            named.filter(|(key, named)| named.is_for(key, name)).map(|(key, _)| key).next()
        });
        Some(for_name.unwrap_or_else(|| self.main()))
    }
}

impl Named {
    fn is_for(&self, key: &CertifiedKey, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        if self.names.is_empty() {
            return names_in(key).iter().any(|own| matches(own, &name));
        }
        self.names.iter().any(|own| matches(own, &name))
    }
}

/// Whether the name matches the pattern, whose first label may be `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(rest) => name.split_once('.').is_some_and(|(first, parent)| !first.is_empty() && parent == rest),
        None => pattern == name,
    }
}

/// Returns the DNS names in a certificate.
fn names_in(key: &CertifiedKey) -> Vec<String> {
    let certificate = key.end_entity_cert().ok().and_then(|der| Certificate::from_der(der).ok());
    let names = certificate.and_then(|certificate| certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten());
    let names = names.into_iter().flat_map(|(_, names)| names.0);
    names.filter_map(|name| if let GeneralName::DnsName(name) = name { Some(name.to_string()) } else { None }).collect()
}

fn open(certificate: &Path, key: &Path) -> Result<Files<CertifiedKey>, FileError> {
    Files::open(vec![certificate.to_owned(), key.to_owned()], Box::new(parse_files))
}

/// Loads the pair from the directory, or creates one if there is no valid pair.
fn load_or_create(certificate: PathBuf, key: PathBuf, address: IpAddr) -> Result<Files<CertifiedKey>, TlsError> {
    if let Ok(files) = open(&certificate, &key) {
        let ends = files.current().end_entity_cert().ok().and_then(|der| expiry(der));
        if ends.is_some_and(|ends| ends > SystemTime::now()) {
            return Ok(files);
        }
        tracing::info!(certificate = %certificate.display(), "replacing the expired certificate");
    }
    self_signed::write(&self_signed::create(address)?, &certificate, &key)?;
    Ok(open(&certificate, &key)?)
}

fn self_signed_key(address: IpAddr) -> Result<CertifiedKey, TlsError> {
    let pair = self_signed::create(address)?;
    Ok(parse_files(&[PathBuf::new(), PathBuf::new()], &[pair.certificates.into_bytes(), pair.key.into_bytes()])?)
}

/// Parses the certificate chain from the first file and the key from the second.
fn parse_files(paths: &[PathBuf], contents: &[Vec<u8>]) -> Result<CertifiedKey, FileError> {
    let ([certificate_path, key_path], [certificate, key]) = (paths, contents) else {
        return Err(FileError { path: PathBuf::new(), message: "a certificate and a key are required".to_owned() });
    };
    let wrong = |path: &PathBuf, message: String| FileError { path: path.clone(), message };
    let chain = certificates(certificate).map_err(|message| wrong(certificate_path, message))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong(key_path, format!("contains no PEM private key: {error}")))?;
    let key = rustls::crypto::ring::default_provider().key_provider.load_private_key(key);
    let key = key.map_err(|error| wrong(key_path, format!("contains an invalid private key: {error}")))?;
    match key_matches(&chain, &*key) {
        Some(true) => Ok(CertifiedKey::new(chain, key)),
        Some(false) => {
            let hint = "use the key that belongs to the certificate";
            Err(wrong(key_path, format!("does not match the certificate {}; {hint}", certificate_path.display())))
        }
        None => Err(wrong(certificate_path, "contains an invalid certificate".to_owned())),
    }
}

/// Whether the key belongs to the first certificate; `None` if the certificate is invalid. The library's own comparison rejects X.509
/// version 1 certificates, which `openssl x509 -req` creates and clients accept.
fn key_matches(chain: &[CertificateDer<'_>], key: &dyn SigningKey) -> Option<bool> {
    let certificate = Certificate::from_der(chain.first()?).ok()?;
    let certified = certificate.tbs_certificate.subject_public_key_info.to_der().ok()?;
    Some(key.public_key().is_none_or(|own| own.as_ref() == certified))
}

/// Parses all certificates in a PEM text, at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("contains no PEM certificate".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("is not valid PEM: {error}")),
    }
}

fn expiry(der: &[u8]) -> Option<SystemTime> {
    Some(Certificate::from_der(der).ok()?.tbs_certificate.validity.not_after.to_system_time())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn names_match_exactly_or_by_a_wildcard_label() {
        let cases = [
            ("a.example", "a.example", true),
            ("a.example", "b.example", false),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", false),
            ("*.example", ".example", false),
            ("*.example", "example", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_self_signed_certificate_is_valid_for_localhost_for_a_year() {
        let key = self_signed_key("192.0.2.7".parse().unwrap()).unwrap();
        assert_eq!(names_in(&key), ["localhost"]);
        let certificate = Certificate::from_der(key.end_entity_cert().unwrap()).unwrap();
        let (_, names) = certificate.tbs_certificate.get::<SubjectAltName>().unwrap().unwrap();
        let addresses: Vec<_> = names
            .0
            .iter()
            .filter_map(|name| if let GeneralName::IpAddress(ip) = name { Some(ip.as_bytes().to_vec()) } else { None })
            .collect();
        assert_eq!(addresses, [vec![127, 0, 0, 1], vec![192, 0, 2, 7]]);
        let validity = certificate.tbs_certificate.validity;
        let (begin, end) = (validity.not_before.to_system_time(), validity.not_after.to_system_time());
        let hour = Duration::from_secs(3600);
        assert_eq!(end.duration_since(begin).unwrap(), Duration::from_secs(365 * 86_400) + hour);
        let age = SystemTime::now().duration_since(begin).unwrap();
        assert!(age >= hour && age < hour + Duration::from_secs(60), "{age:?}");
    }

    #[test]
    fn a_pair_in_a_directory_is_reused_and_replaced_when_invalid() {
        let directory = std::env::temp_dir().join(format!("bowline-pair-{}", std::process::id()));
        let options = TlsOptions { directory: Some(directory.join("deep")), ..TlsOptions::default() };
        let shown = || Certificates::new(&options, LOCALHOST).unwrap().main().end_entity_cert().unwrap().to_vec();
        let (first, second) = (shown(), shown());
        let key = directory.join("deep/cloud-controller-manager.key");
        let mode = std::fs::metadata(&key).unwrap().permissions().mode() & 0o777;
        std::fs::write(&key, "rubbish").unwrap();
        let third = shown();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!((first == second, first == third, mode), (true, false, 0o600));
    }

    #[test]
    fn errors_of_a_pair_name_the_right_file() {
        let (one, other) = (self_signed::create(LOCALHOST).unwrap(), self_signed::create(LOCALHOST).unwrap());
        let paths = [PathBuf::from("a.crt"), PathBuf::from("a.key")];
        let wrong = |certificate: &str, key: &str| {
            parse_files(&paths, &[certificate.into(), key.into()]).map(drop).unwrap_err().to_string()
        };
        assert_eq!(wrong("rubbish", &one.key), "a.crt: contains no PEM certificate");
        assert!(wrong(&one.certificates, "").starts_with("a.key: contains no PEM private key"));
        assert!(wrong(&one.certificates, &other.key).starts_with("a.key: does not match the certificate a.crt"));
        assert!(!wrong(&one.certificates, &other.key).contains("PRIVATE"));
        let broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert_eq!(wrong(broken, &one.key), "a.crt: contains an invalid certificate");
    }

    #[test]
    fn a_version_1_certificate_matches_its_key() {
        let pair = self_signed::create(LOCALHOST).unwrap();
        let chain = certificates(pair.certificates.as_bytes()).unwrap();
        let mut old = Certificate::from_der(&chain[0]).unwrap();
        old.tbs_certificate.version = x509_cert::Version::V1;
        old.tbs_certificate.extensions = None;
        let old = CertificateDer::from(old.to_der().unwrap());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let key = rustls::crypto::ring::default_provider().key_provider.load_private_key(key).unwrap();
        assert_eq!((key_matches(&[old], &*key), key_matches(&chain[1..], &*key)), (Some(true), Some(false)));
    }
}
