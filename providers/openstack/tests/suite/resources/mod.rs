//! Load balancer resources of a project in the terms of the conformance suite. Benches for the real and the simulated services pass
//! the records of the services.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bowline_conformance::{SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource, SeenTarget};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{LoadBalancerKey, Protocol, SessionAffinity};
use ipnet::IpNet;
use serde_json::{Value, json};

/// Octavia's default timeout for idle clients in milliseconds.
const DEFAULT_TIMEOUT: u64 = 50_000;

/// All load balancer resources of a project, as records of the services.
pub(crate) struct ProjectResources {
    pub(crate) balancers: Vec<Value>,
    pub(crate) listeners: Vec<Value>,
    pub(crate) pools: Vec<Value>,
    pub(crate) monitors: Vec<Value>,
    /// By pool ID.
    pub(crate) members: BTreeMap<String, Vec<Value>>,
    pub(crate) floating_ips: Vec<Value>,
    pub(crate) security_groups: Vec<Value>,
    pub(crate) ports: Vec<Value>,
}

/// Returns the name and tag of a Service's resources.
pub(crate) fn mark(key: &LoadBalancerKey) -> String {
    format!("kube_service_{}_{}_{}", key.cluster, key.namespace, key.service)
}

/// Returns the owner of a name or tag; names in the suite have no underscore.
fn owner_of_mark(mark: &str) -> Option<LoadBalancerKey> {
    let mut parts = mark.strip_prefix("kube_service_")?.splitn(3, '_').map(str::to_owned);
    let (cluster, namespace, service) = (parts.next()?, parts.next()?, parts.next()?);
    Some(LoadBalancerKey { cluster: cluster.as_str().into(), namespace, service, uid: String::new() })
}

/// Returns the owner of a description: `… default/web … cluster kubernetes`.
fn owner_of_description(description: &str) -> Option<LoadBalancerKey> {
    let words: Vec<&str> = description.split(' ').collect();
    let (namespace, service) = words.iter().find_map(|word| word.split_once('/'))?;
    let cluster = words.last().filter(|_| description.contains(" cluster "))?;
    let (namespace, service) = (namespace.to_owned(), service.to_owned());
    Some(LoadBalancerKey { cluster: (*cluster).into(), namespace, service, uid: String::new() })
}

fn owners_by_tag(record: &Value) -> Vec<LoadBalancerKey> {
    list(&record["tags"]).iter().filter_map(|tag| owner_of_mark(tag.as_str()?)).collect()
}

/// Returns a summary without fields that the services change by themselves, without marks, which descriptions are, and without
/// fields that are compared elsewhere.
fn summary(record: &Value) -> String {
    const IGNORED: [&str; 13] = [
        "description",
        "created_at",
        "updated_at",
        "revision_number",
        "operating_status",
        "provisioning_status",
        "status",
        "tags",
        "id",
        "name",
        "listeners",
        "pools",
        "security_group_rules",
    ];
    let mut record = record.clone();
    if let Some(fields) = record.as_object_mut() {
        fields.retain(|field, _| !IGNORED.contains(&field.as_str()));
    }
    record.to_string()
}

/// Names of load balancers and groups are marks, which a release removes; an adoption may use the ID as well.
fn name(kind: &str, record: &Value) -> String {
    match kind {
        "loadbalancer" => text(&record["id"]),
        "security-group" => String::new(),
        _ => text(&record["name"]),
    }
}

impl ProjectResources {
    fn listener(&self, id: &Value) -> Option<&Value> {
        self.listeners.iter().find(|listener| listener["id"] == *id)
    }

    fn pool_owners(&self, pool: &Value) -> Vec<LoadBalancerKey> {
        let above = list(&pool["listeners"]).iter().filter_map(|one| self.listener(&one["id"]));
        above.flat_map(owners_by_tag).collect()
    }

    fn pool(&self, id: &str) -> Option<&Value> {
        self.pools.iter().find(|pool| pool["id"] == id)
    }

    pub(crate) fn resources(&self) -> Vec<SeenResource> {
        let seen = |kind: &str, record: &Value, owners, summary| SeenResource {
            kind: kind.to_owned(),
            id: text(&record["id"]),
            name: name(kind, record),
            owners,
            summary,
        };
        let mut all = Vec::new();
        for one in &self.balancers {
            all.push(seen("loadbalancer", one, owners_by_tag(one), summary(one)));
        }
        for one in &self.listeners {
            all.push(seen("listener", one, owners_by_tag(one), summary(one)));
        }
        for one in &self.pools {
            all.push(seen("pool", one, self.pool_owners(one), summary(one)));
        }
        for one in &self.monitors {
            let pools = list(&one["pools"]).iter().filter_map(|pool| self.pool(pool["id"].as_str()?));
            all.push(seen("healthmonitor", one, pools.flat_map(|pool| self.pool_owners(pool)).collect(), summary(one)));
        }
        for (pool, members) in &self.members {
            let owners = self.pool(pool).map(|pool| self.pool_owners(pool)).unwrap_or_default();
            all.extend(members.iter().map(|one| seen("member", one, owners.clone(), summary(one))));
        }
        for one in &self.floating_ips {
            let owners = owner_of_description(&text(&one["description"])).into_iter().collect();
            all.push(seen("floatingip", one, owners, summary(one)));
        }
        for one in self.security_groups.iter().filter(|group| group["name"] != "default") {
            let owners = owner_of_description(&text(&one["description"])).into_iter().collect();
            all.push(seen("security-group", one, owners, self.group_summary(one)));
        }
        all
    }

