//! Watches the holder of a lease.

use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::Failure;

/// Namespace of the managers' leases.
const NAMESPACE: &str = "kube-system";

/// Timeout of the acquisition.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A watch on one lease.
pub(crate) struct LeaseWatch {
    events: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Lease>>>>>,
}

impl LeaseWatch {
    pub(crate) async fn open(kubeconfig: &Path, name: &str) -> Result<LeaseWatch, Failure> {
        let leases: Api<Lease> = Api::namespaced(client(kubeconfig).await?, NAMESPACE);
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        Ok(LeaseWatch { events: Box::pin(leases.watch(&params, "0").await?) })
    }

    /// Waits for a holder that is not this one.
    pub(crate) async fn next_holder(&mut self, previous: Option<&str>) -> Result<String, Failure> {
        let search = async {
            while let Some(event) = self.events.try_next().await? {
                let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event else { continue };
                let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                if !holder.is_empty() && previous != Some(&holder) {
                    return Ok(holder);
                }
            }
            Err("the watch ended".into())
        };
        tokio::time::timeout(TIMEOUT, search).await.map_err(|_| "the lease was not acquired")?
    }
}

/// Measures the minimal requests for a lease with a bare client: the share of the API server and TLS.
pub(crate) async fn bare_acquisition(kubeconfig: &Path, number: usize) -> Result<Duration, Failure> {
    let begin = Instant::now();
    let leases: Api<Lease> = Api::namespaced(client(kubeconfig).await?, NAMESPACE);
    let name = format!("bare-{number}");
    leases.get_opt(&name).await?;
    let lease = serde_json::json!({ "metadata": { "name": name }, "spec": { "holderIdentity": "bench" } });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    Ok(begin.elapsed())
}

async fn client(kubeconfig: &Path) -> Result<kube::Client, Failure> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
