//! Certificates for a group of agents: `bowline lb-agent certificates`.
//!
//! ```text
//!  ca.crt, ca.key        CA of the group; if it exists, it signs further certificates
//!  NAME.crt, NAME.key    for each agent (server and client), and for each client (client only)
//! ```
//!
//! Existing files are never overwritten: a certificate that exists is checked and kept. Keys are readable by their owner only.

mod authority;
mod inspect;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use authority::Authority;
use inspect::Certificate;

/// Name of the files of the CA.
const CA: &str = "ca";

/// Mode of a new directory, and of the files.
const DIRECTORY_MODE: u32 = 0o700;
const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;

/// Certificates to create.
#[derive(Debug, Clone, Default)]
pub struct NewCertificates {
    /// Directory of the files. It is created if it does not exist.
    pub directory: PathBuf,
    /// Names of agents, each with the IP addresses and DNS names under which the manager and the peers reach it.
    pub agents: Vec<(String, Vec<String>)>,
    /// Names of clients.
    pub clients: Vec<String>,
    /// Validity in days. It ends with that of the CA at the latest.
    pub days: u32,
}

/// Usage of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// CA of the group.
    Authority,
    /// Server and client: agents connect to each other.
    Agent,
    /// Client only.
    Client,
}

/// A certificate, new or kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// Usage.
    pub usage: Usage,
    /// Name in it, which is also that of its files.
    pub name: String,
    /// File with the certificate.
    pub certificate: PathBuf,
    /// File with the key.
    pub key: PathBuf,
    /// Whether it was created now.
    pub is_new: bool,
    /// Last day of its validity, `YYYY-MM-DD`.
    pub expires: String,
}

/// Reason why certificates were not created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    File(PathBuf, io::Error),
    /// A name or address cannot be used.
    #[error("invalid name {0:?}: {1}")]
    Name(String, &'static str),
    /// An existing file is not what was requested.
    #[error("{path}: {1}", path = .0.display())]
    Existing(PathBuf, String),
    /// The files of the CA cannot be used.
    #[error("the CA in {path} cannot be used: {1}", path = .0.display())]
    Authority(PathBuf, String),
    /// A certificate cannot be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// Certificate and key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// A requested certificate.
struct Request<'a> {
    usage: Usage,
    name: &'a str,
    /// Subject alternative names: the name, then addresses.
    hosts: Vec<String>,
}

/// Creates the certificates that do not exist yet. Nothing is written if one of them cannot be created, or if an existing one is not
/// what was requested.
pub fn create_certificates(new: &NewCertificates) -> Result<Vec<Issued>, PkiError> {
    let requests = requests(new)?;
    let existing: Vec<_> = requests.iter().map(|request| kept(&new.directory, request)).collect::<Result<_, _>>()?;
    let needs_key = existing.iter().any(Option::is_none);
    let (authority, is_new_authority) = Authority::load_or_create(&new.directory, needs_key)?;
    let mut issued = vec![authority.issued(is_new_authority)];
    let mut files = if is_new_authority { authority.files() } else { Vec::new() };
    for (request, existing) in requests.iter().zip(existing) {
        let is_new = existing.is_none();
        let certificate = match existing {
            Some(certificate) => certificate,
            None => {
                let pair = authority.sign(request, new.days)?;
                files.extend(pair.files(&new.directory, request.name));
                let certificate = Certificate::parse(&pair.certificate);
                certificate.map_err(|why| PkiError::Authority(new.directory.clone(), why))?
            }
        };
        authority.check(request, &certificate, is_new)?;
        issued.push(request.issued(&new.directory, is_new, &certificate));
    }
    write_all(&new.directory, &files)?;
    Ok(issued)
}

fn requests(new: &NewCertificates) -> Result<Vec<Request<'_>>, PkiError> {
    let mut requests: Vec<Request<'_>> = Vec::new();
    let agents = new.agents.iter().map(|(name, addresses)| (Usage::Agent, name, addresses.as_slice()));
    let clients = new.clients.iter().map(|name| (Usage::Client, name, [].as_slice()));
    for (usage, name, addresses) in agents.chain(clients) {
        check_name(name)?;
        if requests.iter().any(|request| request.name == *name) {
            return Err(PkiError::Name(name.clone(), "it is used twice"));
        }
        addresses.iter().try_for_each(|address| check_address(address))?;
        let mut hosts = vec![name.clone()];
        hosts.extend(addresses.iter().filter(|address| *address != name).cloned());
        requests.push(Request { usage, name, hosts });
    }
    Ok(requests)
}

