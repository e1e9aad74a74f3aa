//! Certificates for a group of agents: `bowline lb-agent certificates`.
//!
//! ```text
//!  ca.crt, ca.key        CA of the group; reused if it exists, to add an agent or a client later
//!  NAME.crt, NAME.key    for each agent (server and client) and each client (client only)
//! ```
//!
//! Existing files are never overwritten. Keys are readable by their owner only.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::certificate_names::common_name;
use crate::server::client_verifier;

/// Common name of a new CA.
const CA_NAME: &str = "Bowline L4 agents";

/// Name of the files of the CA.
const CA: &str = "ca";

/// Validity begins this long in the past, to allow for clock skew.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Validity of a new CA.
const CA_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Certificates to create.
#[derive(Debug, Clone, Default)]
pub struct NewCertificates {
    /// Directory of the files. It is created if it does not exist.
    pub directory: PathBuf,
    /// Names of agents, each with the IP addresses and DNS names under which the manager and the peers reach it.
    pub agents: Vec<(String, Vec<String>)>,
    /// Names of clients.
    pub clients: Vec<String>,
    /// Validity in days.
    pub days: u32,
}

/// Reason why certificates were not created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file exists.
    #[error("{0} exists and is not overwritten; fix: delete it first, or choose another name")]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// A name cannot be used.
    #[error("invalid name {0:?}: {1}")]
    Name(String, &'static str),
    /// Only one file of the CA exists, or they do not belong together.
    #[error("the CA in {0} cannot be used: {1}")]
    Authority(PathBuf, String),
    /// A certificate cannot be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// Certificate and key, as PEM.
struct Pair {
    name: String,
    certificate: String,
    key: String,
}

/// CA that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// Files to write, if the CA is new.
    new: Option<Pair>,
}

/// Creates the certificates and returns the files that were written. Nothing is written if one of them exists.
pub fn create_certificates(new: &NewCertificates) -> Result<Vec<PathBuf>, PkiError> {
    check_names(new)?;
    let authority = Authority::load_or_create(&new.directory)?;
    let validity = DAY * new.days.max(1);
    let agents = new.agents.iter().map(|(name, hosts)| authority.agent(name, hosts, validity));
    let clients = new.clients.iter().map(|name| authority.client(name, validity));
    let mut pairs = agents.chain(clients).collect::<Result<Vec<_>, _>>()?;
    authority.check(&new.directory, &pairs)?;
    pairs.extend(authority.new);
    let files: Vec<_> = pairs.iter().flat_map(|pair| pair.files(&new.directory)).collect();
    if let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
        return Err(PkiError::Exists(path.clone()));
    }
    std::fs::create_dir_all(&new.directory).map_err(|error| PkiError::File(new.directory.clone(), error))?;
    files.iter().map(|(path, text)| write(path, text).map(|()| path.clone())).collect()
}

fn check_names(new: &NewCertificates) -> Result<(), PkiError> {
    let names: Vec<_> = new.agents.iter().map(|(name, _)| name).chain(&new.clients).collect();
    for (index, name) in names.iter().enumerate() {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let why = match name.as_str() {
            "" => "it is empty",
            CA => "it is the name of the CA",
            name if name.starts_with('.') || !name.chars().all(is_valid) => "use letters, digits, '-', '.' and '_'",
            _ if names[..index].contains(name) => "it is used twice",
            _ => continue,
        };
        return Err(PkiError::Name((*name).clone(), why));
    }
    Ok(())
}

impl Authority {
    fn load_or_create(directory: &Path) -> Result<Authority, PkiError> {
        let read = |ending| read_if_exists(&file(directory, CA, ending));
        match (read("crt")?, read("key")?) {
            (Some(certificate), Some(key)) => Authority::load(directory, certificate, &key),
            (None, None) => Authority::create(),
            (Some(_), None) => Err(PkiError::Authority(directory.to_owned(), "ca.key is missing".to_owned())),
            (None, Some(_)) => Err(PkiError::Authority(directory.to_owned(), "ca.crt is missing".to_owned())),
        }
    }

    fn create() -> Result<Authority, PkiError> {
        let mut params = valid(CertificateParams::default(), CA_NAME, CA_VALIDITY);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let (certificate, text) = (params.self_signed(&key)?.pem(), key.serialize_pem());
        let new = Pair { name: CA.to_owned(), certificate: certificate.clone(), key: text };
        Ok(Authority { issuer: Issuer::new(params, key), certificate, new: Some(new) })
    }

    fn load(directory: &Path, certificate: String, key: &str) -> Result<Authority, PkiError> {
        let invalid = |why: &str| PkiError::Authority(directory.to_owned(), why.to_owned());
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let der = der.map_err(|_| invalid("ca.crt contains no PEM certificate"))?;
        let name = common_name(&der).ok_or_else(|| invalid("ca.crt has no common name"))?;
        let key = KeyPair::from_pem(key).map_err(|_| invalid("ca.key contains no PEM private key"))?;
        let mut params = valid(CertificateParams::default(), &name, CA_VALIDITY);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(Authority { issuer: Issuer::new(params, key), certificate, new: None })
    }

