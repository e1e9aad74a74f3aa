//! How Octavia's records look before anything is known of them, which also tells what fields there are.

use serde_json::{Value, json};

use crate::records::{Fields, Kind, Record, object};
use crate::simulator::State;

/// Fields and the minor version that brought them.
const SINCE: [(&str, u32); 9] = [
    ("timeout_client_data", 1),
    ("timeout_member_connect", 1),
    ("timeout_member_data", 1),
    ("timeout_tcp_inspect", 1),
    ("tags", 5),
    ("flavor_id", 6),
    ("allowed_cidrs", 12),
    ("availability_zone", 14),
    ("additional_vips", 26),
];

/// A new record, on which Octavia is at work.
pub(super) fn new(state: &mut State, kind: Kind) -> Record {
    let mut record = of(state, kind);
    record.set("id", state.ids.uuid());
    record.set("provisioning_status", "PENDING_CREATE");
    record.set("created_at", state.clock.without_zone());
    for field in ["project_id", "tenant_id"] {
        record.set(field, state.fixture.project.clone());
    }
    record
}

/// The fields of this kind in the version that is simulated.
pub(super) fn of(state: &State, kind: Kind) -> Record {
    let mut record = object(match kind {
        Kind::LoadBalancer => load_balancer(),
        Kind::Listener => listener(),
        Kind::Pool => pool(),
        Kind::Member => member(),
        _ => monitor(),
    });
    let common = json!({"id": "", "name": "", "provisioning_status": "", "operating_status": "OFFLINE",
        "admin_state_up": true, "project_id": "", "tenant_id": "", "created_at": "", "updated_at": null, "tags": []});
    record.extend(object(common));
    record.retain(|field, _| is_known(state, field));
    record
}

/// Whether this version has the field.
pub(super) fn is_known(state: &State, field: &str) -> bool {
    SINCE.iter().all(|(gated, since)| *gated != field || state.options.octavia_minor >= *since)
}

fn load_balancer() -> Value {
    json!({
        "description": "", "vip_address": "", "vip_port_id": "", "vip_subnet_id": null, "vip_network_id": "",
        "additional_vips": [], "listeners": [], "pools": [], "provider": "amphora", "flavor_id": null,
        "vip_qos_policy_id": null, "availability_zone": null,
    })
}

fn listener() -> Value {
    json!({
        "description": "", "protocol": "", "protocol_port": 0, "connection_limit": -1, "default_tls_container_ref": null,
        "sni_container_refs": [], "default_pool_id": null, "l7policies": [], "insert_headers": {}, "loadbalancers": [],
        "timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0, "client_ca_tls_container_ref": null, "client_authentication": "NONE",
        "client_crl_container_ref": null, "allowed_cidrs": null, "tls_ciphers": null, "tls_versions": null,
        "alpn_protocols": null,
    })
}

fn pool() -> Value {
    json!({
        "description": "", "protocol": "", "lb_algorithm": "", "session_persistence": null, "loadbalancers": [],
        "listeners": [], "healthmonitor_id": null, "members": [], "tls_container_ref": null, "ca_tls_container_ref": null,
        "crl_container_ref": null, "tls_enabled": false, "tls_ciphers": null, "tls_versions": null, "alpn_protocols": null,
    })
}

fn member() -> Value {
    json!({
        "address": "", "protocol_port": 0, "weight": 1, "backup": false, "subnet_id": null, "monitor_address": null,
        "monitor_port": null,
    })
}

fn monitor() -> Value {
    json!({
        "type": "", "delay": 0, "timeout": 0, "max_retries": 0, "max_retries_down": 3, "http_method": null,
        "url_path": null, "expected_codes": null, "pools": [], "http_version": null, "domain_name": null,
    })
}
