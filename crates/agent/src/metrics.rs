//! Metrics of an agent, in the text format of Prometheus.

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_l4::{Health, LoadBalancerStatus};
use bowline_runtime::{Metric, metrics};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder};
use tokio::time::Instant;

use crate::server::{Api, role_name};

metrics! {
    /// Metrics of an agent.
    pub METRICS;
    ROLE = Metric::gauge("bowline_agent_role", "1 for the role of the agent: active, standby, fenced or follower.").labels(&["role"]);
    TERM = Metric::gauge("bowline_agent_term", "Greatest term of the group that the agent knows of.");
    TAKEOVERS = Metric::counter("bowline_agent_takeovers_total", "Number of times that the agent became active.");
    CONFLICTS = Metric::counter("bowline_agent_conflicts_total",
        "Conflicts by kind: split_brain (another agent was active, too), address (another host uses a service address).").labels(&["kind"]);
    WRITES = Metric::gauge("bowline_agent_state_writes", "Number of writes in the state of the agent; the same in the whole group.");
    PEERS = Metric::gauge("bowline_agent_peers", "Number of peers by state (alive, unreachable).").labels(&["state"]);
    FAILURES = Metric::counter("bowline_agent_replication_failures_total", "Failed updates of standbys.");
    HELD = Metric::gauge("bowline_agent_addresses_held", "Number of service addresses that the agent holds.");
    PROBLEMS = Metric::gauge("bowline_agent_problems", "Number of current and recent problems, as in the status.");
    OPEN = Metric::gauge("bowline_agent_connections_open", "Open connections and flows of a load balancer.").labels(&["balancer"]);
    CONNECTIONS = Metric::counter("bowline_agent_connections_total",
        "Connections and flows of a load balancer by result (accepted, denied, failed, idled, displaced).").labels(&["balancer", "result"]);
    BYTES = Metric::counter("bowline_agent_bytes_total",
        "Bytes of a load balancer by direction (in: from clients, out: to clients).").labels(&["balancer", "direction"]);
    TARGETS = Metric::gauge("bowline_agent_targets", "Targets of a load balancer by health (healthy, unhealthy, unknown), at all ports.")
        .labels(&["balancer", "health"]);
}

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
        let registry = Registry::new();
        let role: IntGaugeVec = ROLE.register(&registry)?;
        for name in ["active", "standby", "fenced", "follower"] {
            role.with_label_values(&[name]).set(i64::from(name == role_name(self.group.role())));
        }
        HELD.register::<IntGauge>(&registry)?.set(number(self.traffic.held()));
        PROBLEMS.register::<IntGauge>(&registry)?.set(number(self.group.problems.all().len()));
        let (inner, now) = (self.group.inner(), Instant::now());
        TERM.register::<IntGauge>(&registry)?.set(number(inner.seen_term));
        WRITES.register::<IntGauge>(&registry)?.set(number(inner.state.position.version.seq));
        let peers: IntGaugeVec = PEERS.register(&registry)?;
        let alive = inner.peers.iter().filter(|peer| peer.beat(now).is_some()).count();
        peers.with_label_values(&["alive"]).set(number(alive));
        peers.with_label_values(&["unreachable"]).set(number(inner.peers.len() - alive));
        let balancers = inner.state.world.balancers.balancers();
        let balancers: Vec<_> = balancers.map(|found| (found.id.clone(), found.name.clone())).collect();
        drop(inner);
        let traffic = TrafficMetrics::register(&registry)?;
        for (id, name) in balancers {
            if let Some(status) = self.traffic.status(&id) {
                traffic.add(&name, &status);
            }
        }
        Ok(registry)
    }
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

    fn add(&self, name: &str, status: &LoadBalancerStatus) {
        for listener in &status.listeners {
            let counters = &listener.counters;
            self.open.with_label_values(&[name]).add(number(counters.open));
            let results = [
                ("accepted", counters.accepted),
                ("denied", counters.denied),
                ("failed", counters.failed),
                ("idled", counters.idled),
                ("displaced", counters.displaced),
            ];
            for (result, count) in results {
                self.connections.with_label_values(&[name, result]).inc_by(count);
            }
            self.bytes.with_label_values(&[name, "in"]).inc_by(counters.bytes_in);
            self.bytes.with_label_values(&[name, "out"]).inc_by(counters.bytes_out);
        }
        for (health, label) in
            [(Health::Healthy, "healthy"), (Health::Unhealthy, "unhealthy"), (Health::Unknown, "unknown")]
        {
            let targets = status.listeners.iter().flat_map(|listener| &listener.targets);
            let count = targets.filter(|target| target.health == health).count();
            self.targets.with_label_values(&[name, label]).set(number(count));
        }
    }
}

fn number(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