    /// Certificate of an agent. Peers connect to each other, so it is for servers and for clients.
    fn agent(&self, name: &str, hosts: &[String], validity: Duration) -> Result<Pair, PkiError> {
        let mut hosts = hosts.to_vec();
        hosts.insert(0, name.to_owned());
        self.sign(name, hosts, vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth], validity)
    }

    fn client(&self, name: &str, validity: Duration) -> Result<Pair, PkiError> {
        self.sign(name, vec![name.to_owned()], vec![ExtendedKeyUsagePurpose::ClientAuth], validity)
    }

    fn sign(
        &self,
        name: &str,
        hosts: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
        validity: Duration,
    ) -> Result<Pair, PkiError> {
        let mut params = valid(CertificateParams::new(hosts)?, name, validity);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { name: name.to_owned(), certificate, key: key.serialize_pem() })
    }

    /// Checks that a certificate that this CA signed is trusted: the key may belong to another CA, or the CA may have expired.
    fn check(&self, directory: &Path, pairs: &[Pair]) -> Result<(), PkiError> {
        let invalid = |why: String| PkiError::Authority(directory.to_owned(), why);
        let verifier = client_verifier(self.certificate.as_bytes()).map_err(&invalid)?;
        for pair in pairs {
            let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
            let der = der.map_err(|error| invalid(error.to_string()))?;
            let verified = verifier.verify_client_cert(&der, &[], UnixTime::now());
            verified.map_err(|error| invalid(format!("ca.key does not match ca.crt, or it has expired: {error}")))?;
        }
        Ok(())
    }
}

fn valid(mut params: CertificateParams, name: &str, validity: Duration) -> CertificateParams {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begin = rcgen::date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_SKEW);
    (params.not_before, params.not_after) = (begin, begin + CLOCK_SKEW + validity);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Pair {
    fn files(&self, directory: &Path) -> [(PathBuf, String); 2] {
        [
            (file(directory, &self.name, "key"), self.key.clone()),
            (file(directory, &self.name, "crt"), self.certificate.clone()),
        ]
    }
}

fn file(directory: &Path, name: &str, ending: &str) -> PathBuf {
    directory.join(format!("{name}.{ending}"))
}

fn read_if_exists(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PkiError::File(path.to_owned(), error)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => PkiError::Exists(path.to_owned()),
        _ => PkiError::File(path.to_owned(), error),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::certificate_names::names_in;
    use crate::testing::Scratch;

    fn new(scratch: &Scratch, agents: &[&str], clients: &[&str]) -> NewCertificates {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let agents = owned(agents).into_iter().map(|name| (name, vec!["192.0.2.1".to_owned()])).collect();
        NewCertificates { directory: scratch.path().join("pki"), agents, clients: owned(clients), days: 30 }
    }

    #[test]
    fn agents_and_clients_can_be_added_and_no_file_is_overwritten() {
        let scratch = Scratch::new();
        let first = create_certificates(&new(&scratch, &["lb-1", "lb-2"], &["bowline"])).unwrap();
        assert_eq!(first.len(), 8);
        let ca = std::fs::read(scratch.path().join("pki/ca.crt")).unwrap();
        let added = create_certificates(&new(&scratch, &["lb-3"], &[])).unwrap();
        assert_eq!(added.len(), 2);
        for path in first.iter().chain(&added) {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
        }
        let verifier = client_verifier(&ca).unwrap();
        let der = CertificateDer::from_pem_file(scratch.path().join("pki/lb-3.crt")).unwrap();
        verifier.verify_client_cert(&der, &[], UnixTime::now()).unwrap();
        assert_eq!(names_in(&der), ["lb-3"]);
        let twice = create_certificates(&new(&scratch, &["lb-4", "lb-3"], &[])).unwrap_err();
        assert!(matches!(&twice, PkiError::Exists(path) if path.ends_with("lb-3.key")), "{twice}");
        assert!(!scratch.path().join("pki/lb-4.crt").exists());
    }

    #[test]
    fn a_ca_that_is_incomplete_or_does_not_match_is_rejected() {
        let (scratch, other) = (Scratch::new(), Scratch::new());
        for scratch in [&scratch, &other] {
            create_certificates(&new(scratch, &["lb-1"], &[])).unwrap();
        }
        std::fs::copy(other.path().join("pki/ca.key"), scratch.path().join("pki/ca.key")).unwrap();
        let mixed = create_certificates(&new(&scratch, &["lb-2"], &[])).unwrap_err();
        assert!(mixed.to_string().contains("ca.key does not match ca.crt"), "{mixed}");
        std::fs::remove_file(scratch.path().join("pki/ca.key")).unwrap();
        let incomplete = create_certificates(&new(&scratch, &["lb-2"], &[])).unwrap_err();
        assert!(incomplete.to_string().contains("ca.key is missing"), "{incomplete}");
        assert!(!scratch.path().join("pki/lb-2.crt").exists());
    }

    #[test]
    fn invalid_names_are_rejected() {
        let scratch = Scratch::new();
        for name in ["", "ca", "../lb", ".lb", "a b", "lb-1"] {
            let error = create_certificates(&new(&scratch, &["lb-1", name], &[])).unwrap_err();
            assert!(matches!(error, PkiError::Name(..)), "{name}: {error}");
        }
        assert!(!scratch.path().join("pki").exists());
    }
}
