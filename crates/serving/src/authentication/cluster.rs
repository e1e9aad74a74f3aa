//! Authentication settings of the API server, from its ConfigMap: the CA of client certificates, and the front proxy. The ConfigMap is
//! watched, because both are rotated.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

use super::certificates::Bundle;
use super::front_proxy::{FrontProxy, Headers};
use crate::review::to_message;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Timeout of the first read.
const FIRST_READ: Duration = Duration::from_secs(10);

/// Pause between two watches.
const PAUSE: Duration = Duration::from_secs(5);

/// Settings that no flag sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup {
    pub(super) client_ca: bool,
    pub(super) front_proxy: bool,
}

impl Lookup {
    pub(super) fn is_needed(self) -> bool {
        self.client_ca || self.front_proxy
    }
}

/// Last valid settings.
#[derive(Debug, Clone, Default)]
struct Settings {
    client_ca: Option<Arc<Bundle>>,
    front_proxy: Option<Arc<FrontProxy>>,
}

/// Watches the settings of the API server.
pub(super) struct Cluster {
    api: Api<ConfigMap>,
    lookup: Lookup,
    settings: RwLock<Settings>,
}

impl Cluster {
    pub(super) fn new(client: kube::Client, lookup: Lookup) -> Cluster {
        Cluster { api: Api::namespaced(client, NAMESPACE), lookup, settings: RwLock::default() }
    }

    pub(super) fn needs_front_proxy(&self) -> bool {
        self.lookup.front_proxy
    }

    pub(super) fn client_ca(&self) -> Option<Arc<Bundle>> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).client_ca.clone()
    }

    pub(super) fn front_proxy(&self) -> Option<Arc<FrontProxy>> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).front_proxy.clone()
    }

    /// Reads the settings once.
    pub(super) async fn read(&self) -> Result<(), String> {
        match tokio::time::timeout(FIRST_READ, self.api.get(NAME)).await {
            Ok(Ok(map)) => self.store(&map),
            Ok(Err(error)) => Err(to_message(&error)),
            Err(_) => Err(format!("the API server did not answer within {FIRST_READ:?}")),
        }
    }

    /// Watches the settings until the future is dropped.
    pub(super) async fn watch(&self) {
        let mut succeeded = true;
        loop {
            let outcome = self.watch_once().await;
            if let (Err(error), true) = (&outcome, succeeded) {
                tracing::warn!(%error, "cannot watch the API server's authentication settings; retrying");
            }
            succeeded = outcome.is_ok();
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn watch_once(&self) -> Result<(), kube::Error> {
        // RBAC rules with resourceNames only match requests with this field selector.
        let field = format!("metadata.name={NAME}");
        let list = self.api.list(&ListParams::default().fields(&field)).await?;
        list.items.iter().for_each(|map| self.store_if_valid(map));
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = self.api.watch(&WatchParams::default().fields(&field), &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => self.store_if_valid(&map),
                WatchEvent::Deleted(_) => {
                    tracing::warn!("the API server's authentication settings were deleted; keeping them")
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(())
    }

    fn store_if_valid(&self, map: &ConfigMap) {
        if let Err(error) = self.store(map) {
            tracing::error!(error, "invalid authentication settings of the API server; keeping the previous ones");
        }
    }

    fn store(&self, map: &ConfigMap) -> Result<(), String> {
        let settings = settings(map.data.as_ref().unwrap_or(&BTreeMap::new()), self.lookup)?;
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        Ok(())
    }
}

/// Parses the settings that are needed.
fn settings(data: &BTreeMap<String, String>, lookup: Lookup) -> Result<Settings, String> {
    let bundle = |key: &str| match data.get(key).filter(|pem| !pem.is_empty()) {
        Some(pem) => Bundle::parse(pem.as_bytes()).map(Some).map_err(|message| format!("{NAME}: {key} {message}")),
        None => Ok(None),
    };
    let client_ca = if lookup.client_ca { bundle("client-ca-file")? } else { None };
    let authorities = if lookup.front_proxy { bundle("requestheader-client-ca-file")? } else { None };
    let front_proxy = authorities.map(|authorities| front_proxy(data, authorities)).transpose()?;
    Ok(Settings { client_ca: client_ca.map(Arc::new), front_proxy: front_proxy.map(Arc::new) })
}

fn front_proxy(data: &BTreeMap<String, String>, authorities: Bundle) -> Result<FrontProxy, String> {
    let list = |key: &str| match data.get(key).filter(|text| !text.is_empty()) {
        Some(text) => serde_json::from_str::<Vec<String>>(text)
            .map_err(|error| format!("{NAME}: {key} is not a JSON array of strings: {error}")),
        None => Ok(Vec::new()),
    };
    let headers = Headers {
        username: list("requestheader-username-headers")?,
        uid: list("requestheader-uid-headers")?,
        group: list("requestheader-group-headers")?,
        extra_prefixes: list("requestheader-extra-headers-prefix")?,
    };
    Ok(FrontProxy { authorities, allowed_names: list("requestheader-allowed-names")?, headers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    const BOTH: Lookup = Lookup { client_ca: true, front_proxy: true };

    #[test]
    fn settings_are_read_as_the_api_server_writes_them() {
        let pem = authority();
        let map = data(&[
            ("client-ca-file", &pem),
            ("requestheader-client-ca-file", &pem),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
        ]);
        let read = settings(&map, BOTH).unwrap();
        let proxy = read.front_proxy.unwrap();
        assert!(read.client_ca.is_some());
        assert_eq!(
            (proxy.allowed_names.as_slice(), proxy.headers.username.as_slice()),
            (&["front-proxy-client".to_owned()][..], &["X-Remote-User".to_owned()][..],)
        );
        let only_proxy = Lookup { client_ca: false, front_proxy: true };
        assert!(settings(&map, only_proxy).unwrap().client_ca.is_none());
    }

    #[test]
    fn missing_settings_are_no_error_and_invalid_ones_are() {
        let read = settings(&data(&[]), BOTH).unwrap();
        assert!(read.client_ca.is_none() && read.front_proxy.is_none());
        let pem = authority();
        let broken: [&[(&str, &str)]; 3] = [
            &[("client-ca-file", "rubbish")],
            &[("requestheader-client-ca-file", "rubbish")],
            &[("requestheader-client-ca-file", &pem), ("requestheader-allowed-names", "a,b")],
        ];
        for map in broken {
            let error = settings(&data(map), BOTH).unwrap_err();
            assert!(error.contains(map.last().unwrap().0), "{error}");
        }
    }
}
