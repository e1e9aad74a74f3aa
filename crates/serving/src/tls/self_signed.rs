//! A certificate for a server that was given none.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::files::FileError;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Clocks differ.
const BEFORE: Duration = Duration::from_secs(60 * 60);

/// A certificate with its chain, and its key, as PEM.
pub(super) struct Pair {
    pub(super) certificates: String,
    pub(super) key: String,
}

/// One for this machine, and for the address if it is a specific one. An authority that is forgotten at once signs it, as
/// upstream has it, so that whoever wants to trust it can: clients differ in what they think of one that signed itself.
pub(super) fn make(address: IpAddr) -> Result<Pair, rcgen::Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host = if address.is_unspecified() { "localhost".to_owned() } else { address.to_string() };
    let mut authority = valid(CertificateParams::default(), now);
    authority.distinguished_name.push(DnType::CommonName, format!("{host}-ca@{}", now.as_secs()));
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut params = valid(CertificateParams::new(vec!["localhost".to_owned()])?, now);
    params.distinguished_name.push(DnType::CommonName, format!("{host}@{}", now.as_secs()));
    let addresses = [Some(IpAddr::from(Ipv4Addr::LOCALHOST)), Some(address).filter(|ip| !ip.is_unspecified())];
    params.subject_alt_names.extend(addresses.into_iter().flatten().map(SanType::IpAddress));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    Ok(Pair { certificates: certificate.pem() + &authority.pem(), key: key.serialize_pem() })
}

fn valid(mut params: CertificateParams, now: Duration) -> CertificateParams {
    let begin = rcgen::date_time_ymd(1970, 1, 1) + now.saturating_sub(BEFORE);
    params.not_before = begin;
    params.not_after = begin + BEFORE + YEAR;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

/// Writes the pair to its files. Nobody else can read the key, at no moment.
pub(super) fn keep(pair: &Pair, certificate: &Path, key: &Path) -> Result<(), FileError> {
    if let Some(directory) = certificate.parent() {
        let failed = |error| unwritten(directory, &error);
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    write(key, &pair.key, 0o600)?;
    write(certificate, &pair.certificates, 0o644)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let fresh = PathBuf::from(format!("{}.new", path.display()));
    let written = || {
        // What a run that was killed left there could be readable by others.
        let _ = std::fs::remove_file(&fresh);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&fresh, path)
    };
    written().map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> FileError {
    let message = format!("cannot be written: {error}; give a directory that can, or --tls-cert-file");
    FileError { path: path.to_owned(), message }
}
