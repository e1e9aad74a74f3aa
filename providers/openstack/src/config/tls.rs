//! TLS: CA certificates to trust, and the client certificate. Files are checked here, so that a missing one is reported with all
//! other errors.

use std::path::PathBuf;

use bowline_config::table::Key;
use bowline_http::{TlsFiles, TlsSetting};

use super::declaration::GlobalKeys as K;
use super::fields::Fields;

/// Returns the settings. `verify` is that of clouds.yaml.
pub(super) fn read(fields: &Fields, verify: Option<bool>) -> TlsFiles {
    let path = |key| fields.get(key).map(PathBuf::from);
    TlsFiles {
        ca_file: path(K::ca_file),
        ca_text: fields.get(K::cafilecontents).filter(|_| fields.get(K::ca_file).is_none()).map(str::to_owned),
        // upstream: "True" does not disable verification.
        insecure: fields.get(K::tls_insecure).map_or(verify == Some(false), |insecure| insecure == "true"),
        client: path(K::cert_file).zip(path(K::key_file)),
    }
}

/// Returns the key in `[Global]` of a setting.
pub(crate) fn key(setting: TlsSetting) -> Key {
    match setting {
        TlsSetting::CaFile => K::ca_file,
        TlsSetting::CaText => K::cafilecontents,
        TlsSetting::Certificate => K::cert_file,
        TlsSetting::Key => K::key_file,
    }
}
