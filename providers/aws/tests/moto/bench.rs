//! Bench for instances: those of moto.
//!
//! The private DNS name of an instance is the name of its Node. AWS derives it from the address; the control port of moto sets the
//! name and the addresses that the suite requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, RouteBench, WantedMachine};
use bowline_core::{Address, AddressType, ClusterName, Instance, ProviderId};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::moto::{Moto, list, text};
use super::provider::{self, Setup};

/// Cluster of the suite, and ID of the cluster in tags.
pub(crate) const CLUSTER: &str = "conformance";

/// Items on one page of a list, few enough that the suite can fill several. EC2 accepts no fewer than five.
pub(crate) const PAGE: usize = 5;

/// Subnets of the instances, which are filled one after the other.
const SUBNETS: [&str; 3] = ["subnet-private-a", "subnet-private-b", "subnet-private-c"];

/// Instances in a subnet: a bit less than its number of addresses.
const IN_SUBNET: usize = 240;

/// A provider on an empty account.
pub(crate) struct MotoBench {
    pub(crate) moto: Moto,
    /// IDs of the resources of the cluster by name.
    pub(crate) ids: Value,
    provider: Arc<dyn CloudProvider>,
    instances: AtomicUsize,
    /// IDs of the zones by name.
    zones: OnceCell<BTreeMap<String, String>>,
    /// Provider of another cluster in the same account, with the same route table.
    other: Arc<dyn CloudProvider>,
}

impl MotoBench {
    /// Resets the account, and builds the provider.
    pub(crate) async fn new(moto: Moto) -> MotoBench {
        let ids = moto.reset(json!({"cluster": CLUSTER, "instances": false})).await;
        moto.limit_pages(json!({"DescribeInstances": PAGE, "DescribeLoadBalancers": PAGE})).await;
        MotoBench::on(moto, ids).await
    }

    /// Builds the provider on the account as it is.
    pub(crate) async fn on(moto: Moto, ids: Value) -> MotoBench {
        let table = format!("RouteTableID = {}\n", text(&ids["rtb-nodes"]));
        let other = Setup { cluster: Some("other-cluster".to_owned()), lines: table, ..Setup::default() };
        let other = provider::start(&moto, &other).await;
        let provider = provider::start(&moto, &Setup::default()).await;
        MotoBench { moto, ids, provider, other, instances: AtomicUsize::default(), zones: OnceCell::default() }
    }

    /// Returns the ID of a resource of the cluster.
    pub(crate) fn id(&self, name: &str) -> String {
        text(&self.ids[name])
    }

    /// Returns the ID of a zone.
    async fn zone_id(&self, zone: &str) -> String {
        let read = async || {
            let zones = self.moto.call("ec2", "describe_availability_zones", json!({})).await;
            let zone = |zone: &Value| (text(&zone["ZoneName"]), text(&zone["ZoneId"]));
            list(&zones["AvailabilityZones"]).iter().map(zone).collect()
        };
        self.zones.get_or_init(read).await[zone].clone()
    }

    /// Returns the expected description of an instance, with addresses of both IP families.
    async fn expected(&self, id: &str) -> Instance {
        let seen = self.moto.instance(id).await;
        let (zone, name) = (text(&seen["Placement"]["AvailabilityZone"]), text(&seen["PrivateDnsName"]));
        let interface = &seen["NetworkInterfaces"][0];
        let internal = |ip: &Value| Address::new(AddressType::InternalIP, text(ip));
        let private = list(&interface["PrivateIpAddresses"]).iter().map(|one| internal(&one["PrivateIpAddress"]));
        let names = [AddressType::InternalDNS, AddressType::Hostname].map(|kind| Address::new(kind, name.clone()));
        let v6 = list(&interface["Ipv6Addresses"]).first().map(|one| internal(&one["Ipv6Address"]));
        let zone_id = ("topology.k8s.aws/zone-id".to_owned(), self.zone_id(&zone).await);
        Instance {
            provider_id: Some(ProviderId::of("aws", &format!("/{zone}/{id}"))),
            id: id.to_owned(),
            instance_type: text(&seen["InstanceType"]),
            region: self.moto.endpoint("region"),
            addresses: private.chain(names).chain(v6).collect(),
            labels: [zone_id].into(),
            zone,
            name,
            ..Instance::default()
        }
    }
}

