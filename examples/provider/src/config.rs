//! The provider's `--cloud-config`.

use std::path::PathBuf;

use bowline_config::table::{Example, Format, Section, Table, UnknownKeys, keys};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, Environment, Secret};

keys! {
    /// Endpoint and credentials.
    #[derive(Debug, Clone)]
    pub struct Config {
        endpoint: String = "endpoint", "", "Base URL of the API, `https://HOST:PORT`. Required.";
        token: Secret = "token", "", "API token of the account. Required, unless `tokenFile` is set.";
        token_file: PathBuf = "tokenFile", "",
            "File with the API token, such as a mounted Secret. A new token in the file is used without a restart.";
    }
}

/// Error without a token, and its fix.
const NO_TOKEN: (&str, &str) = ("is required", "set token or tokenFile");

/// Declares the keys of the file.
fn table() -> Table {
    Table { format: Format::Yaml, unknown: UnknownKeys::Reject, sections: Section::document::<Config>() }
}

impl Config {
    /// Returns a commented example file.
    pub(crate) fn template() -> String {
        let endpoint = Example::Set(Config::endpoint, "https://acme.example");
        table().template(&[("", &[endpoint, Example::Set(Config::token, "change-me")])])
    }

    /// Reads the file, and the token from `tokenFile` if that is set. Reports every error, not only the first.
    pub(crate) fn read(file: Option<&ConfigFile>) -> Result<Config, ConfigErrors> {
        let Some(file) = file else {
            return Err(ConfigError::flag("cloud-config", "acme requires a configuration file")
                .hint("set endpoint and token")
                .into());
        };
        let (settings, errors) = table().check(Some(file), &Environment::default())?;
        let (config, mut checks): (Config, _) = (settings.section(""), settings.view("").checks(errors));
        checks.http_url(&Config::endpoint, &config.endpoint);
        let (value, path) = ((&Config::token, &config.token), (&Config::token_file, &*config.token_file));
        let token = checks.secret(value, path, NO_TOKEN);
        checks.finish(Config { token, ..config })
    }
}