    /// Returns a group with its rules and ports.
    fn group_summary(&self, group: &Value) -> String {
        let mut rules: Vec<String> = list(&group["security_group_rules"]).iter().map(summary).collect();
        rules.sort();
        let has_group = |port: &&Value| list(&port["security_groups"]).contains(&group["id"]);
        let mut ports: Vec<String> = self.ports.iter().filter(has_group).map(|port| text(&port["id"])).collect();
        ports.sort();
        format!("{} {rules:?} {ports:?}", summary(group))
    }
}

fn layer_four(protocol: &str) -> Protocol {
    match protocol {
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

impl ProjectResources {
    pub(crate) fn balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let mark = mark(key);
        let balancer = self.balancers.iter().find(|one| list(&one["tags"]).contains(&json!(mark)))?;
        let on_it = |one: &&Value| list(&one["loadbalancers"]).iter().any(|above| above["id"] == balancer["id"]);
        let listeners: Vec<&Value> = self.listeners.iter().filter(on_it).collect();
        let ours: Vec<&Value> = listeners.into_iter().filter(|one| list(&one["tags"]).contains(&json!(mark))).collect();
        let first = *ours.first()?;
        let floating = self.floating_ips.iter().find(|ip| ip["port_id"] == balancer["vip_port_id"]);
        let inside: IpAddr = text(&balancer["vip_address"]).parse().ok()?;
        let address = floating.and_then(|ip| text(&ip["floating_ip_address"]).parse().ok()).unwrap_or(inside);
        let pool = self.pool(first["default_pool_id"].as_str()?)?;
        Some(SeenLoadBalancer {
            id: text(&balancer["id"]),
            name: name("loadbalancer", balancer),
            addresses: vec![address],
            listeners: ours.iter().map(|one| self.seen_listener(one)).collect(),
            targets: self.targets(&ours),
            source_ranges: ranges(first),
            affinity: Some(affinity(pool)),
            health_check: self.health_check(pool),
            proxy_protocol: match pool["protocol"].as_str() {
                Some("PROXY") => Some(ProxyProtocol::V1),
                Some("PROXYV2") => Some(ProxyProtocol::V2),
                _ => None,
            },
            idle_timeout: first["timeout_client_data"]
                .as_u64()
                .filter(|millis| *millis != DEFAULT_TIMEOUT)
                .map(Duration::from_millis),
            // Floating IPs are IPv4 only: an internal load balancer looks like an external one.
            internal: inside.is_ipv4().then_some(floating.is_none()),
        })
    }

    fn members_of(&self, listener: &Value) -> &[Value] {
        let members = listener["default_pool_id"].as_str().and_then(|pool| self.members.get(pool));
        members.map_or(&[], Vec::as_slice)
    }

    fn seen_listener(&self, listener: &Value) -> SeenListener {
        let port = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
        SeenListener {
            protocol: layer_four(&text(&listener["protocol"])),
            port: port(&listener["protocol_port"]).unwrap_or_default(),
            node_port: self.members_of(listener).first().and_then(|member| port(&member["protocol_port"])),
        }
    }

    /// Returns the servers behind all listeners; one that a listener lacks is not behind the load balancer.
    fn targets(&self, listeners: &[&Value]) -> Vec<SeenTarget> {
        let mut machines: Option<Vec<String>> = None;
        for listener in listeners {
            let mut here: Vec<String> =
                self.members_of(listener).iter().filter_map(|member| self.machine(&member["address"])).collect();
            here.sort();
            machines = Some(match machines {
                None => here,
                Some(before) => before.into_iter().filter(|machine| here.contains(machine)).collect(),
            });
        }
        machines.unwrap_or_default().into_iter().map(|machine| SeenTarget { machine, draining: false }).collect()
    }

    /// Returns the server with this address.
    fn machine(&self, address: &Value) -> Option<String> {
        let has = |port: &&Value| list(&port["fixed_ips"]).iter().any(|ip| ip["ip_address"] == *address);
        self.ports.iter().find(has).map(|port| text(&port["device_id"]))
    }

    fn health_check(&self, pool: &Value) -> Option<SeenHealthCheck> {
        let monitor = self.monitors.iter().find(|monitor| monitor["id"] == pool["healthmonitor_id"])?;
        // Without members, no port is probed.
        let member = self.members.get(pool["id"].as_str()?).and_then(|members| members.first());
        let port = member.and_then(|member| member["monitor_port"].as_u64().or(member["protocol_port"].as_u64()));
        (monitor["type"] == "HTTP").then(|| SeenHealthCheck {
            path: text(&monitor["url_path"]),
            port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
            interval: monitor["delay"].as_u64().map(Duration::from_secs),
        })
    }
}

fn ranges(listener: &Value) -> Vec<IpNet> {
    let unrestricted = ["0.0.0.0/0", "::/0"];
    let ranges = list(&listener["allowed_cidrs"]).iter().filter_map(Value::as_str);
    ranges.filter(|range| !unrestricted.contains(range)).filter_map(|range| range.parse().ok()).collect()
}

fn affinity(pool: &Value) -> SessionAffinity {
    match pool["session_persistence"]["type"].as_str() {
        // Octavia has no timeout; the suite uses the default of Kubernetes.
        Some("SOURCE_IP") => SessionAffinity::ClientIp { timeout_seconds: 10800 },
        _ => SessionAffinity::None,
    }
}

/// Returns a text; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a list; empty if it is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
