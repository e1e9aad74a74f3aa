//! Kubernetes Secrets of a provider: credentials that a cluster keeps in a Secret and not in a file.
//!
//! ```text
//!  secrets(): names, from the configuration
//!        │ list and watch, by name
//!        ▼
//!  API server ──► on_secret(name, data) ──► Ok: delivered ──┬─► all delivered: start()
//!                                     └──► Err ─────────────┴─► the cloud is not ready, with the cause
//! ```
//!
//! A provider declares the names of its Secrets and has no access to a Kubernetes client. The framework does not start it before
//! each Secret was delivered once, and delivers every later change. If a Secret is deleted or becomes unreadable afterwards, the
//! provider keeps its last values.

use std::collections::BTreeMap;
use std::fmt;

use bowline_config::Secret;

use crate::{Error, ErrorKind, Result};

/// Namespace and name of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretRef {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

/// Contents of a Secret: values by key. Its debug output shows only the keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretData(BTreeMap<String, Vec<u8>>);

impl SecretRef {
    /// Parses `NAMESPACE/NAME`, the form in configuration files.
    ///
    /// ```
    /// use bowline_cloud::SecretRef;
    ///
    /// let secret = SecretRef::parse("kube-system/acme").unwrap();
    /// assert_eq!((secret.namespace.as_str(), secret.name.as_str()), ("kube-system", "acme"));
    /// assert!(SecretRef::parse("acme").is_none() && SecretRef::parse("a/b/c").is_none());
    /// ```
    pub fn parse(text: &str) -> Option<SecretRef> {
        let (namespace, name) = text.split_once('/')?;
        // Any other character would change the path or the field selector of the request.
        let is_name = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
            !text.is_empty() && text.len() <= 253 && text.bytes().all(plain)
        };
        let secret = SecretRef { namespace: namespace.to_owned(), name: name.to_owned() };
        (is_name(namespace) && is_name(name)).then_some(secret)
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl SecretData {
    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the raw value of a key.
    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    /// Returns the contents, or an error for `None`, which [`on_secret`](crate::CloudProvider::on_secret) gets for a Secret that
    /// does not exist.
    pub fn required(data: Option<&SecretData>) -> Result<&SecretData> {
        let missing = || Error::new(ErrorKind::NotFound, "read the Secret", "the Secret does not exist");
        data.ok_or_else(missing)
    }

    /// Returns the text value of a key, without trailing line breaks, which Secrets created from files have. A missing or empty
    /// value, or one that is not UTF-8, is an error.
    pub fn text(&self, key: &str) -> Result<Secret> {
        let fails = |why: &str| {
            let message = format!("the key {key:?} of the Secret {why}");
            Err(Error::new(ErrorKind::InvalidConfig, "read the Secret", message))
        };
        match self.bytes(key).map(str::from_utf8) {
            None => fails("is missing"),
            Some(Err(_)) => fails("is not UTF-8"),
            Some(Ok(text)) => match text.trim_end_matches(['\r', '\n']) {
                "" => fails("is empty"),
                text => Ok(Secret::from(text)),
            },
        }
    }
}

impl<K: Into<String>, V: Into<Vec<u8>>> FromIterator<(K, V)> for SecretData {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(values: I) -> SecretData {
        SecretData(values.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, format_args!("***")))).finish()
    }
}

/// Delivery state of each Secret of a provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deliveries(BTreeMap<SecretRef, Delivery>);

#[derive(Debug, Clone, Default)]
struct Delivery {
    /// The provider has accepted the Secret at least once.
    is_done: bool,
    /// Result of the last delivery; `None` before the first one.
    last: Option<Result<()>>,
}

impl Deliveries {
    pub(crate) fn of(secrets: impl IntoIterator<Item = SecretRef>) -> Deliveries {
        Deliveries(secrets.into_iter().map(|secret| (secret, Delivery::default())).collect())
    }

