//! Metrics of an agent, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_agent_client::{AgentRole, Balancer, PoolStatus};
use bowline_core::IpFamily;
use bowline_l4::{Counters, Health, LoadBalancerStatus};
use bowline_runtime::{Metric, metrics};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder};
use tokio::time::Instant;

use crate::server::Api;

/// Maximum number of load balancers with series of their own. Those of the others are summed up as [`OTHERS`].
const MAX_BALANCERS: usize = 500;

/// Name of all further load balancers.
const OTHERS: &str = "(others)";

metrics! {
    /// Metrics of an agent.
    pub METRICS;
    INFO = Metric::gauge("bowline_agent_info", "1, with the name of the agent and the version of the program.")
        .labels(&["agent", "version"]);
    ROLE = Metric::gauge("bowline_agent_role", "1 for the role of the agent, 0 for others: active, standby, fenced, follower.")
        .labels(&["role"]);
    TERM = Metric::gauge("bowline_agent_term", "Greatest term of the group that the agent knows of.");
    TAKEOVERS = Metric::counter("bowline_agent_takeovers_total", "Number of times that the agent became active.");
    CONFLICTS = Metric::counter("bowline_agent_conflicts_total",
        "Conflicts by kind: split_brain (another agent was active as well), address (another host uses a service address).")
        .labels(&["kind"]);
    WRITES = Metric::gauge("bowline_agent_state_writes", "Number of writes in the state of the agent; the same in the whole group.");
    PEERS = Metric::gauge("bowline_agent_peers", "Number of peers by state: alive, unreachable.").labels(&["state"]);
    FAILURES = Metric::counter("bowline_agent_replication_failures_total", "Failed updates of standbys.");
    HELD = Metric::gauge("bowline_agent_addresses_held", "Number of service addresses that the agent holds.");
    POOL_SIZE = Metric::gauge("bowline_agent_pool_addresses", "Number of addresses in the pools, by IP family.")
        .labels(&["family", "internal"]);
    POOL_USED = Metric::gauge("bowline_agent_pool_addresses_used", "Number of addresses in use, by IP family.")
        .labels(&["family", "internal"]);
    PROBLEMS = Metric::gauge("bowline_agent_problems", "Number of current and recent problems, as in the status.");
    BALANCERS = Metric::gauge("bowline_agent_load_balancers", "Number of load balancers in the state of the agent.");
    OPEN = Metric::gauge("bowline_agent_connections_open", "Open connections and flows of a load balancer.").labels(BALANCER);
    CONNECTIONS = Metric::counter("bowline_agent_connections_total",
        "Connections and flows of a load balancer by result: accepted, denied (source ranges), failed (no target), idled (idle timeout), \
         displaced (connection limit).")
        .labels(&["balancer", "namespace", "service", "result"]);
    BYTES = Metric::counter("bowline_agent_bytes_total",
        "Bytes of a load balancer by direction: in (from clients), out (to clients).")
        .labels(&["balancer", "namespace", "service", "direction"]);
    TARGETS = Metric::gauge("bowline_agent_targets",
        "Targets of a load balancer by health: healthy, unhealthy (at one port at least), unknown (no health check).")
        .labels(&["balancer", "namespace", "service", "health"]);
}

/// Labels of a load balancer.
const BALANCER: &[&str] = &["balancer", "namespace", "service"];

/// Counters, and the registry of the rest.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) takeovers: IntCounter,
    pub(crate) conflicts: IntCounterVec,
    pub(crate) replication_failures: IntCounter,
    in_conflict: AtomicBool,
}

impl Metrics {
    pub(crate) fn new() -> prometheus::Result<Metrics> {
        let registry = Registry::new();
        let conflicts: IntCounterVec = CONFLICTS.register(&registry)?;
        for kind in ["split_brain", "address"] {
            conflicts.with_label_values(&[kind]);
        }
        Ok(Metrics {
            takeovers: TAKEOVERS.register(&registry)?,
            conflicts,
            replication_failures: FAILURES.register(&registry)?,
            in_conflict: AtomicBool::new(false),
            registry,
        })
    }

    /// Registry for further metrics of the process.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Counts the begin of a split brain. Returns whether it is known already.
    pub(crate) fn begin_conflict(&self, is_conflict: bool) -> bool {
        let known = self.in_conflict.swap(is_conflict, Ordering::SeqCst);
        if is_conflict && !known {
            self.conflicts.with_label_values(&["split_brain"]).inc();
        }
        known
    }
}

