//! What the suite reads of load balancers in the simulator, past the provider.

use std::collections::BTreeSet;
use std::net::IpAddr;

use async_trait::async_trait;
use bowline_conformance::{
    BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenListener, SeenLoadBalancer, SeenResource, SeenTarget,
};
use bowline_core::{LoadBalancerKey, Protocol};
use bowline_vsphere_simulator::nsx::{Fields, Record, Work};
use serde_json::{Value, json};

use super::super::world::texts;
use super::bench::{Mode, PAGE, SimulatedBench};

const COLLECTIONS: [&str; 5] =
    ["ip-allocations", "lb-monitor-profiles", "lb-pools", "lb-services", "lb-virtual-servers"];

fn tag<'a>(record: &'a Record, scope: &str) -> Option<&'a str> {
    let tags = record.get("tags")?.as_array()?;
    tags.iter().find(|tag| tag["scope"] == scope)?["tag"].as_str()
}

/// Owner in the marks of an object.
fn owner(record: &Record) -> Option<LoadBalancerKey> {
    let (namespace, service) = tag(record, "service")?.split_once('/')?;
    let (namespace, service) = (namespace.to_owned(), service.to_owned());
    (tag(record, "owner")? == "vsphere-cloud-controller-manager").then_some(())?;
    Some(LoadBalancerKey { cluster: tag(record, "cluster")?.into(), namespace, service, uid: String::new() })
}

fn seen(collection: &str, record: &Record) -> SeenResource {
    let mut summary = record.clone();
    summary.remove("tags");
    SeenResource {
        kind: collection.to_owned(),
        id: record.text("path").to_owned(),
        name: record.text("display_name").to_owned(),
        owners: owner(record).into_iter().collect(),
        summary: Value::Object(summary).to_string(),
    }
}

impl SimulatedBench {
    fn owned(&self, collection: &str, key: &LoadBalancerKey) -> Vec<Record> {
        let all = self.cloud.objects(collection).into_iter();
        all.filter(|record| owner(record).is_some_and(|owner| owner.matches(key))).collect()
    }

    /// Machines behind a virtual server.
    fn targets(&self, server: &Record) -> BTreeSet<SeenTarget> {
        let pool = self.cloud.object(server.text("pool_path"));
        let members = pool.as_ref().and_then(|pool| pool.get("members")).and_then(Value::as_array);
        let machines = self.machines.lock().unwrap();
        let target = |member: &Value| {
            let address: IpAddr = member["ip_address"].as_str()?.parse().ok()?;
            let machine = machines.get(&address).cloned().unwrap_or_else(|| format!("none at {address}"));
            Some(SeenTarget { machine, draining: member["admin_state"] == "GRACEFUL_DISABLED" })
        };
        members.into_iter().flatten().filter_map(target).collect()
    }

    /// A TCP port needs a monitor of its node port; a UDP port has none.
    fn listener(&self, server: &Record) -> Option<SeenListener> {
        let is_udp = server.text("application_profile_path").contains("udp");
        let node_port = texts(&server["default_pool_member_ports"]).first()?.parse().ok()?;
        let pool = self.cloud.object(server.text("pool_path"))?;
        let monitors: Vec<_> =
            pool.texts("active_monitor_paths").into_iter().filter_map(|path| self.cloud.object(path)).collect();
        let is_monitored =
            monitors.iter().all(|monitor| monitor["monitor_port"] == node_port) && is_udp == monitors.is_empty();
        let protocol = if is_udp { Protocol::Udp } else { Protocol::Tcp };
        let port = texts(&server["ports"]).first()?.parse().ok()?;
        is_monitored.then_some(SeenListener { protocol, port, node_port: Some(node_port) })
    }

    fn allocated(&self, key: &LoadBalancerKey) -> Option<(String, IpAddr)> {
        let allocations = self.owned("ip-allocations", key);
        let [allocation] = allocations.as_slice() else { return None };
        let path = allocation.text("path").to_owned();
        let address = self.cloud.allocated_address(&path)?;
        Some((path, address))
    }
}

#[async_trait]
impl LoadBalancerBench for SimulatedBench {
    async fn resources(&self) -> Vec<SeenResource> {
        let all = COLLECTIONS.into_iter().map(|name| (name, self.cloud.objects(name)));
        all.flat_map(|(name, records)| records.iter().map(|record| seen(name, record)).collect::<Vec<_>>()).collect()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let servers = self.owned("lb-virtual-servers", key);
        let (id, allocated) = self.allocated(key)?;
        let addresses: BTreeSet<IpAddr> =
            servers.iter().filter_map(|one| one.text("ip_address").parse().ok()).collect();
        let targets: BTreeSet<_> = servers.iter().map(|server| self.targets(server)).collect();
        let is_attached = |server: &Record| self.cloud.object(server.text("lb_service_path")).is_some();
        let works = addresses == [allocated].into() && targets.len() == 1 && servers.iter().all(is_attached);
        works.then(|| SeenLoadBalancer {
            id,
            name: servers.first().map(|one| one.text("display_name").to_owned()).unwrap_or_default(),
            addresses: addresses.into_iter().collect(),
            listeners: servers.iter().filter_map(|server| self.listener(server)).collect(),
            targets: targets.into_iter().flatten().collect(),
            ..SeenLoadBalancer::default()
        })
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let tags = foreign.owner.iter().flat_map(|owner| {
            let service = format!("{}/{}", owner.namespace, owner.service);
            let tag = |scope, tag: &str| json!({"scope": scope, "tag": tag});
            let app = "vsphere-cloud-controller-manager";
            [
                tag("cluster", owner.cluster.as_str()),
                tag("owner", app),
                tag("port", "TCP/443"),
                tag("service", &service),
            ]
        });
        let path = format!("/infra/lb-virtual-servers/foreign-{}", self.cloud.objects("lb-virtual-servers").len());
        let body = json!({"display_name": foreign.name, "tags": tags.collect::<Vec<_>>(), "ports": ["443"],
            "ip_address": "192.0.2.1", "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile"});
        self.cloud.put(&path, body).then_some(())?;
        Some(seen("lb-virtual-servers", &self.cloud.object(&path)?))
    }

    fn list_page(&self) -> Option<usize> {
        // Small pages in every case would only take time.
        self.cloud.configure(|options| options.max_page = PAGE);
        Some(PAGE)
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud.writes().len() as u64)
    }

    async fn stale(&self) -> BenchResult {
        // NSX answers from its database; only its search lags. A stale list may hide the last virtual server of the LB service.
        if self.mode == Mode::Managed {
            return BenchResult::Never;
        }
        self.cloud.freeze_view(true);
        *self.is_stale.lock().unwrap() = true;
        BenchResult::Done
    }

    async fn slow(&self) -> BenchResult {
        self.cloud.configure(|options| options.realization = Work::Manual);
        BenchResult::Done
    }

    async fn fail_next(&self, changes: u64) -> BenchResult {
        self.cloud.fail_realization(changes);
        BenchResult::Done
    }

    async fn settle(&self) {
        self.cloud.finish_work();
        if *self.is_stale.lock().unwrap() {
            self.cloud.freeze_view(false);
            self.cloud.freeze_view(true);
        }
    }
}
