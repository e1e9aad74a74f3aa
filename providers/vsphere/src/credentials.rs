//! Logins of the vCenters: from the configuration, from Secrets and from a directory.
//!
//! ```text
//!  configuration: user, password ───────────────────────────────┐
//!  Secret, on every change ──┐                                  ├──► candidates() ──► login
//!  directory, at every login ┴─parse──► last complete logins ───┘
//! ```
//!
//! A login that was once complete stays in use until a complete one replaces it: neither a deleted Secret nor a bad key ends access.

mod directory;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_cloud::{Error, ErrorKind, Result, SecretData, SecretRef};
use bowline_config::Secret;

use self::parse::{Contents, unbracketed};
use crate::config::nsx::{NsxConfig, NsxCredentials};
use crate::config::{Config, CredentialSource, VcenterConfig};

/// How to log in to a vCenter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// User and password.
    Password { user: String, password: Secret },
    /// Holder-of-key SAML token from a certificate and its key, both as PEM text.
    Certificate { certificate: String, key: Secret },
    /// Clone ticket of a shared session from a session manager. Without a token, that of the pod's service account is used.
    SharedSession { url: String, token: Option<Secret> },
}

/// Credentials of all vCenters and of NSX.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// What is needed of each vCenter.
    vcenters: Vec<User>,
    directory: Option<PathBuf>,
    nsx: Option<SecretRef>,
    /// User and password of the configuration, until the Secret of NSX was read.
    nsx_default: Option<(String, Secret)>,
    state: Mutex<State>,
}

/// A vCenter as a user of credentials.
#[derive(Debug)]
struct User {
    server: String,
    source: CredentialSource,
    /// The configuration has a login.
    has_login: bool,
}

/// What was read so far.
#[derive(Debug, Default)]
struct State {
    /// Last complete logins by source and server.
    logins: BTreeMap<CredentialSource, BTreeMap<String, Login>>,
    nsx: Option<(String, Secret)>,
    /// Last errors by source, so that each is logged once.
    errors: BTreeMap<CredentialSource, Vec<String>>,
    /// Secrets whose delivery succeeded.
    delivered: BTreeSet<SecretRef>,
    revision: u64,
}

const READ_SECRET: &str = "read the Secret";

// ---- Login

impl Login {
    /// Creates a login from user and password, or from a certificate and its key in their place. `None` if one of them is missing.
    fn with_password(user: &str, password: &Secret) -> Option<Login> {
        let is_complete = !user.is_empty() && !password.is_empty();
        let login = match user.trim_start().starts_with("-----BEGIN") {
            true => Login::Certificate { certificate: user.to_owned(), key: password.clone() },
            false => Login::Password { user: user.to_owned(), password: password.clone() },
        };
        is_complete.then_some(login)
    }

    /// Returns the subject of the login for messages, such as `user "root"`. Contains no secret.
    pub(crate) fn subject(&self) -> String {
        match self {
            Login::Password { user, .. } => format!("user {user:?}"),
            Login::Certificate { .. } => "the configured certificate".to_owned(),
            // The URL may contain credentials.
            Login::SharedSession { url, .. } => {
                let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
                format!("the shared session of {}", host.as_deref().unwrap_or("the session manager"))
            }
        }
    }
}

// ---- Credentials

impl Credentials {
    /// Creates the credentials of a configuration. Secrets have no content yet.
    pub(crate) fn new(config: &Config) -> Credentials {
        let user = |vcenter: &VcenterConfig| User {
            server: vcenter.server.clone(),
            source: vcenter.source.clone(),
            has_login: configured(vcenter).is_some(),
        };
        let of_nsx = |nsx: &NsxConfig| match &nsx.credentials {
            NsxCredentials::Secret { secret, .. } => Some(secret.clone()),
            _ => None,
        };
        Credentials {
            vcenters: config.vcenters.iter().map(user).collect(),
            directory: config.secrets_directory.clone(),
            nsx: config.nsx.as_ref().and_then(of_nsx),
            nsx_default: config.nsx.as_ref().and_then(|nsx| nsx.password.clone()),
            state: Mutex::default(),
        }
    }

    /// Returns the Secrets to watch, for [`CloudProvider::secrets`](bowline_cloud::CloudProvider::secrets).
    pub(crate) fn secrets(&self) -> Vec<SecretRef> {
        let of_vcenters = self.vcenters.iter().filter_map(|vcenter| match &vcenter.source {
            CredentialSource::Secret(secret) => Some(secret),
            _ => None,
        });
        let secrets: BTreeSet<_> = of_vcenters.chain(&self.nsx).cloned().collect();
        secrets.into_iter().collect()
    }

    /// Takes over the contents of a Secret, for [`CloudProvider::on_secret`](bowline_cloud::CloudProvider::on_secret).
    ///
    /// Fails at the first delivery only if no vCenter can be used without this Secret, because the framework starts no provider before
    /// every delivery succeeded. Otherwise the error is logged, and the other vCenters are used.
    pub(crate) fn on_secret(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        let outcome = self.take_logins(secret, data).and(self.take_nsx(secret, data));
        let is_first = !self.state().delivered.contains(secret);
        match outcome {
            Err(error) if is_first && !self.is_required(secret) => {
                tracing::warn!(%secret, %error, "the Secret cannot be used");
            }
            outcome => outcome?,
        }
        self.state().delivered.insert(secret.clone());
        Ok(())
    }

    /// Returns the logins to try for a vCenter, in this order; at least one.
    pub(crate) fn candidates(&self, vcenter: &VcenterConfig) -> Result<Vec<Login>> {
        if vcenter.source == CredentialSource::Directory {
            self.read_directory();
        }
        let state = self.state();
        let known = state.logins.get(&vcenter.source).and_then(|logins| logins.get(unbracketed(&vcenter.server)));
        let mut logins: Vec<_> = configured(vcenter).into_iter().chain(known.cloned()).collect();
        logins.dedup();
        match logins.is_empty() {
            true => Err(self.missing(vcenter, state.errors.get(&vcenter.source))),
            false => Ok(logins),
        }
    }

