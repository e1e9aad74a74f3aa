//! Section `agent` of a provider's configuration: the endpoints of a group of agents, and the files of mutual TLS.

use std::fmt;
use std::path::{Path, PathBuf};

use bowline_config::ConfigErrors;
use bowline_config::table::{Checks, Key, Keys, View, keys};
use bowline_http::{TlsFiles, TlsSetting};
use http::Uri;

/// Description of the section, for the reference page.
pub const AGENT_DOC: &str = "Group of [L4 agents](../guides/bare-metal.md), which hold the addresses of load balancers on hosts of your \
    network. All files are read again when they change. Proxies are not used.";

keys! {
    /// Section `agent`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct AgentKeys {
        endpoints: Vec<String> = "endpoints", "",
            "Endpoints of all agents of the group, as a list: `https://HOST:PORT`. An agent on the host of the manager may listen on \
             `unix:/PATH` instead. Required.";
        ca_file: PathBuf = "caFile" gcfg "ca-file", "",
            "CA certificates of the agents, in PEM. Required with `https`.";
        certificate_file: PathBuf = "certificateFile" gcfg "certificate-file", "",
            "Client certificate of the manager, in PEM. The agents have its name in `clients`. Required with `https`.";
        key_file: PathBuf = "keyFile" gcfg "key-file", "", "Key of that certificate, in PEM. Required with `https`.";
    }
}

/// A group of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) tls: TlsFiles,
}

/// Endpoint of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `https://HOST:PORT`.
    Https(String),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl AgentConfig {
    /// Returns whether the section has a key.
    pub fn is_present(view: &View<'_>) -> bool {
        AgentKeys::keys().iter().any(|key| view.has(key))
    }

    /// Reads the section, and reports all errors at once, after those so far.
    pub fn read(view: View<'_>, errors: ConfigErrors) -> Result<AgentConfig, ConfigErrors> {
        let (keys, mut checks) = (AgentKeys::read(&view), view.checks(errors));
        let endpoints = endpoints(&keys.endpoints, &mut checks);
        let is_local = endpoints.iter().any(|endpoint| matches!(endpoint, Endpoint::Unix(_)));
        let files = [
            (AgentKeys::ca_file, &keys.ca_file),
            (AgentKeys::certificate_file, &keys.certificate_file),
            (AgentKeys::key_file, &keys.key_file),
        ];
        for (key, path) in files {
            match (is_local, path.as_os_str().is_empty()) {
                (true, false) => checks.error(&key, "is not used with a Unix socket", "remove it"),
                (false, true) => checks.error(&key, "is required", "`bowline lb-agent certificates` creates the files"),
                _ => {}
            }
        }
        let tls = TlsFiles {
            ca_file: set(&keys.ca_file),
            client: set(&keys.certificate_file).zip(set(&keys.key_file)),
            ..TlsFiles::default()
        };
        tls.check().into_iter().for_each(|error| checks.error(&key_of(error.setting), error.message, &error.hint));
        checks.finish(AgentConfig { endpoints, tls })
    }

    /// Returns the files that the client is built from.
    pub fn files(&self) -> Vec<PathBuf> {
        self.tls.files()
    }
}

/// Returns the key of a TLS setting.
pub(crate) fn key_of(setting: TlsSetting) -> Key {
    match setting {
        TlsSetting::CaFile | TlsSetting::CaText => AgentKeys::ca_file,
        TlsSetting::Certificate => AgentKeys::certificate_file,
        TlsSetting::Key => AgentKeys::key_file,
    }
}

fn set(path: &Path) -> Option<PathBuf> {
    Some(path.to_owned()).filter(|path| !path.as_os_str().is_empty())
}

fn endpoints(texts: &[String], checks: &mut Checks<'_>) -> Vec<Endpoint> {
    const KEY: &Key = &AgentKeys::endpoints;
    let mut endpoints = Vec::new();
    // In INI, a list may also be separated by commas.
    for text in texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|text| !text.is_empty()) {
        match Endpoint::parse(text) {
            Err((why, hint)) => checks.error(KEY, format!("{text:?} {why}"), hint),
            Ok(endpoint) if endpoints.contains(&endpoint) => {
                checks.error(KEY, format!("{endpoint} is listed twice"), "list each agent once");
            }
            Ok(endpoint) => endpoints.push(endpoint),
        }
    }
    if texts.is_empty() {
        checks.error(
            KEY,
            "is required",
            "list the endpoints of all agents of the group, such as https://192.0.2.11:9470",
        );
    }
    if endpoints.len() > 1
        && let Some(local) = endpoints.iter().find(|endpoint| matches!(endpoint, Endpoint::Unix(_)))
    {
        let hint = "let the agents listen on HOST:PORT, or list only this one";
        checks.error(KEY, format!("{local} has no other agents: an agent with a Unix socket has no group"), hint);
    }
    endpoints
}

