//! What a project has for balancers, in the words of the behaviour suite. Whoever reads it, from real services or from
//! simulated ones, hands it over as the services show it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bowline_conformance::{SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource, SeenTarget};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{LoadBalancerKey, Protocol, SessionAffinity};
use ipnet::IpNet;
use serde_json::{Value, json};

/// What Octavia waits for a silent client when nobody says otherwise, in milliseconds.
const USUAL_TIMEOUT: u64 = 50_000;

/// All that a project has for balancers, as the services show it.
pub(crate) struct Everything {
    pub(crate) balancers: Vec<Value>,
    pub(crate) listeners: Vec<Value>,
    pub(crate) pools: Vec<Value>,
    pub(crate) monitors: Vec<Value>,
    /// By the ID of their pool.
    pub(crate) members: BTreeMap<String, Vec<Value>>,
    pub(crate) floating_ips: Vec<Value>,
    pub(crate) security_groups: Vec<Value>,
    pub(crate) ports: Vec<Value>,
}

/// The name that everything of this Service goes by.
pub(crate) fn mark(key: &LoadBalancerKey) -> String {
    format!("kube_service_{}_{}_{}", key.cluster, key.namespace, key.service)
}

/// Whom a mark names; the suite's names have no underscore in them.
fn marked(mark: &str) -> Option<LoadBalancerKey> {
    let mut parts = mark.strip_prefix("kube_service_")?.splitn(3, '_').map(str::to_owned);
    let (cluster, namespace, service) = (parts.next()?, parts.next()?, parts.next()?);
    Some(LoadBalancerKey { cluster: cluster.as_str().into(), namespace, service, uid: String::new() })
}

/// Whom a description names: `… default/web … cluster kubernetes`.
fn described(description: &str) -> Option<LoadBalancerKey> {
    let words: Vec<&str> = description.split(' ').collect();
    let (namespace, service) = words.iter().find_map(|word| word.split_once('/'))?;
    let cluster = words.last().filter(|_| description.contains(" cluster "))?;
    let (namespace, service) = (namespace.to_owned(), service.to_owned());
    Some(LoadBalancerKey { cluster: (*cluster).into(), namespace, service, uid: String::new() })
}

fn owners_by_tag(thing: &Value) -> Vec<LoadBalancerKey> {
    list(&thing["tags"]).iter().filter_map(|tag| marked(tag.as_str()?)).collect()
}

/// Without what the services change by themselves, without marks, which descriptions are, and without what is told
/// elsewhere.
fn summary(thing: &Value) -> String {
    const SELF_MADE: [&str; 13] = [
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
    let mut thing = thing.clone();
    if let Some(fields) = thing.as_object_mut() {
        fields.retain(|field, _| !SELF_MADE.contains(&field.as_str()));
    }
    thing.to_string()
}

/// Names of balancers and groups are marks, which a release takes off; who adopts a balancer may name its ID as well.
fn name(kind: &str, thing: &Value) -> String {
    match kind {
        "loadbalancer" => text(&thing["id"]),
        "security-group" => String::new(),
        _ => text(&thing["name"]),
    }
}

impl Everything {
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
        let seen = |kind: &str, thing: &Value, owners, summary| SeenResource {
            kind: kind.to_owned(),
            id: text(&thing["id"]),
            name: name(kind, thing),
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
            let owners = described(&text(&one["description"])).into_iter().collect();
            all.push(seen("floatingip", one, owners, summary(one)));
        }
        for one in self.security_groups.iter().filter(|group| group["name"] != "default") {
            let owners = described(&text(&one["description"])).into_iter().collect();
            all.push(seen("security-group", one, owners, self.group_summary(one)));
        }
        all
    }

    /// A group with its rules, and where it is worn.
    fn group_summary(&self, group: &Value) -> String {
        let mut rules: Vec<String> = list(&group["security_group_rules"]).iter().map(summary).collect();
        rules.sort();
        let worn = |port: &&Value| list(&port["security_groups"]).contains(&group["id"]);
        let mut ports: Vec<String> = self.ports.iter().filter(worn).map(|port| text(&port["id"])).collect();
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

impl Everything {
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
                .filter(|millis| *millis != USUAL_TIMEOUT)
                .map(Duration::from_millis),
            // There are no floating IPs for IPv6: an internal load balancer looks like an external one.
            internal: inside.is_ipv4().then_some(floating.is_none()),
        })
    }

    fn members_below(&self, listener: &Value) -> &[Value] {
        let members = listener["default_pool_id"].as_str().and_then(|pool| self.members.get(pool));
        members.map_or(&[], Vec::as_slice)
    }

    fn seen_listener(&self, listener: &Value) -> SeenListener {
        let port = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
        SeenListener {
            protocol: layer_four(&text(&listener["protocol"])),
            port: port(&listener["protocol_port"]).unwrap_or_default(),
            node_port: self.members_below(listener).first().and_then(|member| port(&member["protocol_port"])),
        }
    }

    /// The machines that every listener leads to; one that a single listener lacks is not behind the balancer.
    fn targets(&self, listeners: &[&Value]) -> Vec<SeenTarget> {
        let mut machines: Option<Vec<String>> = None;
        for listener in listeners {
            let mut here: Vec<String> =
                self.members_below(listener).iter().filter_map(|member| self.machine(&member["address"])).collect();
            here.sort();
            machines = Some(match machines {
                None => here,
                Some(before) => before.into_iter().filter(|machine| here.contains(machine)).collect(),
            });
        }
        machines.unwrap_or_default().into_iter().map(|machine| SeenTarget { machine, draining: false }).collect()
    }

    /// The server that has this address.
    fn machine(&self, address: &Value) -> Option<String> {
        let has = |port: &&Value| list(&port["fixed_ips"]).iter().any(|ip| ip["ip_address"] == *address);
        self.ports.iter().find(has).map(|port| text(&port["device_id"]))
    }

    fn health_check(&self, pool: &Value) -> Option<SeenHealthCheck> {
        let monitor = self.monitors.iter().find(|monitor| monitor["id"] == pool["healthmonitor_id"])?;
        // Without a member nobody is asked, at whatever port.
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
    let everybody = ["0.0.0.0/0", "::/0"];
    let ranges = list(&listener["allowed_cidrs"]).iter().filter_map(Value::as_str);
    ranges.filter(|range| !everybody.contains(range)).filter_map(|range| range.parse().ok()).collect()
}

fn affinity(pool: &Value) -> SessionAffinity {
    match pool["session_persistence"]["type"].as_str() {
        // Octavia does not tell how long; what the suite wishes is what Kubernetes says when nobody chooses.
        Some("SOURCE_IP") => SessionAffinity::ClientIp { timeout_seconds: 10800 },
        _ => SessionAffinity::None,
    }
}

/// A text; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A list; empty if it is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
