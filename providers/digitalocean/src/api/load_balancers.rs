//! Load balancers and certificates.

use bowline_cloud::{Effect, Result};
use bowline_http::omit_empty;
use http::{HeaderValue, Method, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Client;

/// A load balancer, as the API returns it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct LoadBalancer {
    pub(crate) id: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) ip: String,
    #[serde(default)]
    pub(crate) ipv6: String,
    #[serde(flatten)]
    pub(crate) settings: LoadBalancerSettings,
}

/// Body of a request that creates or replaces a load balancer. A replacement sets everything that it leaves out to its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct LoadBalancerRequest {
    pub(crate) region: String,
    /// Address of a new load balancer.
    pub(crate) ip: String,
    pub(crate) validate_only: bool,
    #[serde(flatten)]
    pub(crate) settings: LoadBalancerSettings,
}

/// Settings of a load balancer, without those that the manager does not set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancerSettings {
    pub(crate) name: String,
    pub(crate) algorithm: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) network: String,
    pub(crate) network_stack: String,
    pub(crate) size: String,
    pub(crate) size_unit: u64,
    pub(crate) forwarding_rules: Vec<ForwardingRule>,
    pub(crate) health_check: HealthCheck,
    pub(crate) sticky_sessions: StickySessions,
    pub(crate) droplet_ids: Vec<u64>,
    pub(crate) tags: Vec<String>,
    pub(crate) redirect_http_to_https: bool,
    pub(crate) enable_proxy_protocol: bool,
    pub(crate) enable_backend_keepalive: bool,
    pub(crate) vpc_uuid: String,
    pub(crate) subnet_uuid: String,
    pub(crate) disable_lets_encrypt_dns_records: bool,
    pub(crate) http_idle_timeout_seconds: Option<u64>,
    pub(crate) firewall: LoadBalancerFirewall,
}

/// A forwarding rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ForwardingRule {
    pub(crate) entry_protocol: String,
    pub(crate) entry_port: u64,
    pub(crate) target_protocol: String,
    pub(crate) target_port: u64,
    pub(crate) certificate_id: String,
    pub(crate) tls_passthrough: bool,
}

/// Health check of the Droplets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HealthCheck {
    pub(crate) protocol: String,
    pub(crate) port: i64,
    pub(crate) path: String,
    pub(crate) check_interval_seconds: i64,
    pub(crate) response_timeout_seconds: i64,
    pub(crate) healthy_threshold: i64,
    pub(crate) unhealthy_threshold: i64,
    pub(crate) proxy_protocol: Option<bool>,
}

/// Session affinity by cookie.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StickySessions {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) cookie_name: String,
    pub(crate) cookie_ttl_seconds: i64,
}

/// Firewall of a load balancer: entries such as `ip:192.0.2.1` and `cidr:192.0.2.0/24`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancerFirewall {
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
}

/// A certificate.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Certificate {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
}

/// Fields that are sent although they are false or zero.
const ALWAYS_SENT: [&str; 3] = ["disable_lets_encrypt_dns_records", "proxy_protocol", "http_idle_timeout_seconds"];

impl LoadBalancerRequest {
    /// Returns the body of the request.
    // upstream: false, 0, an empty text and an empty list are left out, an empty object is not.
    pub(crate) fn to_body(&self) -> Value {
        omit_empty(serde_json::to_value(self).unwrap_or_default(), &ALWAYS_SENT)
    }
}

impl Client {
    /// Returns the load balancer with this ID; `None` if there is none.
    pub(crate) async fn load_balancer(&self, id: &str) -> Result<Option<LoadBalancer>> {
        self.find("load_balancer_get", &["v2", "load_balancers", id], "load_balancer").await
    }

    /// Returns all load balancers of the account.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>> {
        let all = self.all("load_balancer_list", "load_balancers", &[]).await;
        all.map_err(|error| error.during("failed to list load-balancers"))
    }

    /// Creates a load balancer.
    pub(crate) async fn create_load_balancer(&self, request: &LoadBalancerRequest) -> Result<LoadBalancer> {
        let call = self.write("load_balancer_create", "load_balancers", None).limited();
        call.json(&request.to_body()).send().await?.field("load_balancer")
    }

    /// Replaces the settings of a load balancer.
    pub(crate) async fn update_load_balancer(&self, id: &str, request: &LoadBalancerRequest) -> Result<LoadBalancer> {
        let call = self.write("load_balancer_update", "load_balancers", Some(id));
        call.json(&request.to_body()).send().await?.field("load_balancer")
    }

    /// Deletes a load balancer. Succeeds if it does not exist.
    pub(crate) async fn delete_load_balancer(&self, id: &str) -> Result<()> {
        let call = self.api.call("load_balancer_delete", Method::DELETE, &["v2", "load_balancers", id]);
        let call = call.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        call.find().await?.map_or(Ok(()), |response| response.without_result())
    }

    /// Lets the API validate a request for a new load balancer, or for that with this ID. Changes nothing.
    pub(crate) async fn validate_load_balancer(&self, id: Option<&str>, request: &LoadBalancerRequest) -> Result<()> {
        let call = self.write("load_balancer_validate", "load_balancers", id).effect(Effect::Read);
        call.json(&request.to_body()).send().await?.without_result()
    }

    /// Returns the certificate with this ID; `None` if there is none.
    pub(crate) async fn certificate(&self, id: &str) -> Result<Option<Certificate>> {
        self.find("certificate_get", &["v2", "certificates", id], "certificate").await
    }

    /// Returns the first certificate of this name; `None` if there is none.
    pub(crate) async fn certificate_of_name(&self, name: &str) -> Result<Option<Certificate>> {
        let response = self.first("certificate_list", "certificates", &[("name", name)]).await?;
        Ok(response.field::<Vec<Certificate>>("certificates")?.into_iter().next())
    }
}