impl Api {
    /// All metrics as text.
    pub(crate) fn metrics(&self) -> String {
        let mut families = self.group.metrics.registry().gather();
        match self.gauges() {
            Ok(registry) => families.extend(registry.gather()),
            Err(error) => tracing::error!(%error, "cannot create metrics"),
        }
        families.sort_by(|one, other| one.name().cmp(other.name()));
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    /// Metrics that are computed for each request, so that deleted load balancers have none.
    fn gauges(&self) -> prometheus::Result<Registry> {
        let (registry, group) = (Registry::new(), &self.group);
        let info: IntGaugeVec = INFO.register(&registry)?;
        info.with_label_values(&[group.config.name.as_str(), env!("CARGO_PKG_VERSION")]).set(1);
        let role: IntGaugeVec = ROLE.register(&registry)?;
        let own = group.role();
        for other in [AgentRole::Active, AgentRole::Standby, AgentRole::Fenced, AgentRole::Follower] {
            role.with_label_values(&[other.as_str()]).set(i64::from(other == own));
        }
        HELD.register::<IntGauge>(&registry)?.set(number(self.traffic.held()));
        PROBLEMS.register::<IntGauge>(&registry)?.set(number(group.problems.all().len()));
        let (inner, now) = (group.inner(), Instant::now());
        TERM.register::<IntGauge>(&registry)?.set(number(inner.seen_term));
        WRITES.register::<IntGauge>(&registry)?.set(number(inner.state.position.version.seq));
        let peers: IntGaugeVec = PEERS.register(&registry)?;
        let alive = inner.peers.iter().filter(|peer| peer.beat(now).is_some()).count();
        peers.with_label_values(&["alive"]).set(number(alive));
        peers.with_label_values(&["unreachable"]).set(number(inner.peers.len() - alive));
        let world = inner.state.world.clone();
        drop(inner);
        pool_metrics(&registry, &self.pools(&world.balancers))?;
        let balancers: Vec<_> = world.balancers.balancers().cloned().collect();
        BALANCERS.register::<IntGauge>(&registry)?.set(number(balancers.len()));
        traffic_metrics(&registry, balancers, |id| self.traffic.status(id))?;
        Ok(registry)
    }
}

fn pool_metrics(registry: &Registry, pools: &[PoolStatus]) -> prometheus::Result<()> {
    let (size, used): (IntGaugeVec, IntGaugeVec) = (POOL_SIZE.register(registry)?, POOL_USED.register(registry)?);
    for pool in pools {
        let family = if pool.family == IpFamily::IPv4 { "IPv4" } else { "IPv6" };
        let labels = [family, if pool.internal { "true" } else { "false" }];
        size.with_label_values(&labels).set(number(pool.size));
        used.with_label_values(&labels).set(number(pool.used));
    }
    Ok(())
}

/// Adds the series of the load balancers. If there are too many, those with the first names have series of their own: they stay the
/// same from one request to the next.
fn traffic_metrics(
    registry: &Registry,
    mut balancers: Vec<Arc<Balancer>>,
    status: impl Fn(&str) -> Option<LoadBalancerStatus>,
) -> prometheus::Result<()> {
    balancers.sort_by(|one, other| one.name.cmp(&other.name));
    let metrics = TrafficMetrics::register(registry)?;
    for (index, balancer) in balancers.iter().enumerate() {
        let owner = balancer.owner.as_ref().map_or(["", ""], |key| [key.namespace.as_str(), key.service.as_str()]);
        let labels =
            if index < MAX_BALANCERS { [balancer.name.as_str(), owner[0], owner[1]] } else { [OTHERS, "", ""] };
        if let Some(status) = status(&balancer.id) {
            metrics.add(labels, &status);
        }
    }
    Ok(())
}

struct TrafficMetrics {
    open: IntGaugeVec,
    connections: IntCounterVec,
    bytes: IntCounterVec,
    targets: IntGaugeVec,
}

impl TrafficMetrics {
    fn register(registry: &Registry) -> prometheus::Result<TrafficMetrics> {
        Ok(TrafficMetrics {
            open: OPEN.register(registry)?,
            connections: CONNECTIONS.register(registry)?,
            bytes: BYTES.register(registry)?,
            targets: TARGETS.register(registry)?,
        })
    }

