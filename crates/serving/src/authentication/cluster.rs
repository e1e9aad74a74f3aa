//! What the API server says of its own authentication, in a ConfigMap: who signs client certificates, and who may be a front
//! proxy. It is followed, since both change.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

use super::certificates::Bundle;
use super::front_proxy::{FrontProxy, Headers};
use crate::review::told;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// How long the first look may take.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// The pause between two attempts to follow it.
const PAUSE: Duration = Duration::from_secs(5);

/// What nobody gave by flag.
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

/// What was read last and made sense.
#[derive(Debug, Clone, Default)]
struct Settings {
    client_ca: Option<Arc<Bundle>>,
    front_proxy: Option<Arc<FrontProxy>>,
}

/// The settings of the API server.
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

    /// Reads it once.
    pub(super) async fn look(&self) -> Result<(), String> {
        match tokio::time::timeout(FIRST_LOOK, self.api.get(NAME)).await {
            Ok(Ok(map)) => self.take(&map),
            Ok(Err(error)) => Err(told(&error)),
            Err(_) => Err(format!("the API server did not answer within {FIRST_LOOK:?}")),
        }
    }

    /// Follows it for as long as it is let.
    pub(super) async fn follow(&self) {
        let mut was_well = true;
        loop {
            let outcome = self.follow_once().await;
            if let (Err(error), true) = (&outcome, was_well) {
                tracing::warn!(%error, "cannot follow the API server's authentication settings; trying again");
            }
            was_well = outcome.is_ok();
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn follow_once(&self) -> Result<(), kube::Error> {
        // Rights by name hold only for requests that name it.
        let field = format!("metadata.name={NAME}");
        let list = self.api.list(&ListParams::default().fields(&field)).await?;
        list.items.iter().for_each(|map| self.take_if_sound(map));
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = self.api.watch(&WatchParams::default().fields(&field), &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => self.take_if_sound(&map),
                WatchEvent::Deleted(_) => {
                    tracing::warn!("the API server's authentication settings were deleted; keeping them")
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(())
    }

    fn take_if_sound(&self, map: &ConfigMap) {
        if let Err(error) = self.take(map) {
            tracing::error!(
                error,
                "the API server's authentication settings make no sense; what was read before still counts"
            );
        }
    }

    fn take(&self, map: &ConfigMap) -> Result<(), String> {
        let settings = settings(map.data.as_ref().unwrap_or(&BTreeMap::new()), self.lookup)?;
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        Ok(())
    }
}

/// What the map says of what is looked for.
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
            .map_err(|error| format!("{NAME}: {key} is no JSON array of strings: {error}")),
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
        let said = data(&[
            ("client-ca-file", &pem),
            ("requestheader-client-ca-file", &pem),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
        ]);
        let read = settings(&said, BOTH).unwrap();
        let proxy = read.front_proxy.unwrap();
        assert!(read.client_ca.is_some());
        assert_eq!(
            (proxy.allowed_names.as_slice(), proxy.headers.username.as_slice()),
            (&["front-proxy-client".to_owned()][..], &["X-Remote-User".to_owned()][..],)
        );
        let only_proxy = Lookup { client_ca: false, front_proxy: true };
        assert!(settings(&said, only_proxy).unwrap().client_ca.is_none());
    }

    #[test]
    fn what_is_not_there_is_no_error_and_what_makes_no_sense_is() {
        let read = settings(&data(&[]), BOTH).unwrap();
        assert!(read.client_ca.is_none() && read.front_proxy.is_none());
        let pem = authority();
        let broken: [&[(&str, &str)]; 3] = [
            &[("client-ca-file", "rubbish")],
            &[("requestheader-client-ca-file", "rubbish")],
            &[("requestheader-client-ca-file", &pem), ("requestheader-allowed-names", "a,b")],
        ];
        for said in broken {
            let error = settings(&data(said), BOTH).unwrap_err();
            assert!(error.contains(said.last().unwrap().0), "{error}");
        }
    }
}
