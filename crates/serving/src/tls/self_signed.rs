//! Self-signed certificate for a server without a configured one.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::files::FileError;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Validity begins this long in the past, to allow for clock skew.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Certificate chain and key, as PEM.
pub(super) struct Pair {
    pub(super) certificates: String,
    pub(super) key: String,
}

/// Creates a certificate for localhost, and for the address if it is specified. upstream: a CA signs it whose key is discarded, because
/// some clients that trust the chain reject a leaf certificate that signed itself.
pub(super) fn create(address: IpAddr) -> Result<Pair, rcgen::Error> {
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
    let begin = rcgen::date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_SKEW);
    params.not_before = begin;
    params.not_after = begin + CLOCK_SKEW + YEAR;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

/// Writes the pair to its files. The key file is never readable by other users.
pub(super) fn write(pair: &Pair, certificate: &Path, key: &Path) -> Result<(), FileError> {
    if let Some(directory) = certificate.parent() {
        let failed = |error| write_error(directory, &error);
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    write_file(key, &pair.key, 0o600)?;
    write_file(certificate, &pair.certificates, 0o644)
}

fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let temporary = PathBuf::from(format!("{}.new", path.display()));
    let written = || {
        // A file left by a killed process could be readable by other users.
        let _ = std::fs::remove_file(&temporary);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&temporary, path)
    };
    written().map_err(|error| write_error(path, &error))
}

fn write_error(path: &Path, error: &std::io::Error) -> FileError {
    let message = format!("cannot be written: {error}; set --cert-dir to a writable directory, or set --tls-cert-file");
    FileError { path: path.to_owned(), message }
}