impl Endpoint {
    /// Parses an endpoint, or returns the reason and the fix.
    fn parse(text: &str) -> Result<Endpoint, (&'static str, &'static str)> {
        const FORM: &str = "write https://HOST:PORT, such as https://192.0.2.11:9470";
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Endpoint::Unix(path.into())),
                false => Err(("has no absolute path", "write unix:/PATH")),
            };
        }
        let uri: Uri = text.parse().map_err(|_| ("is not a URL", FORM))?;
        if uri.scheme_str() != Some("https") {
            return Err(("does not start with https://", FORM));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(("has a path", FORM));
        }
        match uri.authority() {
            Some(authority) if authority.port().is_some() && !authority.as_str().contains('@') => {
                Ok(Endpoint::Https(format!("https://{authority}")))
            }
            _ => Err(("does not consist of a host and a port", FORM)),
        }
    }

    /// Base URL of requests.
    pub(crate) fn base(&self) -> &str {
        match self {
            Endpoint::Https(base) => base,
            // The host is not used.
            Endpoint::Unix(_) => "http://localhost",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Https(base) => f.write_str(base),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bowline_config::table::{Format, Section, Table, UnknownKeys};
    use bowline_config::{ConfigFile, Environment};

    use super::*;
    use crate::testing::{Folder, Pki};

    fn read(format: Format, text: &str) -> Result<AgentConfig, String> {
        let name = if format == Format::Gcfg { "Agent" } else { "agent" };
        let sections = vec![Section::of::<AgentKeys>(name, AGENT_DOC)];
        let table = Table { format, unknown: UnknownKeys::Reject, sections };
        let file = ConfigFile::from_text("cloud", text);
        let (settings, errors) = table.check(Some(&file), &Environment::default()).map_err(|e| e.to_string())?;
        AgentConfig::read(settings.view(name), errors).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_group_is_read_from_yaml_and_from_ini() {
        let (folder, pki) = (Folder::new(), Pki::new());
        let [ca, certificate, key] = pki.write_client(&folder, "bowline");
        let yaml = format!(
            "agent:\n  endpoints: [https://192.0.2.11:9470, \"https://[2001:db8::1]:9470/\"]\n  caFile: {ca}\n  certificateFile: {certificate}\n  keyFile: {key}\n"
        );
        let config = read(Format::Yaml, &yaml).unwrap();
        let bases: Vec<_> = config.endpoints.iter().map(Endpoint::base).collect();
        assert_eq!(bases, ["https://192.0.2.11:9470", "https://[2001:db8::1]:9470"]);
        assert_eq!(config.files(), [ca, certificate, key].map(PathBuf::from));
        let [ca, certificate, key] = pki.write_client(&folder, "bowline");
        let files = format!("ca-file = {ca}\ncertificate-file = {certificate}\nkey-file = {key}\n");
        for endpoints in [
            "endpoints = https://192.0.2.11:9470, https://[2001:db8::1]:9470",
            "endpoints = https://192.0.2.11:9470\nendpoints = https://[2001:db8::1]:9470",
        ] {
            assert_eq!(read(Format::Gcfg, &format!("[Agent]\n{endpoints}\n{files}")).as_ref(), Ok(&config));
        }
        let local = read(Format::Yaml, "agent: {endpoints: [unix:/run/agent.sock]}\n").unwrap();
        assert_eq!(local.endpoints, [Endpoint::Unix("/run/agent.sock".into())]);
        assert!(local.files().is_empty());
    }

    #[test]
    fn all_errors_are_reported_at_once_with_their_lines() {
        let text = "\
agent:
  endpoints: [\"http://a:1\", \"https://a\", https://a:1/v1, https://b:1, https://b:1, unix:/x, unix:x, \"\\\\\"]
  caFile: /nowhere/ca.crt
  keyFile: k
";
        let errors = read(Format::Yaml, text).unwrap_err();
        let expected = [
            "cloud:2: agent.endpoints: \"http://a:1\" does not start with https://; write https://HOST:PORT",
            "cloud:2: agent.endpoints: \"https://a\" does not consist of a host and a port; write",
            "cloud:2: agent.endpoints: \"https://a:1/v1\" has a path; write",
            "cloud:2: agent.endpoints: https://b:1 is listed twice; list each agent once",
            "cloud:2: agent.endpoints: \"unix:x\" has no absolute path; write unix:/PATH",
            "cloud:2: agent.endpoints: \"\\\\\" is not a URL; write",
            "cloud:2: agent.endpoints: unix:/x has no other agents: an agent with a Unix socket has no group; let",
            "cloud:3: agent.caFile: is not used with a Unix socket; remove it",
            "cloud:4: agent.keyFile: is not used with a Unix socket; remove it",
            "cloud:3: agent.caFile: /nowhere/ca.crt: no such file; check the path",
        ];
        let lines: Vec<_> = errors.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{errors}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}\n{expected}");
        }
        let errors = read(Format::Yaml, "agent: {caFile: /}\n").unwrap_err();
        for key in ["endpoints: is required", "certificateFile: is required", "keyFile: is required", "caFile: /: is a"]
        {
            assert!(errors.contains(&format!("agent.{key}")), "{key}: {errors}");
        }
    }

    #[test]
    fn invalid_files_are_reported_with_their_key() {
        let (folder, pki) = (Folder::new(), Pki::new());
        let [ca, certificate, key] = pki.write_client(&folder, "bowline");
        let text = format!(
            "agent:\n  endpoints: [https://a:1]\n  caFile: {ca}\n  certificateFile: {key}\n  keyFile: {certificate}\n"
        );
        let errors = read(Format::Yaml, &text).unwrap_err();
        assert!(errors.contains(&format!("cloud:4: agent.certificateFile: {key}: no certificate in it")), "{errors}");
        assert!(errors.contains(&format!("cloud:5: agent.keyFile: {certificate}: no private key in it")), "{errors}");
    }
}
