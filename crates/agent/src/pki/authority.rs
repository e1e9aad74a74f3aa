//! CA of a group of agents.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;

use crate::server::client_verifier;

use super::inspect::Certificate;
use super::{CA, Issued, NewFile, Pair, PkiError, Request, Usage, file, read_if_exists};

/// Common name of a new CA.
const CA_NAME: &str = "Bowline L4 agents";

/// Validity begins this long in the past, to allow for clock skew.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Validity of a new CA.
const CA_DAYS: u32 = 3650;

/// CA that signs certificates.
pub(super) struct Authority {
    directory: PathBuf,
    certificate: Certificate,
    /// `None` if nothing needs to be signed: the key may be kept offline.
    issuer: Option<Issuer<'static, KeyPair>>,
    pair: Option<Pair>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Authority {
    /// Reads the CA, or creates one if there is none. Returns whether it is new.
    pub(super) fn load_or_create(directory: &Path, needs_key: bool) -> Result<(Authority, bool), PkiError> {
        let invalid = |why: &str| PkiError::Authority(directory.to_owned(), why.to_owned());
        let read = |ending| read_if_exists(&file(directory, CA, ending));
        match (read("crt")?, read("key")?) {
            (None, None) => Ok((Authority::create(directory)?, true)),
            (Some(certificate), Some(key)) => Ok((Authority::load(directory, Pair { certificate, key })?, false)),
            (Some(certificate), None) if !needs_key => {
                let verifier = client_verifier(certificate.as_bytes());
                let verifier = verifier.map_err(|why| invalid(&format!("ca.crt {why}")))?;
                let certificate = Certificate::parse(&certificate);
                let certificate = certificate.map_err(|why| invalid(&format!("ca.crt {why}")))?;
                let directory = directory.to_owned();
                Ok((Authority { directory, certificate, issuer: None, pair: None, verifier }, false))
            }
            (Some(_), None) => Err(invalid("ca.key is missing; fix: copy it to this directory to sign certificates")),
            (None, Some(_)) => Err(invalid("ca.crt is missing; fix: copy it to this directory")),
        }
    }

    fn create(directory: &Path) -> Result<Authority, PkiError> {
        let mut params = valid(CertificateParams::default(), CA_NAME, days(CA_DAYS));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pair = Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
        Authority::load(directory, pair)
    }

    fn load(directory: &Path, pair: Pair) -> Result<Authority, PkiError> {
        let invalid = |why: &str| PkiError::Authority(directory.to_owned(), why.to_owned());
        let certificate = pair.check().map_err(|why| invalid(&format!("ca.crt: {why}")))?;
        let subject = certificate.subject.as_ref().ok_or_else(|| {
            invalid("the subject of ca.crt is not only a common name; fix: create the certificates with the tools of that CA")
        })?;
        let mut params = valid(CertificateParams::default(), subject, Duration::ZERO);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        if let Some(id) = &certificate.key_id {
            params.key_identifier_method = KeyIdMethod::PreSpecified(id.clone());
        }
        let issuer = Issuer::new(params, KeyPair::from_pem(&pair.key)?);
        let verifier = client_verifier(pair.certificate.as_bytes()).map_err(|why| invalid(&format!("ca.crt {why}")))?;
        Ok(Authority { directory: directory.to_owned(), certificate, issuer: Some(issuer), pair: Some(pair), verifier })
    }

    pub(super) fn issued(&self, is_new: bool) -> Issued {
        Request { usage: Usage::Authority, name: CA, hosts: Vec::new() }.issued(
            &self.directory,
            is_new,
            &self.certificate,
        )
    }

    pub(super) fn files(&self) -> Vec<NewFile> {
        self.pair.iter().flat_map(|pair| pair.files(&self.directory, CA)).collect()
    }

    /// Creates a certificate.
    pub(super) fn sign(&self, request: &Request<'_>, validity: u32) -> Result<Pair, PkiError> {
        let issuer = self.issuer.as_ref().ok_or_else(|| self.error("ca.key is missing".to_owned()))?;
        let left = self.certificate.not_after.saturating_sub(now());
        let mut params =
            valid(CertificateParams::new(request.hosts.clone())?, request.name, days(validity.max(1)).min(left));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match request.usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            _ => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }

    /// Checks that the CA is trusted for a certificate: an existing one may be of another CA, or it or the CA may have expired.
    pub(super) fn check(&self, request: &Request<'_>, certificate: &Certificate, is_new: bool) -> Result<(), PkiError> {
        let verified = self.verifier.verify_client_cert(&certificate.der, &[], UnixTime::now());
        let Err(error) = verified else { return Ok(()) };
        if self.certificate.not_after < now() {
            return Err(
                self.error(format!("it has expired on {}; fix: use another directory", self.certificate.expires))
            );
        }
        if is_new {
            return Err(self.error(error.to_string()));
        }
        let [path, key] = ["crt", "key"].map(|ending| file(&self.directory, request.name, ending));
        let fix = format!("fix: delete it and {} to create them again", key.display());
        Err(PkiError::Existing(path, format!("exists, but ca.crt does not verify it ({error}); {fix}")))
    }

    fn error(&self, why: String) -> PkiError {
        PkiError::Authority(self.directory.clone(), why)
    }
}

fn valid(mut params: CertificateParams, name: &str, validity: Duration) -> CertificateParams {
    let begin = rcgen::date_time_ymd(1970, 1, 1) + now().saturating_sub(CLOCK_SKEW);
    (params.not_before, params.not_after) = (begin, begin + CLOCK_SKEW + validity);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn days(days: u32) -> Duration {
    DAY * days
}

/// Time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