    /// Records the result of a delivery. Returns whether to log it: a repeated failure of the same kind is not logged.
    pub(crate) fn record(&mut self, secret: &SecretRef, result: Result<()>) -> bool {
        let Some(delivery) = self.0.get_mut(secret) else { return false };
        let kind = |result: &Result<()>| result.as_ref().err().map(Error::kind);
        let is_new = result.is_ok() || delivery.last.as_ref().is_none_or(|last| kind(last) != kind(&result));
        delivery.is_done |= result.is_ok();
        delivery.last = Some(result);
        is_new
    }

    /// Returns whether each Secret had a first delivery, successful or not.
    pub(crate) fn are_attempted(&self) -> bool {
        self.0.values().all(|delivery| delivery.last.is_some())
    }

    /// Fails unless each Secret was delivered successfully.
    pub(crate) fn check(&self) -> Result<()> {
        let Some((secret, delivery)) = self.0.iter().find(|(_, delivery)| !delivery.is_done) else { return Ok(()) };
        match &delivery.last {
            Some(Err(error)) => Err(error.clone().context("secret", secret.to_string())),
            _ => {
                let message = format!("the Secret {secret} has not been read from the API server yet");
                Err(Error::new(ErrorKind::Unavailable, "read the Secret", message))
            }
        }
    }

    /// Returns the state of each Secret, for `/statusz`.
    pub(crate) fn status(&self) -> BTreeMap<String, String> {
        let state = |delivery: &Delivery| match (&delivery.last, delivery.is_done) {
            (None, _) => "not read yet".to_owned(),
            (Some(Ok(())), _) => "in use".to_owned(),
            (Some(Err(error)), false) => error.to_string(),
            (Some(Err(error)), true) => format!("the last good values are in use: {error}"),
        };
        self.0.iter().map(|(secret, delivery)| (secret.to_string(), state(delivery))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_special_characters_are_rejected() {
        for text in ["", "/", "a/", "/b", "a/b/c", "a/b,metadata.name!=c", "a/../b", "A/b", "a b/c"] {
            assert_eq!(SecretRef::parse(text), None, "{text:?}");
        }
        assert_eq!(
            SecretRef::parse("kube-system/a.b-1").map(|secret| secret.to_string()).as_deref(),
            Some("kube-system/a.b-1")
        );
    }

    #[test]
    fn debug_output_and_errors_contain_no_values() {
        let data: SecretData =
            [("token", b"swordfish\n".to_vec()), ("bad", vec![0xff]), ("empty", b"\n".to_vec())].into_iter().collect();
        let printed = format!("{data:?}");
        assert!(printed.contains("token") && !printed.contains("swordfish"), "{printed}");
        assert_eq!(data.text("token").unwrap().reveal(), "swordfish");
        for (key, why) in [("bad", "not UTF-8"), ("empty", "is empty"), ("none", "is missing")] {
            let error = data.text(key).unwrap_err();
            assert!(error.message().contains(why) && error.message().contains(key), "{error}");
        }
    }

    #[test]
    fn a_later_failure_does_not_revoke_a_delivery() {
        let secret = SecretRef::parse("a/b").unwrap();
        let mut deliveries = Deliveries::of([secret.clone()]);
        assert!(!deliveries.are_attempted() && deliveries.check().unwrap_err().message().contains("not been read"));
        let missing = || Err(Error::new(ErrorKind::NotFound, "read the Secret", "there is none"));
        assert!(
            deliveries.record(&secret, missing()) && !deliveries.record(&secret, missing()),
            "a repeated failure is not logged"
        );
        assert!(deliveries.are_attempted() && deliveries.check().unwrap_err().kind() == ErrorKind::NotFound);
        assert!(deliveries.record(&secret, Ok(())) && deliveries.record(&secret, Ok(())));
        assert!(deliveries.record(&secret, missing()) && deliveries.check().is_ok());
        assert!(deliveries.status()["a/b"].contains("last good values"), "{:?}", deliveries.status());
    }
}
