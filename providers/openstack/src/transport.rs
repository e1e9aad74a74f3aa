//! The way to the cloud that the configuration and the environment describe.

use std::path::Path;

use bowline_config::{Environment, Problem, Problems};
use bowline_http::{BadTls, Client, ClientCertificate, Options, Proxies, Roots, Tls};

use crate::config::{Config, pem_text};

/// A client for all services; the files are read here, and again when the provider is made anew.
pub(crate) fn client(config: &Config, environment: &Environment) -> Result<Client, Problems> {
    let mut problems = Problems::new();
    let tls = tls(&config.global.tls, &mut problems);
    let proxies =
        Proxies::from_environment(environment).map_err(|error| problems.push(Problem::new(error.to_string())));
    if let (Ok(proxies), true) = (proxies, problems.is_empty()) {
        let options = Options { tls, proxies, timeout: config.request_timeout };
        return Client::new(options).map_err(|error| problem(&error).into());
    }
    Err(problems)
}

fn tls(tls: &crate::config::Tls, problems: &mut Problems) -> Tls {
    let mut read = |key: &str, path: &Path| {
        pem_text(path).unwrap_or_else(|problem| {
            let problem = Problem::new(format!("{}: {}", path.display(), problem.message));
            problems.push(problem.field(format!("[Global] {key}")));
            String::new()
        })
    };
    let roots = match (&tls.ca_file, &tls.ca_text) {
        (Some(path), _) => Roots::Pem(read("ca-file", path)),
        (None, Some(text)) => Roots::Pem(text.clone()),
        (None, None) => Roots::System,
    };
    let client = tls
        .client
        .as_ref()
        .map(|(chain, key)| ClientCertificate { chain: read("cert-file", chain), key: read("key-file", key).into() });
    Tls { roots, client, insecure: tls.insecure }
}

/// Where what the client complains about was written.
fn problem(error: &BadTls) -> Problem {
    let problem = Problem::new(error.to_string());
    match error {
        BadTls::Roots(_) => problem.field("[Global] ca-file"),
        BadTls::Client(_) => problem.field("[Global] cert-file"),
    }
}