fn check_name(name: &str) -> Result<(), PkiError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let why = match name {
        "" => "it is empty",
        CA => "it is the name of the CA",
        name if name.starts_with('.') || !name.chars().all(is_valid) => "use letters, digits, '-', '.' and '_'",
        name if name.parse::<IpAddr>().is_ok() => "it is an address; write NAME=ADDRESS",
        _ => return Ok(()),
    };
    Err(PkiError::Name(name.to_owned(), why))
}

fn check_address(address: &str) -> Result<(), PkiError> {
    let is_host_name = |text: &str| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        !text.is_empty() && text.chars().all(is_valid) && !text.starts_with(['-', '.'])
    };
    match address.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Err(PkiError::Name(address.to_owned(), "no host has this address")),
        Ok(_) => Ok(()),
        Err(_) if is_host_name(address) => Ok(()),
        Err(_) => {
            let why = "it is neither an IP address nor a DNS name; write it without scheme, brackets and port";
            Err(PkiError::Name(address.to_owned(), why))
        }
    }
}

/// Reads the certificate of a request, if its files exist.
fn kept(directory: &Path, request: &Request<'_>) -> Result<Option<Certificate>, PkiError> {
    let (path, key_path) = (file(directory, request.name, "crt"), file(directory, request.name, "key"));
    let found = match (read_if_exists(&path)?, read_if_exists(&key_path)?) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => Pair { certificate, key },
        (certificate, _) => {
            let [exists, missing] = if certificate.is_some() { [&path, &key_path] } else { [&key_path, &path] };
            let why = format!("exists, but {} does not; fix: delete it to create both again", missing.display());
            return Err(PkiError::Existing(exists.clone(), why));
        }
    };
    let certificate = found.check().map_err(|why| PkiError::Existing(path.clone(), why))?;
    if certificate.has_names(&request.hosts) {
        return Ok(Some(certificate));
    }
    let (found, requested) = (certificate.names.join(", "), request.hosts.join(", "));
    let fix = format!("delete it and {} to create them again", key_path.display());
    Err(PkiError::Existing(path, format!("exists with other names: {found}, not {requested}; fix: {fix}")))
}

impl Request<'_> {
    fn issued(&self, directory: &Path, is_new: bool, certificate: &Certificate) -> Issued {
        Issued {
            usage: self.usage,
            name: self.name.to_owned(),
            certificate: file(directory, self.name, "crt"),
            key: file(directory, self.name, "key"),
            is_new,
            expires: certificate.expires.clone(),
        }
    }
}

/// A file to create.
struct NewFile {
    path: PathBuf,
    text: String,
    mode: u32,
}

impl Pair {
    fn files(&self, directory: &Path, name: &str) -> [NewFile; 2] {
        let (key, certificate) = (file(directory, name, "key"), file(directory, name, "crt"));
        [
            NewFile { path: key, text: self.key.clone(), mode: KEY_MODE },
            NewFile { path: certificate, text: self.certificate.clone(), mode: CERTIFICATE_MODE },
        ]
    }

    /// Parses the certificate, and checks that the key belongs to it.
    fn check(&self) -> Result<Certificate, String> {
        let certificate = Certificate::parse(&self.certificate)?;
        let key = rcgen::KeyPair::from_pem(&self.key).map_err(|_| "its key file contains no PEM private key")?;
        if rcgen::PublicKeyData::subject_public_key_info(&key) != certificate.public_key {
            return Err("its key file has the key of another certificate".to_owned());
        }
        Ok(certificate)
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

/// Writes new files. After an error, those that were written are removed, so that the next attempt is not confused by them.
fn write_all(directory: &Path, files: &[NewFile]) -> Result<(), PkiError> {
    if files.is_empty() {
        return Ok(());
    }
    let created = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory);
    created.map_err(|error| PkiError::File(directory.to_owned(), error))?;
    for (index, new) in files.iter().enumerate() {
        if let Err((error, is_own)) = new.write() {
            let written = files.iter().take(index + usize::from(is_own));
            written.for_each(|new| _ = std::fs::remove_file(&new.path));
            return Err(PkiError::File(new.path.clone(), error));
        }
    }
    Ok(())
}

impl NewFile {
    /// Writes the file. An error says whether this call has created it.
    fn write(&self) -> Result<(), (io::Error, bool)> {
        let file = OpenOptions::new().write(true).create_new(true).mode(self.mode).open(&self.path);
        let mut file = file.map_err(|error| (error, false))?;
        file.write_all(self.text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| (error, true))
    }
}
