//! Start, and everything that `bowline check` verifies.

use bowline_cloud::{CheckResult, Error, ErrorKind, Facts, Quota, Result, Retry};
use http::Method;

use crate::api::Account;
use crate::{DigitalOcean, NAME};

const REGION: &str = "failed to determine region";

/// Lists that the manager reads: name of the call, resource, and scope of the token that it needs.
const LISTS: [(&str, &str, &str); 3] = [
    ("droplet_list", "droplets", "droplet:read"),
    ("load_balancer_list", "load_balancers", "load_balancer:read"),
    ("certificate_list", "certificates", "certificate:read"),
];

impl DigitalOcean {
    /// Determines the region. Logs warnings of the configuration.
    pub(crate) async fn start_up(&self) -> Result<Facts> {
        self.config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let region = self.find_region().await?;
        self.set_region(&region);
        let details = [("vpc", &self.config.keys.vpc_id), ("cluster ID", &self.config.keys.cluster_id)];
        let details = details.into_iter().filter(|(_, value)| !value.is_empty());
        let details = details.map(|(name, value)| (name, value.clone())).collect();
        // upstream: a cluster ID is never required.
        Ok(Facts { region: Some(region), cluster_id: Some(NAME.to_owned()), details, ..Facts::default() })
    }

    /// Returns the configured region, which must exist, or that of this Droplet.
    async fn find_region(&self) -> Result<String> {
        let region = self.config.keys.region.as_str();
        if region.is_empty() {
            return self.metadata_region().await;
        }
        let regions = self.client.regions().await;
        let regions = regions.map_err(|error| {
            error.during(format!("{REGION}: failed to determine if region is valid: regions list request failed"))
        })?;
        let known: Vec<_> = regions.iter().map(|region| region.slug.as_str()).collect();
        if known.contains(&region) {
            return Ok(region.to_owned());
        }
        let message = format!("invalid region specified: {region}; set REGION to one of {}", known.join(", "));
        Err(Error::new(ErrorKind::InvalidConfig, REGION, message).retry(Retry::Backoff))
    }

    async fn metadata_region(&self) -> Result<String> {
        let call = self.metadata.call("region_get", Method::GET, &["metadata", "v1", "region"]);
        let explained = |error: Error| {
            let message = match error.status() {
                Some(status) => format!("droplet metadata returned non-200 status code: {status}; set REGION"),
                None => format!("{}; set REGION outside a Droplet", error.message()),
            };
            Error::new(ErrorKind::Unavailable, REGION, message)
        };
        Ok(call.send().await.map_err(explained)?.text()?.to_owned())
    }

    /// Checks everything that the configuration names. If the token is rejected, reports only that.
    pub(crate) async fn diagnose_all(&self) -> Vec<CheckResult> {
        self.config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let account = self.client.account().await;
        let is_rejected = account.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unauthenticated);
        let mut results = vec![CheckResult::new("token", account.and_then(described_account))];
        if is_rejected {
            return results;
        }
        let firewall = self.config.firewall.as_ref().map(|_| ("firewall_list", "firewalls", "firewall:read"));
        for (call, resource, scope) in LISTS.into_iter().chain(firewall) {
            results.push(self.diagnose_scope(call, resource, scope).await);
        }
        results.push(CheckResult::new("region", self.find_region().await.map(|region| format!("it is {region}"))));
        if !self.config.keys.vpc_id.is_empty() {
            results.push(CheckResult::new("VPC", self.diagnose_vpc().await));
        }
        if let Some(firewall) = &self.config.firewall {
            let found = self.client.firewall_of_name(&firewall.name).await;
            results.push(CheckResult::new(
                "firewall",
                found.map(|found| described_firewall(&firewall.name, found.is_some())),
            ));
        }
        results
    }

    async fn diagnose_scope(&self, call: &'static str, resource: &str, scope: &str) -> CheckResult {
        let outcome = self.client.probe(call, resource).await.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => error.context("scope needed", scope.to_owned()),
            _ => error,
        });
        CheckResult::new(format!("scope {scope}"), outcome.map(|()| "the token has it".to_owned()))
    }

    async fn diagnose_vpc(&self) -> Result<String> {
        let id = &self.config.keys.vpc_id;
        let invalid = |message| Err(Error::new(ErrorKind::InvalidConfig, "read the VPC", message));
        let Some(vpc) = self.client.vpc(id).await? else {
            return invalid(format!("there is no VPC {id}; set DO_CLUSTER_VPC_ID"));
        };
        let region = self.find_region().await.unwrap_or_default();
        match region.is_empty() || vpc.region == region {
            true => Ok(format!("it is {:?} in {}", vpc.name, vpc.region)),
            false => invalid(format!(
                "the VPC {:?} is in {}, and load balancers are created in {region}",
                vpc.name, vpc.region
            )),
        }
    }

    /// Returns the number of Droplets and its limit.
    pub(crate) async fn limits(&self) -> Result<Vec<Quota>> {
        let limit = self.client.account().await?.droplet_limit;
        Ok(match limit {
            0 => Vec::new(),
            _ => vec![Quota { resource: "droplets".to_owned(), used: self.client.count_droplets().await?, limit }],
        })
    }
}

fn described_account(account: Account) -> Result<String> {
    match account.status.as_str() {
        "" | "active" => Ok("the API accepts it".to_owned()),
        status => {
            let message = format!("the account is {status}: {}", account.status_message);
            Err(Error::new(ErrorKind::PermissionDenied, "read the account", message.trim_end_matches(": ").to_owned()))
        }
    }
}

fn described_firewall(name: &str, exists: bool) -> String {
    match exists {
        true => format!("{name} exists"),
        false => format!("{name} does not exist yet; the manager creates it"),
    }
}
