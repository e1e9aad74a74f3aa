//! TLS settings that name files in PEM, as the configuration of a cloud has them: `ca-file`, `cert-file`, `key-file`.

use std::path::{Path, PathBuf};

use bowline_config::{ConfigError, ConfigFile};

use crate::{ClientCertificate, Roots, Tls};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// TLS files for all services of a cloud.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// CA certificates, which replace those of the system.
    pub ca_file: Option<PathBuf>,
    /// The same as text, used without `ca_file`.
    pub ca_text: Option<String>,
    /// Server certificates are not verified.
    pub insecure: bool,
    /// Client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// A TLS setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsSetting {
    /// [`TlsFiles::ca_file`].
    CaFile,
    /// [`TlsFiles::ca_text`].
    CaText,
    /// The certificate of [`TlsFiles::client`].
    Certificate,
    /// The key of [`TlsFiles::client`].
    Key,
}

/// An invalid TLS setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFileError {
    /// The invalid setting.
    pub setting: TlsSetting,
    /// Reason, with the path of the file.
    pub message: String,
    /// How to fix it.
    pub hint: String,
}

impl TlsFiles {
    /// Returns all configured files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.named().map(|(_, path)| path.to_owned()).collect()
    }

    /// Checks that each file can be read and has the expected content. Returns all errors.
    pub fn check(&self) -> Vec<TlsFileError> {
        let text = self.ca_text.as_ref().filter(|text| !text.contains(CERTIFICATE)).map(|_| TlsFileError {
            setting: TlsSetting::CaText,
            message: "no certificate in it".to_owned(),
            hint: "use quoted PEM text, with \\n for line breaks".to_owned(),
        });
        self.named().filter_map(|(setting, path)| read(setting, path).err()).chain(text).collect()
    }

    /// Reads the files.
    pub fn load(&self) -> Result<Tls, Vec<TlsFileError>> {
        let mut errors = Vec::new();
        let mut text = |setting, path: &Path| {
            read(setting, path).unwrap_or_else(|error| {
                errors.push(error);
                String::new()
            })
        };
        let roots = match (&self.ca_file, &self.ca_text) {
            (Some(path), _) => Roots::Pem(text(TlsSetting::CaFile, path)),
            (None, Some(text)) => Roots::Pem(text.clone()),
            (None, None) => Roots::System,
        };
        let client = self.client.as_ref().map(|(chain, key)| ClientCertificate {
            chain: text(TlsSetting::Certificate, chain),
            key: text(TlsSetting::Key, key).into(),
        });
        if errors.is_empty() {
            Ok(Tls { roots, client, insecure: self.insecure, ..Tls::default() })
        } else {
            Err(errors)
        }
    }

    fn named(&self) -> impl Iterator<Item = (TlsSetting, &Path)> {
        let pair = self.client.iter();
        let pair = pair.flat_map(|(chain, key)| [(TlsSetting::Certificate, &**chain), (TlsSetting::Key, &**key)]);
        self.ca_file.iter().map(|ca| (TlsSetting::CaFile, &**ca)).chain(pair)
    }
}

fn read(setting: TlsSetting, path: &Path) -> Result<String, TlsFileError> {
    let (what, marker) =
        if setting == TlsSetting::Key { ("private key", PRIVATE_KEY) } else { ("certificate", CERTIFICATE) };
    let error = |message: &str, hint: &str| TlsFileError {
        setting,
        message: format!("{}: {message}", path.display()),
        hint: hint.to_owned(),
    };
    match pem_text(path) {
        Err(cause) => Err(error(&cause.message, cause.hint.as_deref().unwrap_or("use a PEM file"))),
        Ok(text) if text.contains(marker) => Ok(text),
        Ok(_) => Err(error(&format!("no {what} in it"), "use a PEM file")),
    }
}

/// Reads a PEM file. Comments around certificates may be in any encoding.
pub(crate) fn pem_text(path: &Path) -> Result<String, ConfigError> {
    let file = ConfigFile::read(path).map(|file| file.text().to_owned());
    // Only the error of a file that is not UTF-8 has a line.
    file.or_else(|error| match (error.line, std::fs::read(path)) {
        (Some(_), Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err(error),
    })
}
