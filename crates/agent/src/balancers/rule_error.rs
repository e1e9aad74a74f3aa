//! Reasons why a call on load balancers is rejected.

use std::net::IpAddr;

use bowline_agent_client::OwnerName;
use bowline_core::{LoadBalancerKey, Protocol};

/// Maximum length of names, as in Kubernetes.
pub const MAX_NAME_LENGTH: usize = 253;

/// Reason why a call on load balancers and addresses is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The load balancer does not exist.
    #[error("there is no load balancer {0:?}")]
    NoSuchBalancer(String),
    /// The address does not exist.
    #[error("there is no address {0:?}")]
    NoSuchAddress(String),
    /// A load balancer with that name exists.
    #[error("the load balancer {0:?} already exists and belongs to {owner}", owner = OwnerName(.1.as_ref()))]
    NameTaken(String, Option<LoadBalancerKey>),
    /// The load balancer belongs to another owner.
    #[error("the load balancer {0:?} belongs to {owner}", owner = OwnerName(.1.as_ref()))]
    Foreign(String, Option<LoadBalancerKey>),
    /// The address belongs to another owner.
    #[error("the address {0} belongs to {owner}", owner = OwnerName(.1.as_ref()))]
    AddressTaken(IpAddr, Option<LoadBalancerKey>),
    /// Another load balancer uses the port.
    #[error("port {2}/{1} of {0} is in use by {owner}", owner = OwnerName(.3.as_ref()))]
    PortTaken(IpAddr, Protocol, u16, Option<LoadBalancerKey>),
    /// A load balancer uses the address.
    #[error("the address {0} is in use by the load balancer {1:?}; delete the load balancer first")]
    InUse(String, String),
    /// The resources have changed since the caller read them.
    #[error("{0}")]
    Changed(String),
    /// The pool is exhausted.
    #[error("{0}")]
    Exhausted(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

impl RuleError {
    /// HTTP status of the response.
    pub fn status(&self) -> u16 {
        match self {
            RuleError::NoSuchBalancer(_) | RuleError::NoSuchAddress(_) => 404,
            RuleError::NameTaken(..) | RuleError::Foreign(..) | RuleError::AddressTaken(..) => 409,
            RuleError::PortTaken(..) | RuleError::InUse(..) | RuleError::Changed(_) => 409,
            RuleError::Exhausted(_) => 507,
            RuleError::Invalid(_) => 400,
        }
    }

    /// Code in the body of the response.
    pub fn code(&self) -> &'static str {
        match self {
            RuleError::NoSuchBalancer(_) => "no_such_balancer",
            RuleError::NoSuchAddress(_) => "no_such_address",
            RuleError::NameTaken(..) => "name_taken",
            RuleError::Foreign(..) => "foreign",
            RuleError::AddressTaken(..) => "address_taken",
            RuleError::PortTaken(..) => "port_taken",
            RuleError::InUse(..) => "in_use",
            RuleError::Changed(_) => "changed",
            RuleError::Exhausted(_) => "exhausted",
            RuleError::Invalid(_) => "invalid",
        }
    }
}

/// Validates a name.
pub fn check_name(name: &str) -> Result<(), RuleError> {
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || name.chars().any(char::is_control) {
        let message = format!("the name {name:?} must have 1 to {MAX_NAME_LENGTH} printable characters");
        return Err(RuleError::Invalid(message));
    }
    Ok(())
}
