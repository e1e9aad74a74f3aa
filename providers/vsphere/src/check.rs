//! Start and health check, of all vCenters at once.
//!
//! A vCenter that fails affects only the Nodes on its machines, so the start succeeds soon after one of them answers. It does not log in:
//! every standby starts as well, and each of them would count as a failed login if the password is wrong. The first lookup logs in.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Facts, Result};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use crate::vcenter::{CHECK_LIMIT, Vcenter};
use crate::{NAME, Vsphere};

/// Time for which the start waits for the other vCenters after one has answered.
const GRACE: Duration = Duration::from_secs(3);

impl Vsphere {
    /// Returns the products of the vCenters. Logs warnings of the configuration.
    pub(crate) async fn start_up(&self) -> Result<Facts> {
        self.config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let (mut products, mut errors) = (Vec::new(), Vec::new());
        for (vcenter, outcome) in self.vcenters.iter().zip(self.products().await) {
            let name = &vcenter.config.name;
            match outcome {
                Ok(product) => products.push(format!("{name}: {product}")),
                Err(error) => errors.push((name.as_str(), error)),
            }
        }
        if products.is_empty() {
            return Err(self.joined(errors).unwrap_or_else(no_vcenter));
        }
        for (vcenter, error) in errors {
            tracing::warn!(vcenter, %error, "the vCenter is not ready; Nodes on its machines are not managed until it is");
        }
        let details = [("vCenters", products.join("; "))].into();
        // upstream: a cluster ID is never required.
        Ok(Facts { cluster_id: Some(NAME.to_owned()), details, ..Facts::default() })
    }

    /// Returns the product of each vCenter.
    async fn products(&self) -> Vec<Result<String>> {
        let too_late = |vcenter: &Vcenter| {
            Err(vcenter.error(ErrorKind::Unavailable, "read the version", "it has not answered yet"))
        };
        let mut products: Vec<_> = self.vcenters.iter().map(too_late).collect();
        let reads = self.vcenters.iter().enumerate().map(async |(index, vcenter)| (index, product(vcenter).await));
        let (mut reads, mut deadline) = (reads.collect::<FuturesUnordered<_>>(), None);
        loop {
            let next = match deadline {
                None => reads.next().await,
                Some(deadline) => timeout_at(deadline, reads.next()).await.unwrap_or(None),
            };
            let Some((index, outcome)) = next else { return products };
            if outcome.is_ok() {
                deadline.get_or_insert_with(|| Instant::now() + GRACE);
            }
            if let Some(product) = products.get_mut(index) {
                *product = outcome;
            }
        }
    }

    /// Checks login and permissions in all vCenters. Rejected credentials are not sent again before their pause ends.
    pub(crate) async fn check_all(&self) -> Result<()> {
        let outcomes = join_all(self.vcenters.iter().map(Vcenter::check)).await;
        let names = self.vcenters.iter().map(|vcenter| vcenter.config.name.as_str());
        let failed = names.zip(outcomes).filter_map(|(name, outcome)| Some((name, outcome.err()?)));
        self.joined(failed.collect()).map_or(Ok(()), Err)
    }

    /// Joins the errors of vCenters: kind and retry advice are those of the first.
    fn joined(&self, errors: Vec<(&str, Error)>) -> Option<Error> {
        let (_, first) = errors.first()?;
        if self.vcenters.len() == 1 {
            return Some(first.clone());
        }
        let all: Vec<_> = errors.iter().map(|(name, error)| format!("vCenter {name}: {}", error.message())).collect();
        let ready = self.vcenters.len().saturating_sub(errors.len());
        let extent = match ready {
            0 => "no vCenter is ready".to_owned(),
            1 => "the other one is ready, so only Nodes on machines of the failed ones are affected".to_owned(),
            ready => format!("the other {ready} are ready, so only Nodes on machines of the failed ones are affected"),
        };
        let message = format!("{}; {extent}", all.join("; "));
        Some(Error::new(first.kind(), first.operation(), message).retry(first.retry_advice()))
    }
}

async fn product(vcenter: &Vcenter) -> Result<String> {
    vcenter.session.check_logins()?;
    let reads = async { Ok(vcenter.session.content().await?.product) };
    vcenter.guarded(CHECK_LIMIT, reads).await
}

fn no_vcenter() -> Error {
    Error::new(ErrorKind::InvalidConfig, "start", "No Virtual Center hosts defined")
}
