//! Profiles in the shared configuration and credentials files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_http::sign::aws::Credentials;

use super::super::chain::Plan;
use super::super::sts::Role;
use super::super::{OPERATION, invalid};
use super::files::read_if_exists;
use super::web_identity::WebIdentity;
use crate::config::CredentialVariables;

const DEFAULT: &str = "default";

/// Keys of one profile, in lower case.
type Profile = BTreeMap<String, String>;

/// Profiles of both files. There is no debug output, because they contain secrets.
#[derive(Default)]
pub(crate) struct Profiles(BTreeMap<String, Profile>);

/// Reads the profile that the environment names, or the default one, and returns how to get its credentials; `None` if it has none.
pub(crate) async fn plan(variables: &CredentialVariables) -> Result<Option<Plan>> {
    let in_home = |name: &str| {
        Some(PathBuf::from(&variables.home).join(".aws").join(name)).filter(|_| !variables.home.is_empty())
    };
    let path = |own: &str, name: &str| if own.is_empty() { in_home(name) } else { Some(own.into()) };
    let read = |path: Option<PathBuf>| async {
        match path {
            Some(path) => read_if_exists(path).await.map(Option::unwrap_or_default),
            None => Ok(String::new()),
        }
    };
    let config = read(path(&variables.config_file, "config")).await?;
    let credentials = read(path(&variables.credentials_file, "credentials")).await?;
    let name = if variables.profile.is_empty() { DEFAULT } else { &variables.profile };
    Profiles::parse(&config, &credentials).plan(name, !variables.profile.is_empty())
}

impl Profiles {
    /// Parses both files. A key of the credentials file takes precedence.
    pub(crate) fn parse(config: &str, credentials: &str) -> Profiles {
        let mut profiles = Profiles::default();
        profiles.add(config, |header| match header.split_once(char::is_whitespace) {
            Some(("profile", name)) => Some(name.trim()),
            // Other kinds of sections, such as `sso-session NAME`.
            Some(_) => None,
            None => Some(header).filter(|name| *name == DEFAULT),
        });
        profiles.add(credentials, |header| Some(header));
        profiles
    }

    fn add(&mut self, text: &str, name_of: impl Fn(&str) -> Option<&str>) {
        let mut current: Option<&mut Profile> = None;
        for line in text.lines() {
            let trimmed = line.trim();
            // An indented line is a part of a nested value, and no key.
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) || line.starts_with([' ', '\t']) {
                continue;
            }
            if let Some(header) = trimmed.strip_prefix('[') {
                let header = header.split(']').next().unwrap_or_default().trim();
                let name = name_of(header).map(|name| name.trim_matches('"').to_owned());
                current = name.map(|name| self.0.entry(name).or_default());
            } else if let (Some(profile), Some((key, value))) = (current.as_deref_mut(), trimmed.split_once('=')) {
                profile.insert(key.trim().to_lowercase(), without_comment(value).to_owned());
            }
        }
    }

    /// Returns how to get the credentials of a profile; `None` if it has none.
    fn plan(&self, name: &str, is_required: bool) -> Result<Option<Plan>> {
        match self.0.get(name) {
            None if is_required => Err(invalid(format!("AWS_PROFILE: there is no profile {name:?}"))),
            None => Ok(None),
            Some(profile) => self.of_profile(name, profile, &mut Vec::new()),
        }
    }

    fn of_profile<'a>(&'a self, name: &'a str, profile: &Profile, seen: &mut Vec<&'a str>) -> Result<Option<Plan>> {
        if seen.contains(&name) {
            return Err(invalid(format!("profile {name:?} is its own source_profile, through {}", seen.join(", "))));
        }
        seen.push(name);
        match get(profile, "role_arn") {
            Some(arn) => self.with_role(name, profile, arn, seen).map(Some),
            None => match keys(profile) {
                Some(keys) => Ok(Some(Plan::Keys(keys, format!("profile {name:?}")))),
                None => unsupported(name, profile).map_or(Ok(None), Err),
            },
        }
    }

    fn with_role<'a>(&'a self, name: &'a str, profile: &Profile, arn: &str, seen: &mut Vec<&'a str>) -> Result<Plan> {
        let role = Role {
            arn: arn.to_owned(),
            session: get(profile, "role_session_name").unwrap_or_default().to_owned(),
            external_id: get(profile, "external_id").map(str::to_owned),
            duration: get(profile, "duration_seconds").map(str::to_owned),
            headers: Vec::new(),
        };
        if let Some(file) = get(profile, "web_identity_token_file") {
            return Ok(Plan::WebIdentity(WebIdentity { role, token_file: file.to_owned() }));
        }
        if get(profile, "mfa_serial").is_some() {
            return Err(no_support(name, "mfa_serial"));
        }
        let source = match (get(profile, "source_profile"), get(profile, "credential_source")) {
            (Some(source), _) if source != name => self.source(name, source, seen)?,
            (None, Some(source)) => credential_source(name, source)?,
            _ => keys(profile).map(|keys| Plan::Keys(keys, format!("profile {name:?}"))).ok_or_else(|| {
                let message = format!("profile {name:?} has a role_arn and no source for it");
                invalid(format!("{message}; set source_profile, credential_source or web_identity_token_file"))
            })?,
        };
        Ok(Plan::Role { role, source: Box::new(source) })
    }

    fn source<'a>(&'a self, name: &str, source: &str, seen: &mut Vec<&'a str>) -> Result<Plan> {
        let Some((source, profile)) = self.0.get_key_value(source) else {
            return Err(invalid(format!("profile {name:?}: there is no source_profile {source:?}")));
        };
        let missing = || invalid(format!("profile {name:?}: the source_profile {source:?} has no credentials"));
        self.of_profile(source, profile, seen)?.ok_or_else(missing)
    }
}

fn get<'a>(profile: &'a Profile, key: &str) -> Option<&'a str> {
    profile.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

fn keys(profile: &Profile) -> Option<Credentials> {
    Some(Credentials {
        access_key_id: get(profile, "aws_access_key_id")?.to_owned(),
        secret_access_key: get(profile, "aws_secret_access_key")?.into(),
        session_token: get(profile, "aws_session_token").map(Into::into),
    })
}

fn credential_source(name: &str, source: &str) -> Result<Plan> {
    match source.to_lowercase().as_str() {
        "environment" => Ok(Plan::Environment),
        "ecscontainer" => Ok(Plan::Container),
        "ec2instancemetadata" => Ok(Plan::Metadata),
        _ => Err(invalid(format!(
            "profile {name:?}: credential_source {source:?} is not Environment, EcsContainer or Ec2InstanceMetadata"
        ))),
    }
}

/// Returns the error for a profile whose only source is one that is not supported.
fn unsupported(name: &str, profile: &Profile) -> Option<Error> {
    let keys = ["credential_process", "sso_session", "sso_start_url", "sso_account_id", "login_session"];
    keys.into_iter().find(|key| profile.contains_key(*key)).map(|key| no_support(name, key))
}

fn no_support(name: &str, key: &str) -> Error {
    let message = format!("profile {name:?}: {key} is not supported");
    let message =
        format!("{message}; use keys, a web identity token, a container endpoint or the role of the instance");
    Error::new(ErrorKind::Unsupported, OPERATION, message).retry(Retry::Backoff)
}

/// Returns the value without a comment, which begins with `#` or `;` after a space.
fn without_comment(value: &str) -> &str {
    let end = [" #", " ;", "\t#", "\t;"].into_iter().filter_map(|mark| value.find(mark)).min();
    value.get(..end.unwrap_or(value.len())).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests;
