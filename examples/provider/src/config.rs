//! The provider's `--cloud-config`.

use bowline_config::table::{Example, Format, Section, Table, UnknownKeys, keys};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, Environment, Secret};

keys! {
    /// Endpoint and credentials.
    #[derive(Debug, Clone)]
    pub struct Config {
        endpoint: String = "endpoint", "", "Base URL of the API, `http://HOST:PORT`. Required.";
        token: Secret = "token", "", "API token of the account. Required.";
    }
}

/// Declares the keys of the file.
fn table() -> Table {
    Table { format: Format::Yaml, unknown: UnknownKeys::Reject, sections: Section::document::<Config>() }
}

impl Config {
    /// Returns a commented example file.
    pub(crate) fn template() -> String {
        let endpoint = Example::Set(Config::endpoint, "http://acme.example:8080");
        table().template(&[("", &[endpoint, Example::Set(Config::token, "change-me")])])
    }

    /// Reads the file and reports every error in it, not only the first.
    pub(crate) fn read(file: Option<&ConfigFile>) -> Result<Config, ConfigErrors> {
        let Some(file) = file else {
            return Err(ConfigError::flag("cloud-config", "acme requires a configuration file")
                .hint("set endpoint and token")
                .into());
        };
        let settings = table().read(Some(file), &Environment::default())?;
        let (config, view): (Config, _) = (settings.section(""), settings.view(""));
        let mut errors = ConfigErrors::new();
        if !config.endpoint.starts_with("http://") {
            errors.push(view.error(&Config::endpoint, format!("{:?} is not an http:// URL", config.endpoint)));
        }
        if config.token.is_empty() {
            errors.push(view.error(&Config::token, "is empty"));
        }
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }
}
