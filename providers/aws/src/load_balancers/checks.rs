//! What load balancers of both kinds reject, with the texts of the Go manager and in its order.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{LoadBalancerSpec, Protocol, SessionAffinity};

use super::annotations as keys;
use super::{Inputs, Kind, State};

const OPERATION: &str = "check the Service";

/// Attributes of target groups that a Service may set.
const PRESERVE_CLIENT_IP: &str = "preserve_client_ip.enabled";
const PROXY_PROTOCOL_V2: &str = "proxy_protocol_v2.enabled";

/// Rejects a Service whose load balancer is of the other kind: AWS cannot convert it.
pub(super) fn kind_is_unchanged(kind: Kind, state: &State) -> Result<()> {
    let text = match kind {
        Kind::Network if state.classic.is_some() && state.network.is_none() => "NLB",
        Kind::Classic if state.network.is_some() && state.classic.is_none() => "Classic Load Balancer",
        _ => return Ok(()),
    };
    let key = keys::TYPE.key;
    Err(invalid(format!("cannot update Load Balancer Type annotation {key:?} after creation for {text}")))
}

/// Rejects annotations that the kind does not have, and invalid attributes of target groups.
pub(super) fn annotations(kind: Kind, inputs: &Inputs<'_>) -> Result<()> {
    let has = |key: &str| inputs.values.0.contains_key(key);
    if kind == Kind::Network && has(keys::EXTRA_SECURITY_GROUPS.key) {
        let key = keys::EXTRA_SECURITY_GROUPS.key;
        return Err(invalid(format!("BYO extra security group annotation {key:?} is not supported by NLB")));
    }
    let Some(text) = inputs.values.text(&keys::TARGET_GROUP_ATTRIBUTES) else { return Ok(()) };
    if kind == Kind::Classic {
        return Err(invalid("target group attributes annotation is only supported for NLB"));
    }
    let has_udp = inputs.spec.ports.iter().any(|port| port.protocol == Protocol::Udp);
    target_group_attributes(text, has_udp)
        .map_err(|message| invalid(format!("error validating target group attributes: {message}")))
}

fn target_group_attributes(text: &str, has_udp: bool) -> std::result::Result<(), String> {
    for (key, value) in keys::pairs(text) {
        match (key.as_str(), value.as_str()) {
            (_, "") => return Err(format!("attribute value is empty for {key:?}")),
            (PRESERVE_CLIENT_IP, "false") if has_udp => {
                return Err("client IP preservation can't be disabled for UDP ports".to_owned());
            }
            (PRESERVE_CLIENT_IP | PROXY_PROTOCOL_V2, "true" | "false") => {}
            (PRESERVE_CLIENT_IP | PROXY_PROTOCOL_V2, _) => {
                return Err(format!("invalid attribute value for {key:?}: {value}"));
            }
            _ => return Err(format!("the attribute {key:?} is not supported by the controller or is invalid")),
        }
    }
    Ok(())
}

/// Rejects fields that no load balancer of the kind supports.
pub(super) fn spec(kind: Kind, spec: &LoadBalancerSpec) -> Result<()> {
    if let SessionAffinity::ClientIp { .. } = spec.session_affinity {
        return Err(invalid("unsupported load balancer affinity: ClientIP"));
    }
    let Some(first) = spec.ports.first() else { return Err(invalid("requested load balancer with no ports")) };
    if spec.ports.iter().any(|port| port.protocol != first.protocol) {
        return Err(invalid("mixed protocol is not supported for LoadBalancer"));
    }
    match (kind, first.protocol) {
        (_, Protocol::Tcp) | (Kind::Network, Protocol::Udp) => Ok(()),
        (_, protocol) => Err(invalid(format!("Protocol {protocol} not supported by LoadBalancer"))),
    }
}

/// Rejects a requested address. The plan of each kind checks it after the settings of the ports.
pub(super) fn requested_address(spec: &LoadBalancerSpec) -> Result<()> {
    match spec.requested_address {
        Some(_) => Err(invalid("LoadBalancerIP cannot be specified for AWS ELB")),
        None => Ok(()),
    }
}

/// Creates an error for an invalid Service.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, OPERATION, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_target_groups_are_checked_as_upstream_does() {
        for (text, has_udp, expected) in [
            ("preserve_client_ip.enabled=true, proxy_protocol_v2.enabled=false ", false, Ok(())),
            ("", false, Ok(())),
            ("preserve_client_ip.enabled=false", false, Ok(())),
            ("preserve_client_ip.enabled=false", true, Err("client IP preservation can't be disabled for UDP ports")),
            ("proxy_protocol_v2.enabled=", false, Err("attribute value is empty for \"proxy_protocol_v2.enabled\"")),
            (
                "deregistration_delay.timeout_seconds=3",
                false,
                Err(
                    "the attribute \"deregistration_delay.timeout_seconds\" is not supported by the controller or is invalid",
                ),
            ),
            (
                "preserve_client_ip.enabled=True",
                false,
                Err("invalid attribute value for \"preserve_client_ip.enabled\": True"),
            ),
        ] {
            assert_eq!(target_group_attributes(text, has_udp), expected.map_err(str::to_owned), "{text:?}");
        }
    }
}
