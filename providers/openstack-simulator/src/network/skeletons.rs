//! How Neutron's records look before anything is known of them, which also tells what fields there are.

use serde_json::{Value, json};

use crate::records::Fields;
use crate::records::{Kind, Record, object};
use crate::simulator::State;

/// A new record of the project.
pub(crate) fn new(state: &mut State, kind: Kind) -> Record {
    let mut record = of(kind);
    let date = state.clock.with_zone();
    record.set("id", state.ids.uuid());
    for field in ["tenant_id", "project_id"] {
        record.set(field, state.fixture.project.clone());
    }
    for field in ["created_at", "updated_at"] {
        record.set(field, date.clone());
    }
    record
}

/// The fields of this kind.
pub(crate) fn of(kind: Kind) -> Record {
    let mut record = match kind {
        Kind::Network => network(),
        Kind::Subnet => subnet(),
        Kind::Port => port(),
        Kind::Router => router(),
        Kind::FloatingIp => floating_ip(),
        Kind::SecurityGroup => json!({"name": "", "stateful": true, "description": "", "shared": false, "tags": [],
            "security_group_rules": []}),
        Kind::SecurityGroupRule => rule(),
        _ => Value::Null,
    };
    let common = json!({"id": "", "tenant_id": "", "project_id": "", "created_at": "", "updated_at": "",
        "revision_number": 0});
    if let (Value::Object(record), Value::Object(common)) = (&mut record, common) {
        record.extend(common);
    }
    object(record)
}

fn network() -> Value {
    json!({
        "name": "", "admin_state_up": true, "mtu": 1450, "status": "ACTIVE", "subnets": [], "shared": false,
        "availability_zone_hints": [], "availability_zones": [], "ipv4_address_scope": null, "ipv6_address_scope": null,
        "router:external": false, "description": "", "port_security_enabled": true, "tags": [],
    })
}

fn subnet() -> Value {
    json!({
        "name": "", "network_id": "", "ip_version": 4, "subnetpool_id": null, "enable_dhcp": true, "ipv6_ra_mode": null,
        "ipv6_address_mode": null, "gateway_ip": null, "cidr": "", "allocation_pools": [], "host_routes": [],
        "dns_nameservers": [], "description": "", "service_types": [], "tags": [],
    })
}

fn port() -> Value {
    json!({
        "name": "", "network_id": "", "mac_address": "", "admin_state_up": true, "status": "DOWN", "device_id": "",
        "device_owner": "", "fixed_ips": [], "allowed_address_pairs": [], "extra_dhcp_opts": [], "security_groups": [],
        "description": "", "binding:vnic_type": "normal", "port_security_enabled": true, "tags": [],
    })
}

fn router() -> Value {
    json!({
        "name": "", "admin_state_up": true, "status": "ACTIVE", "external_gateway_info": null, "description": "",
        "availability_zones": [], "availability_zone_hints": [], "routes": [], "flavor_id": null, "tags": [],
    })
}

fn floating_ip() -> Value {
    json!({
        "floating_ip_address": "", "floating_network_id": "", "router_id": null, "port_id": null,
        "fixed_ip_address": null, "status": "DOWN", "description": "", "port_details": null, "tags": [],
    })
}

fn rule() -> Value {
    json!({
        "security_group_id": "", "ethertype": "IPv4", "direction": "ingress", "protocol": null, "port_range_min": null,
        "port_range_max": null, "remote_ip_prefix": null, "remote_address_group_id": null, "normalized_cidr": null,
        "remote_group_id": null, "description": "",
    })
}
