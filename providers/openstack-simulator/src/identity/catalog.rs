//! Contents of a token, with the service catalog.

use std::time::Duration;

use serde_json::{Value, json};

use super::credentials::{Caller, Domain, Project, Scope};
use crate::options::Endpoint;
use crate::simulator::State;
use crate::wire::Call;
use bowline_simulator::Ids;

/// Renders a token.
pub(super) fn token(state: &State, call: &Call, caller: &Caller, scope: &Scope) -> Value {
    let roles: Vec<Value> = state.options.roles.iter().map(|name| json!({"id": Ids::of(name), "name": name})).collect();
    let mut token = json!({
        "methods": caller.methods,
        "user": {
            "domain": domain(&caller.user.domain), "id": caller.user.id, "name": caller.user.name,
            "password_expires_at": null,
        },
        // One for this token, and one for each token that it was derived from.
        "audit_ids": caller.methods.iter().map(|_| "o0c67lUxQyeLnL0bKX6K4g").collect::<Vec<_>>(),
        "expires_at": state.with_micros(state.options.token_lifetime),
        "issued_at": state.with_micros(Duration::ZERO),
    });
    match scope {
        Scope::Unscoped => return token,
        Scope::Domain(scope) => token["domain"] = domain(scope),
        Scope::Project(scope) => token["project"] = project(scope),
        Scope::Trust(trust, scope) => {
            token["project"] = project(scope);
            token["roles"] = state.options.roles.iter().map(|name| detailed_role(name)).collect();
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
    if let Some(credential) = &caller.credential {
        token["application_credential"] = json!({"id": credential.id, "name": credential.name, "restricted": true});
    }
    token
}

/// Role with all fields, as in a trust-scoped token.
fn detailed_role(name: &str) -> Value {
    json!({"id": Ids::of(name), "name": name, "domain_id": null, "description": null, "options": {"immutable": true}})
}

fn domain(domain: &Domain) -> Value {
    json!({"id": domain.id, "name": domain.name})
}

fn project(project: &Project) -> Value {
    json!({"domain": domain(&project.domain), "id": project.id, "name": project.name})
}

/// Renders the catalog: endpoints by service, in the order of the options.
pub(super) fn render(state: &State, call: &Call) -> Value {
    let mut services: Vec<(&str, Vec<Value>)> = Vec::new();
    for endpoint in &state.options.catalog {
        let view = endpoint_view(call, endpoint);
        match services.iter_mut().find(|(kind, _)| *kind == endpoint.kind) {
            Some((_, endpoints)) => endpoints.push(view),
            None => services.push((&endpoint.kind, vec![view])),
        }
    }
    let service = |(kind, endpoints): (&str, Vec<Value>)| json!({"endpoints": endpoints, "id": Ids::of(kind), "type": kind, "name": name(kind)});
    services.into_iter().map(service).collect()
}

fn endpoint_view(call: &Call, endpoint: &Endpoint) -> Value {
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

/// Name of the OpenStack project behind a service type.
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