    /// Returns user and password of NSX from its Secret, or those of the configuration until the Secret was read. `None` if NSX has
    /// no Secret, or if there are none.
    pub(crate) fn nsx_password(&self) -> Option<(String, Secret)> {
        self.nsx.as_ref()?;
        self.state().nsx.clone().or_else(|| self.nsx_default.clone())
    }

    /// Returns how many times a Secret or the directory brought other logins, for
    /// [`CloudProvider::revision`](bowline_cloud::CloudProvider::revision).
    pub(crate) fn revision(&self) -> u64 {
        self.state().revision
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- sources

    /// Fails if the Secret has no login of any vCenter that refers to it.
    fn take_logins(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        let source = CredentialSource::Secret(secret.clone());
        let servers: Vec<_> = self.vcenters.iter().filter(|vcenter| vcenter.source == source).collect();
        if servers.is_empty() {
            return Ok(());
        }
        let Some(data) = data else {
            let message =
                format!("secret {:?} not found in namespace {:?}; fix: create it", secret.name, secret.namespace);
            self.state().errors.insert(source, vec![message.clone()]);
            return Err(Error::new(ErrorKind::NotFound, READ_SECRET, message));
        };
        let contents = Contents::read(data.keys().filter_map(|key| Some((key, data.bytes(key)?))));
        let has_login = |vcenter: &&User| contents.logins.contains_key(unbracketed(&vcenter.server));
        let is_used = servers.iter().copied().any(|vcenter| has_login(&vcenter));
        let errors = contents.errors.clone();
        self.state().take(source, contents);
        if is_used {
            return Ok(());
        }
        let names = servers.iter().map(|vcenter| vcenter.server.as_str()).collect::<Vec<_>>().join(", ");
        let reason = errors.join(", ");
        let message = format!(
            "the Secret {secret} has no credentials for server {names}{}{reason}; fix: add the keys SERVER.username and SERVER.password",
            if reason.is_empty() { "" } else { ": " }
        );
        Err(Error::new(ErrorKind::InvalidConfig, READ_SECRET, message))
    }

    fn take_nsx(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        if self.nsx.as_ref() != Some(secret) {
            return Ok(());
        }
        let data = SecretData::required(data)?;
        let login = (data.text("username")?.reveal().to_owned(), data.text("password")?);
        // They become a header of every request.
        if [login.0.as_str(), login.1.reveal()].iter().any(|text| text.contains(char::is_control)) {
            let message = "username or password of NSX contains a control character; fix: remove it";
            return Err(Error::new(ErrorKind::InvalidConfig, READ_SECRET, message));
        }
        let mut state = self.state();
        if state.nsx.as_ref() != Some(&login) {
            state.nsx = Some(login);
            state.revision += 1;
        }
        Ok(())
    }

    /// Returns whether no vCenter has credentials without this Secret.
    fn is_required(&self, secret: &SecretRef) -> bool {
        let needs_it = |vcenter: &User| match &vcenter.source {
            CredentialSource::Secret(used) => used == secret && !vcenter.has_login,
            _ => false,
        };
        !self.vcenters.is_empty() && self.vcenters.iter().all(needs_it)
    }

    fn read_directory(&self) {
        let Some(path) = &self.directory else { return };
        let contents = match directory::read(path) {
            Ok(files) => {
                let values = files.values.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
                let mut contents = Contents::read(values);
                contents.errors.extend(files.errors);
                contents
            }
            Err(error) => {
                Contents { errors: vec![format!("cannot read {}: {error}", path.display())], ..Contents::default() }
            }
        };
        self.state().take(CredentialSource::Directory, contents);
    }

    /// Returns the error of a vCenter without any login.
    fn missing(&self, vcenter: &VcenterConfig, errors: Option<&Vec<String>>) -> Error {
        let (server, place) = (&vcenter.server, place(&vcenter.source));
        let path = self.directory.iter().map(|path| format!(" {}", path.display())).collect::<String>();
        let path = if vcenter.source == CredentialSource::Directory { path } else { String::new() };
        let reason = errors.filter(|errors| !errors.is_empty()).map(|errors| format!(": {}", errors.join(", ")));
        let message = format!(
            "Credentials not found: {place}{path} has none for server {server}{}; fix: add {server}.username and {server}.password",
            reason.unwrap_or_default()
        );
        Error::new(ErrorKind::Unauthenticated, "log in to vCenter", message)
    }
}

/// Returns the login of the configuration.
fn configured(vcenter: &VcenterConfig) -> Option<Login> {
    Login::with_password(&vcenter.user, &vcenter.password)
}

/// Returns a source for messages.
fn place(source: &CredentialSource) -> String {
    match source {
        CredentialSource::Secret(secret) => format!("the Secret {secret}"),
        CredentialSource::Directory => "the secrets directory".to_owned(),
        CredentialSource::Config => "the configuration".to_owned(),
    }
}

impl State {
    /// Replaces the logins that are complete, and logs new errors.
    fn take(&mut self, source: CredentialSource, contents: Contents) {
        let known = self.logins.entry(source.clone()).or_default();
        let before = known.clone();
        known.extend(contents.logins);
        if *known != before {
            self.revision += 1;
        }
        let last = self.errors.insert(source.clone(), contents.errors.clone()).unwrap_or_default();
        for error in contents.errors.iter().filter(|error| !last.contains(error)) {
            tracing::warn!(source = place(&source), %error, "bad credentials are ignored");
        }
    }
}
