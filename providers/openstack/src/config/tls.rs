//! Whom to trust, and with which certificate of our own. Files are looked at here, so that one that is missing is told
//! with the rest of what is wrong.

use std::path::{Path, PathBuf};

use bowline_config::table::Key;
use bowline_config::{ConfigFile, Problem};

use super::Tls;
use super::declaration::GlobalKeys as K;
use super::fields::Fields;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

/// What TLS needs. `verify` is that of clouds.yaml.
pub(super) fn read(fields: &Fields, verify: Option<bool>) -> Tls {
    let path = |key| fields.get(key).map(PathBuf::from);
    Tls {
        ca_file: path(K::ca_file),
        ca_text: fields.get(K::cafilecontents).filter(|_| fields.get(K::ca_file).is_none()).map(str::to_owned),
        // upstream: not even "True" switches it off.
        insecure: fields.get(K::tls_insecure).map_or(verify == Some(false), |insecure| insecure == "true"),
        client: path(K::cert_file).zip(path(K::key_file)),
    }
}

/// The files that are named.
pub(super) fn files(tls: &Tls) -> impl Iterator<Item = PathBuf> {
    named(tls).map(|(_, path, _)| path.to_owned()).collect::<Vec<_>>().into_iter()
}

/// By their keys, with what has to be in them.
fn named(tls: &Tls) -> impl Iterator<Item = (Key, &Path, &'static str)> {
    let pair = tls.client.iter();
    let pair = pair.flat_map(|(cert, key)| [(K::cert_file, &**cert, CERTIFICATE), (K::key_file, &**key, KEY)]);
    tls.ca_file.iter().map(|ca| (K::ca_file, &**ca, CERTIFICATE)).chain(pair)
}

/// The keys that are no good, with what is wrong and what would be right.
pub(super) fn mistakes(tls: &Tls) -> Vec<(Key, String, String)> {
    let of_file = |(key, path, wanted)| file_mistake(path, wanted).map(|(message, hint)| (key, message, hint));
    let text = tls.ca_text.as_ref().filter(|text| !text.contains(CERTIFICATE));
    let text = text.map(|_| {
        let hint = "it is a text in PEM, in quotes, with \\n for the ends of its lines";
        (K::cafilecontents, "there is no certificate in it".to_owned(), hint.to_owned())
    });
    named(tls).filter_map(of_file).chain(text).collect()
}

fn file_mistake(path: &Path, wanted: &str) -> Option<(String, String)> {
    let what = if wanted == KEY { "private key" } else { "certificate" };
    let told = |message: &str, hint: &str| Some((format!("{}: {message}", path.display()), hint.to_owned()));
    match pem_text(path) {
        Err(problem) => told(&problem.message, problem.hint.as_deref().unwrap_or("name a file in PEM")),
        Ok(text) if text.contains(wanted) => None,
        Ok(_) => told(&format!("there is no {what} in it"), "name a file in PEM"),
    }
}

/// What is in a file in PEM. Around certificates there may be comments in any encoding.
pub(crate) fn pem_text(path: &Path) -> Result<String, Problem> {
    let file = ConfigFile::read(path).map(|file| file.text().to_owned());
    // Only what is not text has a line.
    file.or_else(|problem| match (problem.line, std::fs::read(path)) {
        (Some(_), Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err(problem),
    })
}
