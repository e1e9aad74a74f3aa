//! The HTTP client that the configuration and the environment describe.

use bowline_config::{Environment, Problem, Problems};
use bowline_http::{BadTls, Client, Options, Proxies, TlsFileError, TlsSetting};

use crate::config::{Config, tls_key};

/// A client for all services; the files are read here, and again when the provider is built again.
pub(crate) fn client(config: &Config, environment: &Environment) -> Result<Client, Problems> {
    let mut problems = Problems::new();
    let tls = config.global.tls.load();
    let tls = tls.map_err(|errors| errors.into_iter().for_each(|error| problems.push(file_problem(&error))));
    let proxies =
        Proxies::from_environment(environment).map_err(|error| problems.push(Problem::new(error.to_string())));
    match (tls, proxies) {
        (Ok(tls), Ok(proxies)) => {
            let options = Options { tls, proxies, timeout: config.request_timeout };
            Client::new(options).map_err(|error| problem(&error).into())
        }
        _ => Err(problems),
    }
}

fn file_problem(error: &TlsFileError) -> Problem {
    at(error.setting, error.message.clone())
}

fn problem(error: &BadTls) -> Problem {
    match error {
        BadTls::Roots(_) => at(TlsSetting::CaFile, error.to_string()),
        BadTls::Client(_) => at(TlsSetting::Certificate, error.to_string()),
    }
}

fn at(setting: TlsSetting, message: String) -> Problem {
    Problem::new(message).field(format!("[Global] {}", tls_key(setting).name))
}
