//! Creates the initial objects of a cluster.

use serde_json::{Value, json};

use crate::auth::{self, User};
use crate::resources::{self, WriteCx};
use crate::schema;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::value::Json;
use crate::verbs::create_object;

/// Creates the initial objects through the regular create path.
pub(crate) fn run(state: &State, client_ca: &str) -> ApiResult<()> {
    let user = User {
        name: "system:apiserver".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..User::default()
    };
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        create(state, &user, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
    }
    for object in auth::bootstrap_objects() {
        create(state, &user, object)?;
    }
    create(state, &user, authentication_config(client_ca))?;
    create(state, &user, kubernetes_service(state))?;
    if let Some(slice) = kubernetes_endpoint_slice(state) {
        create(state, &user, slice)?;
    }
    Ok(())
}

fn create(state: &State, user: &User, object: Value) -> ApiResult<()> {
    let (api_version, kind) = (object.text("apiVersion").to_owned(), object.text("kind").to_owned());
    let Some(resource) = resources::find_kind(&api_version, &kind) else {
        return Err(ApiError::plain(format!("no resource is called {kind} in {api_version}")));
    };
    let mut decoded = schema::decode(resource.type_id(), &object).map_err(|e| ApiError::plain(e.to_string()))?.value;
    decoded.put("apiVersion", api_version);
    decoded.put("kind", kind);
    let namespace = object.text("metadata.namespace");
    let write =
        WriteCx { state, resource, subresource: None, namespace, user, manager: "kube-apiserver", dry_run: false };
    create_object(&write, decoded, false, &mut Vec::new()).map(|_| ())
}

/// The ConfigMap from which Go servers with delegated authentication read the client CA.
fn authentication_config(client_ca: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": client_ca},
    })
}

fn kubernetes_service(state: &State) -> Value {
    let address = state.options.kubernetes_address();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address.to_string(),
            "clusterIPs": [address.to_string()],
            "ports": [{"name": "https", "port": 443, "targetPort": port(state), "protocol": "TCP"}],
        },
    })
}

fn port(state: &State) -> u16 {
    state.address.rsplit(':').next().and_then(|p| p.parse().ok()).unwrap_or(443)
}

/// The EndpointSlice of the `kubernetes` Service. A slice cannot contain a loopback address, so there is none then.
fn kubernetes_endpoint_slice(state: &State) -> Option<Value> {
    let address: std::net::SocketAddr = state.address.parse().ok()?;
    if address.ip().is_loopback() || address.ip().is_unspecified() {
        return None;
    }
    Some(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    }))
}
