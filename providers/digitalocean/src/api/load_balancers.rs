//! Load balancers and certificates.

use bowline_cloud::{Effect, Result};
use http::{HeaderValue, Method, header};
use serde::{Deserialize, Serialize};

use super::{Client, Region, done, listing, nullable};

/// A load balancer, as the API returns it. Fields that the manager does not set are left out.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct LoadBalancer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ip: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ipv6: String,
    #[serde(default, rename = "type", deserialize_with = "nullable")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) network: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) network_stack: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) size: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) size_unit: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) forwarding_rules: Vec<ForwardingRule>,
    pub(crate) health_check: Option<HealthCheck>,
    pub(crate) sticky_sessions: Option<StickySessions>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) region: Region,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) droplet_ids: Vec<u64>,
    /// `None` if the API does not report tags.
    pub(crate) tags: Option<Vec<String>>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) redirect_http_to_https: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) enable_proxy_protocol: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) enable_backend_keepalive: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) vpc_uuid: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) subnet_uuid: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) disable_lets_encrypt_dns_records: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) http_idle_timeout_seconds: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) firewall: LoadBalancerFirewall,
}

/// Body of a request that creates or replaces a load balancer. A replacement sets everything that it leaves out to its default.
// upstream: which fields are left out, and the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct LoadBalancerRequest {
    pub(crate) name: String,
    pub(crate) algorithm: &'static str,
    pub(crate) region: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) size: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) size_unit: u64,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) forwarding_rules: Vec<ForwardingRule>,
    pub(crate) health_check: HealthCheck,
    pub(crate) sticky_sessions: StickySessions,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) droplet_ids: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) redirect_http_to_https: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) enable_proxy_protocol: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) enable_backend_keepalive: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) vpc_uuid: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) subnet_uuid: String,
    pub(crate) disable_lets_encrypt_dns_records: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) validate_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) http_idle_timeout_seconds: Option<u64>,
    pub(crate) firewall: LoadBalancerFirewall,
    pub(crate) network: &'static str,
    pub(crate) network_stack: &'static str,
    /// Address of a new load balancer.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) ip: String,
}

/// A forwarding rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ForwardingRule {
    pub(crate) entry_protocol: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) entry_port: u64,
    pub(crate) target_protocol: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) target_port: u64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "str::is_empty")]
    pub(crate) certificate_id: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_false")]
    pub(crate) tls_passthrough: bool,
}

/// Health check of the Droplets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HealthCheck {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "str::is_empty")]
    pub(crate) protocol: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero_i64")]
    pub(crate) port: i64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "str::is_empty")]
    pub(crate) path: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero_i64")]
    pub(crate) check_interval_seconds: i64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero_i64")]
    pub(crate) response_timeout_seconds: i64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero_i64")]
    pub(crate) healthy_threshold: i64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero_i64")]
    pub(crate) unhealthy_threshold: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxy_protocol: Option<bool>,
}

/// Session affinity by cookie.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StickySessions {
    #[serde(rename = "type", default, deserialize_with = "nullable", skip_serializing_if = "str::is_empty")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "str::is_empty")]
    pub(crate) cookie_name: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_zero_i64")]
    pub(crate) cookie_ttl_seconds: i64,
}

/// Firewall of a load balancer: entries such as `ip:192.0.2.1` and `cidr:192.0.2.0/24`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoadBalancerFirewall {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) deny: Vec<String>,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Certificate {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(rename = "type", default, deserialize_with = "nullable")]
    pub(crate) kind: String,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_zero_i64(value: &i64) -> bool {
    *value == 0
}

#[derive(Deserialize)]
struct Found {
    load_balancer: LoadBalancer,
}

#[derive(Deserialize)]
struct FoundCertificate {
    certificate: Certificate,
}

listing!(LoadBalancers, load_balancers: LoadBalancer);
listing!(Certificates, certificates: Certificate);

const PATH: &[&str] = &["v2", "load_balancers"];

impl Client {
    /// Returns the load balancer with this ID; `None` if there is none.
    pub(crate) async fn load_balancer(&self, id: &str) -> Result<Option<LoadBalancer>> {
        let found: Option<Found> = self.find("load_balancer_get", &["v2", "load_balancers", id]).await?;
        Ok(found.map(|found| found.load_balancer))
    }

    /// Returns all load balancers of the account.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>> {
        self.all::<LoadBalancers>("load_balancer_list", PATH, &[]).await
    }

    /// Creates a load balancer.
    pub(crate) async fn create_load_balancer(&self, request: &LoadBalancerRequest) -> Result<LoadBalancer> {
        let call = self.api.call("load_balancer_create", Method::POST, PATH).limited();
        Ok(call.json(request).send().await?.json::<Found>()?.load_balancer)
    }

    /// Replaces the settings of a load balancer.
    pub(crate) async fn update_load_balancer(&self, id: &str, request: &LoadBalancerRequest) -> Result<LoadBalancer> {
        let call = self.api.call("load_balancer_update", Method::PUT, &["v2", "load_balancers", id]);
        Ok(call.json(request).send().await?.json::<Found>()?.load_balancer)
    }

    /// Deletes a load balancer. Succeeds if it does not exist.
    pub(crate) async fn delete_load_balancer(&self, id: &str) -> Result<()> {
        let call = self.api.call("load_balancer_delete", Method::DELETE, &["v2", "load_balancers", id]);
        match call.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json")).send().await {
            Err(error) if error.is_not_found() => Ok(()),
            response => done(&response?),
        }
    }

    /// Lets the API validate a request for a new load balancer, or for that with this ID. Changes nothing.
    pub(crate) async fn validate_load_balancer(&self, id: Option<&str>, request: &LoadBalancerRequest) -> Result<()> {
        let call = match id {
            Some(id) => self.api.call("load_balancer_validate", Method::PUT, &["v2", "load_balancers", id]),
            None => self.api.call("load_balancer_validate", Method::POST, PATH),
        };
        done(&call.effect(Effect::Read).json(request).send().await?)
    }

    /// Returns the certificate with this ID; `None` if there is none.
    pub(crate) async fn certificate(&self, id: &str) -> Result<Option<Certificate>> {
        let found: Option<FoundCertificate> = self.find("certificate_get", &["v2", "certificates", id]).await?;
        Ok(found.map(|found| found.certificate))
    }

    /// Returns the first certificate of this name; `None` if there is none.
    pub(crate) async fn certificate_of_name(&self, name: &str) -> Result<Option<Certificate>> {
        let query = [("name", name), ("page", "1"), ("per_page", "1")];
        let call = self.api.call("certificate_list", Method::GET, &["v2", "certificates"]).query(&query);
        Ok(call.send().await?.json::<Certificates>()?.certificates.into_iter().next())
    }
}