/// Faults of the proxy for a failure of the cloud. EC2 has other error codes than the load balancer APIs.
fn faults(fault: InducedFault) -> Value {
    let error = |ec2: (u16, &str), others: (u16, &str)| json!({"status": {"ec2": ec2.0, "*": others.0}, "code": {"ec2": ec2.1, "*": others.1}});
    let mut fault = match fault {
        InducedFault::Unauthenticated => error((401, "AuthFailure"), (403, "InvalidClientTokenId")),
        InducedFault::Forbidden => error((403, "UnauthorizedOperation"), (403, "AccessDenied")),
        InducedFault::Throttled(wait) => {
            let mut fault = error((503, "RequestLimitExceeded"), (400, "Throttling"));
            fault["headers"] = json!({"Retry-After": wait.as_secs().to_string()});
            fault
        }
        InducedFault::Broken => json!({"status": 503, "body": "no server is available"}),
        InducedFault::Empty => json!({"empty": true}),
        InducedFault::Garbled => json!({"status": 200, "body": "<html>welcome</html>"}),
        InducedFault::NotFound(body) => json!({"status": 404, "body": body}),
        InducedFault::Slow(delay) => json!({"delay": delay.as_secs_f64()}),
    };
    fault["count"] = Value::Null;
    json!([fault])
}

/// Faults of the proxy for a crash: the response to the last of this many calls is lost, and later calls are not executed.
fn crash(calls: u64) -> Value {
    let lost = calls.checked_sub(1).map(|after| json!({"after": after, "lost": true}));
    let dropped = json!({"after": calls.saturating_sub(1), "count": null, "drop": true});
    lost.into_iter().chain([dropped]).collect()
}

#[async_trait]
impl Bench for MotoBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        provider::start(&self.moto, &Setup::default()).await
    }

    fn of_cluster(&self, cluster: &ClusterName) -> Arc<dyn CloudProvider> {
        if cluster.as_str() == CLUSTER { self.provider.clone() } else { self.other.clone() }
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.moto.endpoint("secret_key")]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let subnet = SUBNETS[self.instances.fetch_add(1, Ordering::Relaxed) / IN_SUBNET];
        let id = self.moto.run_instance(&self.ids, subnet, CLUSTER).await;
        let internal = machine.addresses.iter().filter(|one| one.kind == AddressType::InternalIP);
        let (v6, v4): (Vec<_>, Vec<_>) = internal.map(|one| one.address.as_str()).partition(|ip| ip.contains(':'));
        let mut change = json!({"private_dns_name": machine.name});
        if !v4.is_empty() {
            change["ipv4"] = json!(v4);
        }
        if !v6.is_empty() {
            change["ipv6"] = json!(v6);
        }
        self.moto.change_instance(&id, change).await;
        self.expected(&id).await
    }

    async fn stop(&self, instance: &Instance) {
        self.moto.call("ec2", "stop_instances", json!({"InstanceIds": [instance.id]})).await;
    }

    async fn start(&self, instance: &Instance) {
        self.moto.call("ec2", "start_instances", json!({"InstanceIds": [instance.id]})).await;
    }

    async fn delete(&self, instance: &Instance) {
        self.moto.call("ec2", "terminate_instances", json!({"InstanceIds": [instance.id]})).await;
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.moto.change_instance(&instance.id, json!({"private_dns_name": name})).await;
        true
    }

    /// An instance without the tag of the cluster is not listed.
    async fn unlist(&self, instance: &Instance) -> BenchResult {
        let tag = json!({"Key": format!("kubernetes.io/cluster/{CLUSTER}")});
        self.moto.call("ec2", "delete_tags", json!({"Resources": [instance.id], "Tags": [tag]})).await;
        BenchResult::Done
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        match fault {
            Some(fault) => self.moto.set_faults(faults(fault)).await,
            None => self.moto.clear_faults().await,
        }
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        match calls {
            Some(calls) => self.moto.set_faults(crash(calls)).await,
            None => self.moto.clear_faults().await,
        }
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.moto.totals().await.0)
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        // The zone is not read, as long as it is in this region.
        let other_zone = format!("/{}c/{}", self.moto.endpoint("region"), instance.id);
        vec![ProviderId::of("aws", &format!("//{}", instance.id)), ProviderId::of("aws", &other_zone)]
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        let rests = ["", "/", "/eu-west-1a/vol-1", "/eu-west-1a/i-1/extra", "/eu-west-1a/x"];
        rests.map(|rest| ProviderId::of("aws", rest)).into()
    }
}
