//! Listeners of classic load balancers.

use bowline_simulator::Record;
use serde_json::{Value, json};

use super::named;
use crate::balancing::{check_certificate, check_port, list};
use crate::instances::retain;
use crate::params::{Params, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

pub(super) const CREATE: &str =
    "LoadBalancerName! Listeners.#.{Protocol!,LoadBalancerPort!,InstanceProtocol,InstancePort!,SSLCertificateId}";

/// Protocols, each with the default protocol of the instances.
const PROTOCOLS: [(&str, &str); 4] = [("TCP", "TCP"), ("SSL", "TCP"), ("HTTP", "HTTP"), ("HTTPS", "HTTP")];

pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let listeners = params.items("Listeners").iter().map(|sent| checked(state, sent));
    let listeners = listeners.collect::<Result<Vec<Value>, Failure>>()?;
    add(named(state, params)?, listeners)?;
    Ok(json!({}))
}

/// Listener as responses show it: protocols are in upper case.
pub(super) fn checked(state: &State, sent: &Value) -> Result<Value, Failure> {
    let front = text(sent, "Protocol").to_uppercase();
    let unsupported =
        |name: &str| Failure::new("UnsupportedProtocol", format!("The protocol '{name}' is not supported"));
    let (_, default) = PROTOCOLS.iter().find(|(name, _)| *name == front).ok_or_else(|| unsupported(&front))?;
    let back = match text(sent, "InstanceProtocol") {
        "" => (*default).to_owned(),
        protocol => protocol.to_uppercase(),
    };
    let layer = |protocol: &str| PROTOCOLS.iter().find(|(name, _)| *name == protocol).map(|(_, layer)| *layer);
    require(layer(&back).is_some(), || unsupported(&back))?;
    let message =
        format!("Listener protocol {front} and instance protocol {back} must be at the same internet protocol layer");
    require(layer(&back) == Some(default), || Failure::validation(message))?;
    for field in ["LoadBalancerPort", "InstancePort"] {
        check_port(text(sent, field))?;
    }
    let certificate = text(sent, "SSLCertificateId");
    let is_secure = front == "SSL" || front == "HTTPS";
    require(is_secure != certificate.is_empty(), || {
        Failure::validation("Secure Listeners need to specify a SSLCertificateId")
    })?;
    if is_secure {
        check_certificate(state, certificate)?;
    }
    let certificate = sent["SSLCertificateId"].as_str().filter(|arn| !arn.is_empty());
    Ok(json!({"Protocol": front, "LoadBalancerPort": sent["LoadBalancerPort"], "InstanceProtocol": back,
        "InstancePort": sent["InstancePort"], "SSLCertificateId": certificate}))
}

/// Adds listeners. One that exists with the same settings is left as it is.
pub(super) fn add(record: &mut Record, new: Vec<Value>) -> Result<(), Failure> {
    let mut held = list(record, "ListenerDescriptions");
    for listener in new {
        match held.iter().find(|held| held["Listener"]["LoadBalancerPort"] == listener["LoadBalancerPort"]) {
            Some(other) => {
                let port = text(&listener, "LoadBalancerPort");
                let message = format!("A listener already exists for port {port} with a different configuration");
                require(other["Listener"] == listener, || Failure::new("DuplicateListener", message))?;
            }
            None => held.push(json!({"Listener": listener, "PolicyNames": []})),
        }
    }
    record.insert("ListenerDescriptions".to_owned(), held.into());
    Ok(())
}

/// Deletes listeners, and the settings of instance ports that no listener uses any more.
pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?;
    let ports = params.texts("LoadBalancerPorts");
    retain(record, "ListenerDescriptions", |held| !ports.contains(&text(&held["Listener"], "LoadBalancerPort")));
    let left = list(record, "ListenerDescriptions");
    let is_used = |port: &Value| left.iter().any(|held| held["Listener"]["InstancePort"] == *port);
    retain(record, "BackendServerDescriptions", |backend| is_used(&backend["InstancePort"]));
    Ok(json!({}))
}
