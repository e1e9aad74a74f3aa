//! HTTP client from configuration and environment.

use bowline_config::{ConfigError, ConfigErrors, Environment};
use bowline_http::{Client, Options, Proxies, TlsError, TlsSetting};

use crate::config::{Config, tls_key};

/// Returns a client for all services. Reads the TLS files, again for every new provider.
pub(crate) fn client(config: &Config, environment: &Environment) -> Result<Client, ConfigErrors> {
    let mut errors = ConfigErrors::new();
    let tls = config.global.tls.load();
    let tls = tls.map_err(|files| files.into_iter().for_each(|error| errors.push(at(error.setting, error.message))));
    let proxies =
        Proxies::from_environment(environment).map_err(|error| errors.push(ConfigError::new(error.to_string())));
    match (tls, proxies) {
        (Ok(tls), Ok(proxies)) => {
            let options = Options { tls, proxies, timeout: config.request_timeout };
            Client::new(options).map_err(|error| tls_error(&error).into())
        }
        _ => Err(errors),
    }
}

fn tls_error(error: &TlsError) -> ConfigError {
    match error {
        TlsError::Roots(_) => at(TlsSetting::CaFile, error.to_string()),
        TlsError::Client(_) => at(TlsSetting::Certificate, error.to_string()),
    }
}

fn at(setting: TlsSetting, message: String) -> ConfigError {
    ConfigError::new(message).field(format!("[Global] {}", tls_key(setting).name))
}
