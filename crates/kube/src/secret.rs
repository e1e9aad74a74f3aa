//! One Secret, watched by its name. RBAC allows that with a rule that names the Secret: a list or watch with the field selector
//! `metadata.name` needs no permission for any other.

use std::collections::BTreeMap;
use std::fmt;

use bowline_runtime::Backoff;
use futures::{Stream, StreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use serde::Deserialize;
use tokio::time::sleep;

use crate::permissions::{Permission, Scope};
use crate::watch::{FIRST_PAUSE, LONGEST_PAUSE, cause};
use crate::wire::core_resource;

/// Pauses while the API server does not answer, or refuses.
const BACKOFF: Backoff = Backoff { first: FIRST_PAUSE, max: LONGEST_PAUSE };

/// Values of a Secret, by key.
pub type SecretValues = BTreeMap<String, Vec<u8>>;

/// Reason why a Secret could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The permission is missing.
    pub is_forbidden: bool,
    /// Cause, for people.
    pub message: String,
}

/// Permission for [`watch_secret`].
pub fn secret_permission(namespace: &str, name: &str) -> Permission {
    Permission {
        group: "",
        resource: "secrets",
        verbs: &["list", "watch"],
        scope: Scope::Named(namespace.to_owned().into(), name.to_owned().into()),
        why: "to read the credentials that the configuration of the cloud names",
        without: None,
    }
}

/// Contents of the Secret, now and after every change: `None` while there is no such Secret. It never ends; after an error it
/// goes on with a back-off.
pub fn watch_secret(
    client: Client,
    namespace: &str,
    name: &str,
) -> impl Stream<Item = Result<Option<SecretValues>, Unreadable>> + Send + use<> {
    let secrets = watch_object(Api::<WireSecret>::namespaced(client, namespace), name);
    let mut failures = 0_u32;
    secrets.then(move |seen| {
        failures = if seen.is_ok() { 0 } else { failures.saturating_add(1) };
        let pause = BACKOFF.after(failures.saturating_sub(1));
        async move {
            // The first error is reported at once, and nothing is asked in the pause before a further one.
            if seen.is_err() {
                sleep(pause).await;
            }
            seen.map(|secret| secret.map(WireSecret::values)).map_err(|error| unreadable(&error))
        }
    })
}

fn unreadable(error: &watcher::Error) -> Unreadable {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let code = match error {
        WatchError(status) => status.code,
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => status.code,
        _ => 0,
    };
    Unreadable { is_forbidden: code == 403, message: cause(error) }
}

/// A Secret, as far as it is read.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct WireSecret {
    metadata: ObjectMeta,
    data: BTreeMap<String, ByteString>,
}

core_resource!(WireSecret, "Secret", "secrets", NamespaceResourceScope);

impl WireSecret {
    fn values(self) -> SecretValues {
        self.data.into_iter().map(|(key, value)| (key, value.0)).collect()
    }
}

/// The name alone: contents are never printed.
impl fmt::Debug for WireSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WireSecret").field(&self.metadata.name).finish()
    }
}
