//! What a token says.

use std::time::Duration;

use serde_json::{Value, json};

use super::credentials::{Domain, Project, Proof, Scope};
use crate::options::Endpoint;
use crate::simulator::State;
use crate::wire::Call;
use bowline_simulator::Ids;

/// The token, as its answer shows it.
pub(super) fn token(state: &State, call: &Call, proof: &Proof, scope: &Scope) -> Value {
    let roles: Vec<Value> = state.options.roles.iter().map(|name| json!({"id": Ids::of(name), "name": name})).collect();
    let mut token = json!({
        "methods": proof.methods,
        "user": {
            "domain": domain(&proof.user.domain), "id": proof.user.id, "name": proof.user.name,
            "password_expires_at": null,
        },
        // One of this token, and one of each that it comes from.
        "audit_ids": proof.methods.iter().map(|_| "o0c67lUxQyeLnL0bKX6K4g").collect::<Vec<_>>(),
        "expires_at": state.with_micros(state.options.token_lifetime),
        "issued_at": state.with_micros(Duration::ZERO),
    });
    match scope {
        Scope::Nothing => return token,
        Scope::Domain(asked) => token["domain"] = domain(asked),
        Scope::Project(asked) => token["project"] = project(asked),
        Scope::Trust(trust, asked) => {
            token["project"] = project(asked);
            token["roles"] = state.options.roles.iter().map(|name| whole_role(name)).collect();
            let (trustee, trustor) = (json!({"id": trust.trustee}), json!({"id": trust.trustor}));
            token["OS-TRUST:trust"] =
                json!({"id": trust.id, "impersonation": false, "trustee_user": trustee, "trustor_user": trustor});
        }
    }
    if !matches!(scope, Scope::Trust(..)) {
        token["is_domain"] = json!(false);
        token["roles"] = json!(roles);
    }
    token["catalog"] = render(state, call);
    if let Some(credential) = &proof.credential {
        token["application_credential"] = json!({"id": credential.id, "name": credential.name, "restricted": true});
    }
    token
}

/// A trust tells more of its roles.
fn whole_role(name: &str) -> Value {
    json!({"id": Ids::of(name), "name": name, "domain_id": null, "description": null, "options": {"immutable": true}})
}

fn domain(domain: &Domain) -> Value {
    json!({"id": domain.id, "name": domain.name})
}

fn project(asked: &Project) -> Value {
    json!({"domain": domain(&asked.domain), "id": asked.id, "name": asked.name})
}

/// The endpoints, by service, in the order of the options.
pub(super) fn render(state: &State, call: &Call) -> Value {
    let mut services: Vec<(&str, Vec<Value>)> = Vec::new();
    for endpoint in &state.options.catalog {
        let shown = shown(call, endpoint);
        match services.iter_mut().find(|(kind, _)| *kind == endpoint.kind) {
            Some((_, endpoints)) => endpoints.push(shown),
            None => services.push((&endpoint.kind, vec![shown])),
        }
    }
    let service = |(kind, endpoints): (&str, Vec<Value>)| json!({"endpoints": endpoints, "id": Ids::of(kind), "type": kind, "name": name(kind)});
    services.into_iter().map(service).collect()
}

fn shown(call: &Call, endpoint: &Endpoint) -> Value {
    let url = match endpoint.url.contains("://") {
        true => endpoint.url.clone(),
        false => format!("{}/{}", call.origin, endpoint.url),
    };
    let id = Ids::of(&format!("{} {} {}", endpoint.kind, endpoint.interface, endpoint.region_id));
    json!({
        "id": id,
        "interface": endpoint.interface, "region_id": endpoint.region_id, "region": endpoint.region, "url": url,
    })
}

/// What the program behind a service is called.
fn name(kind: &str) -> &str {
    match kind {
        "identity" => "keystone",
        "compute" => "nova",
        "network" => "neutron",
        "load-balancer" => "octavia",
        "key-manager" => "barbican",
        other => other,
    }
}