    fn add(&self, [balancer, namespace, service]: [&str; 3], status: &LoadBalancerStatus) {
        let labels = |last| [balancer, namespace, service, last];
        for listener in &status.listeners {
            let Counters { open, accepted, denied, failed, idled, displaced, bytes_in, bytes_out } = listener.counters;
            self.open.with_label_values(&[balancer, namespace, service]).add(number(open));
            let results = [
                ("accepted", accepted),
                ("denied", denied),
                ("failed", failed),
                ("idled", idled),
                ("displaced", displaced),
            ];
            for (result, count) in results {
                self.connections.with_label_values(&labels(result)).inc_by(count);
            }
            self.bytes.with_label_values(&labels("in")).inc_by(bytes_in);
            self.bytes.with_label_values(&labels("out")).inc_by(bytes_out);
        }
        let health = health(status);
        for (kind, label) in
            [(Health::Healthy, "healthy"), (Health::Unhealthy, "unhealthy"), (Health::Unknown, "unknown")]
        {
            let count = health.values().filter(|health| **health == kind).count();
            self.targets.with_label_values(&labels(label)).add(number(count));
        }
    }
}

/// Health of each target host: the worst of all ports.
fn health(status: &LoadBalancerStatus) -> BTreeMap<IpAddr, Health> {
    let mut hosts: BTreeMap<IpAddr, Health> = BTreeMap::new();
    for target in status.listeners.iter().flat_map(|listener| &listener.targets) {
        let health = hosts.entry(target.address.ip()).or_insert(target.health);
        *health = match (*health, target.health) {
            (Health::Unhealthy, _) | (_, Health::Unhealthy) => Health::Unhealthy,
            (Health::Healthy, _) | (_, Health::Healthy) => Health::Healthy,
            (Health::Unknown, Health::Unknown) => Health::Unknown,
        };
    }
    hosts
}

fn number(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Reference page of the metrics.
pub fn metric_reference() -> String {
    let mut metrics = METRICS.to_vec();
    metrics.extend(bowline_runtime::RELOAD_METRICS);
    metrics.sort_by_key(|metric| metric.name);
    format!("{HEAD}{}", bowline_runtime::metric_table(&metrics))
}

const HEAD: &str = "\
# L4 agent: metrics

<!-- Generated by `cargo xtask generate` from crates/agent/src/metrics.rs; change that instead. -->

Metrics at `/metrics` of an agent, by default http://127.0.0.1:9471/metrics (`metricsListen` in the [configuration](agent-config.md)). \
`/healthz` returns 200 while the process runs. `/readyz` returns 200 if the agent is active or can take over, and otherwise 503 with \
the reason.

Only the active agent has traffic, so sum up over the agents of a group; after a takeover, counters begin at 0. `balancer` is the name \
of the load balancer, `namespace` and `service` are those of its Service. The first 500 load balancers by name have series of their own, \
the others are summed up with the name `(others)`.

";

#[cfg(test)]
mod tests {
    use bowline_l4::{ListenerStatus, TargetStatus, Transport};

    use super::*;

    fn listener(port: u16, healths: &[Health]) -> ListenerStatus {
        let target = |(index, health): (usize, &Health)| TargetStatus {
            address: format!("192.0.2.{}:{port}", index + 1).parse().unwrap(),
            health: *health,
            draining: false,
            open: 0,
            total: 0,
        };
        let counters = Counters { accepted: 3, open: 2, bytes_in: 10, bytes_out: 20, ..Counters::default() };
        let targets = healths.iter().enumerate().map(target).collect();
        ListenerStatus {
            address: "192.0.2.200".parse().unwrap(),
            transport: Transport::Tcp,
            port,
            error: None,
            counters,
            targets,
        }
    }

    fn balancer(number: usize) -> Arc<Balancer> {
        let text = format!(
            r#"{{"id":"b-{number}","name":"lb-{number:04}","owner":{{"cluster":"c","namespace":"web","service":"s-{number}","uid":"u"}},
            "addresses":[],"targets":[],"settings":{{"listeners":[]}}}}"#
        );
        Arc::new(serde_json::from_str(&text).unwrap())
    }

    fn text(balancers: usize) -> String {
        let status = LoadBalancerStatus {
            listeners: vec![
                listener(80, &[Health::Healthy, Health::Unknown, Health::Healthy]),
                listener(443, &[Health::Healthy, Health::Unknown, Health::Unhealthy]),
            ],
        };
        let registry = Registry::new();
        traffic_metrics(&registry, (0..balancers).map(balancer).collect(), |_| Some(status.clone())).unwrap();
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn a_load_balancer_has_the_sums_of_its_listeners_and_its_targets_by_host() {
        let text = text(1);
        let labels = "balancer=\"lb-0000\",namespace=\"web\",";
        for line in [
            format!("bowline_agent_connections_open{{{labels}service=\"s-0\"}} 4"),
            format!("bowline_agent_connections_total{{{labels}result=\"accepted\",service=\"s-0\"}} 6"),
            format!(
                "bowline_agent_bytes_total{{{labels_},service=\"s-0\"}} 40",
                labels_ = "balancer=\"lb-0000\",direction=\"out\",namespace=\"web\""
            ),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
        for health in ["healthy", "unhealthy", "unknown"] {
            let line = format!("health=\"{health}\",namespace=\"web\",service=\"s-0\"}} 1");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }

    #[test]
    fn the_number_of_series_is_limited() {
        let text = text(MAX_BALANCERS + 2);
        let open: Vec<_> = text.lines().filter(|line| line.starts_with("bowline_agent_connections_open{")).collect();
        assert_eq!(open.len(), MAX_BALANCERS + 1);
        let others = "bowline_agent_connections_open{balancer=\"(others)\",namespace=\"\",service=\"\"} 8";
        assert!(open.contains(&others), "{open:?}");
    }

    #[test]
    fn every_metric_is_on_the_reference_page_and_follows_the_conventions() {
        let page = metric_reference();
        for metric in METRICS {
            assert!(page.contains(&format!("| `{}` |", metric.name)) && metric.name.starts_with("bowline_agent_"));
            assert_eq!(
                metric.shape == bowline_runtime::Shape::Counter,
                metric.name.ends_with("_total"),
                "{}",
                metric.name
            );
        }
    }
}
