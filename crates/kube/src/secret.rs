//! Watches one Secret by name. An RBAC rule with `resourceNames` is enough: it allows list and watch requests with the field
//! selector `metadata.name`.

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
use crate::watch::{FIRST_PAUSE, MAX_PAUSE, cause};
use crate::wire::core_resource;

/// Back-off after a failed list or watch.
const BACKOFF: Backoff = Backoff { first: FIRST_PAUSE, max: MAX_PAUSE };

/// Values of a Secret, by key.
pub type SecretValues = BTreeMap<String, Vec<u8>>;

/// Reason why a Secret cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretError {
    /// The permission to read the Secret is missing.
    pub is_forbidden: bool,
    /// Human-readable cause.
    pub message: String,
}

/// Permission for [`watch_secret`].
pub fn secret_permission(namespace: &str, name: &str) -> Permission {
    Permission {
        group: "",
        resource: "secrets",
        verbs: &["list", "watch"],
        scope: Scope::Named(namespace.to_owned().into(), name.to_owned().into()),
        why: "read the credentials that the cloud configuration references",
        without: None,
    }
}

/// Streams the values of the Secret, now and after every change; `None` while the Secret does not exist. The stream never ends:
/// after an error it continues with a back-off.
pub fn watch_secret(
    client: Client,
    namespace: &str,
    name: &str,
) -> impl Stream<Item = Result<Option<SecretValues>, SecretError>> + Send + use<> {
    let secrets = watch_object(Api::<WireSecret>::namespaced(client, namespace), name);
    let mut failures = 0_u32;
    secrets.then(move |result| {
        failures = if result.is_ok() { 0 } else { failures.saturating_add(1) };
        let pause = BACKOFF.after(failures.saturating_sub(1));
        async move {
            // The first error is reported without a pause. No request is sent during the pause before a further one.
            if result.is_err() {
                sleep(pause).await;
            }
            result.map(|secret| secret.map(WireSecret::values)).map_err(|error| to_error(&error))
        }
    })
}

fn to_error(error: &watcher::Error) -> SecretError {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let code = match error {
        WatchError(status) => status.code,
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => status.code,
        _ => 0,
    };
    SecretError { is_forbidden: code == 403, message: cause(error) }
}

/// Secret, reduced to its values.
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

/// Prints the name only, never the values.
impl fmt::Debug for WireSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WireSecret").field(&self.metadata.name).finish()
    }
}
