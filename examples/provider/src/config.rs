//! The provider's `--cloud-config`.

use bowline_config::{ConfigFile, Problem, Problems};
use serde::Deserialize;

/// Where the cloud is, and who we are.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// `http://HOST:PORT`.
    pub endpoint: String,
    /// What the cloud knows us by.
    pub token: String,
}

impl Config {
    /// A file to start from.
    pub(crate) const TEMPLATE: &str = "\
# Where the cloud is.
endpoint: http://acme.example:8080
# What the cloud knows us by.
token: change-me
";

    /// Reads the file and says all that is wrong with it, not only the first.
    pub(crate) fn read(file: Option<&ConfigFile>) -> Result<Config, Problems> {
        let Some(file) = file else {
            return Err(Problem::flag("cloud-config", "acme needs one").hint("with endpoint and token").into());
        };
        let config: Config = file.yaml()?;
        let mut problems = Problems::new();
        if !config.endpoint.starts_with("http://") {
            let problem = Problem::file(file.path(), None, format!("{:?} is no http:// address", config.endpoint));
            problems.push(problem.field("endpoint"));
        }
        if config.token.is_empty() {
            problems.push(Problem::file(file.path(), None, "is empty").field("token"));
        }
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}
