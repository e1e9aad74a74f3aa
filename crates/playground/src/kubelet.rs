//! Simulated kubelets: one for every machine of the cloud, all in one task.
//!
//! ```text
//!  machines, existing kubelets, time ──► Kubelets::decide     ──► Boot, Renew, PostStatus
//!  Pods on running machines          ──► PodAddresses::decide ──► Run, Remove
//! ```
//!
//! A new machine boots a kubelet, which registers its Node as with `--cloud-provider=external`: with the taint
//! `node.cloudprovider.kubernetes.io/uninitialized`, and without addresses, provider ID or cloud labels. It renews its Lease and
//! posts its status while the machine is running; when the machine is stopped or deleted, the kubelet stops without notice, as
//! after a power failure. Containers are not run: a Pod bound to the Node gets an address from the Node's pod CIDR, as from a
//! network plugin, and is reported as running. Without a pod CIDR, the Pod stays Pending.
//!
//! As with a real kubelet, a Node that is deleted while its machine is running is not registered again until the machine is
//! restarted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::well_known::{NETWORK_UNAVAILABLE, NO_SCHEDULE, UNINITIALIZED_TAINT};
use bowline_local::{Machine, MachineState};
use futures::StreamExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cache::{Cache, LEASE_NAMESPACE};
use crate::objects::{Lease, Node, Pod, create};
use crate::pod_network::free_addresses;
use crate::timing::{Timing, now, now_micro};

const TICK: Duration = Duration::from_millis(100);
const CONCURRENCY: usize = 32;

/// Time from registration to the first ready status, as the network plugin of a real node takes time to start.
const WARM_UP: Duration = Duration::from_millis(200);

/// Pause before a failed registration is retried.
const BOOT_RETRY: Duration = Duration::from_secs(2);

/// Number of Lease renewals per unchanged status update: 5 minutes at 10 s.
// upstream: nodeStatusReportFrequency over nodeLeaseDurationSeconds / 4.
const RENEWALS_PER_STATUS: u32 = 30;

/// Number of slots of a period over which the heartbeats are spread.
const SLOTS: u32 = 64;

/// Version that shows that the kubelet is simulated.
const KUBELET_VERSION: &str = "v1.36.0-simulated";

/// All kubelets by machine ID.
#[derive(Default)]
struct Kubelets {
    by_machine: BTreeMap<String, Kubelet>,
    booted: u32,
}

struct Kubelet {
    node: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The machine is stopped.
    Off,
    /// The machine is running, and the Node is due for registration at this time.
    Booting { at: Instant },
    /// The Node is registered; the next Lease renewal and status update are due at these times.
    Up { renew: Instant, post: Instant },
}

/// An action of a kubelet.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    /// Registers the Node.
    Boot(Arc<Machine>),
    /// Renews the Lease of this Node.
    Renew(String),
    /// Reports this Node as ready.
    PostStatus(String),
}

/// Addresses allocated to Pods, by Pod UID. A Pod keeps its addresses until it is deleted.
#[derive(Debug, Default)]
struct PodAddresses(HashMap<String, Vec<IpAddr>>);

/// An action of a kubelet for a Pod.
#[derive(Debug, Clone)]
enum PodAction {
    /// Reports the Pod as running, with these addresses.
    Run(Arc<Pod>, Vec<IpAddr>),
    /// Deletes the Pod, which has terminated.
    Remove(Arc<Pod>),
}

/// Runs a kubelet for each machine.
pub(crate) async fn run(client: Client, machines: impl Fn() -> Vec<Arc<Machine>>, mut cache: Cache, timing: Timing) {
    let (mut kubelets, mut pod_addresses) = (Kubelets::default(), PodAddresses::default());
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        cache.changed(&mut ticks).await;
        let actions = kubelets.decide(&machines(), timing, Instant::now());
        let booted: Vec<_> = futures::stream::iter(actions)
            .map(|action| apply(&client, action))
            .buffer_unordered(CONCURRENCY)
            .filter_map(std::future::ready)
            .collect()
            .await;
        booted.iter().for_each(|machine| kubelets.mark_up(machine, timing, Instant::now()));
        let pods = cache.pods();
        if pods.is_empty() {
            continue;
        }
        let actions = pod_addresses.decide(&pods, &kubelets.pod_cidrs(&cache.nodes()));
        futures::stream::iter(actions).for_each_concurrent(CONCURRENCY, |action| apply_pod(&client, action)).await;
    }
}

impl Kubelets {
    fn decide(&mut self, machines: &[Arc<Machine>], timing: Timing, now: Instant) -> Vec<Action> {
        self.sync_machines(machines, now);
        let mut actions = Vec::new();
        for machine in machines {
            if let Some(kubelet) = self.by_machine.get_mut(&machine.spec.id) {
                kubelet.decide(machine, timing, now, &mut actions);
            }
        }
        actions
    }

    /// Creates, starts, stops and removes kubelets along with their machines.
    fn sync_machines(&mut self, machines: &[Arc<Machine>], now: Instant) {
        let present: HashMap<&str, &Machine> =
            machines.iter().map(|machine| (machine.spec.id.as_str(), &**machine)).collect();
        self.by_machine.retain(|id, _| present.contains_key(id.as_str()));
        for machine in machines {
            let off = || Kubelet { node: machine.spec.name.clone(), state: State::Off };
            let kubelet = self.by_machine.entry(machine.spec.id.clone()).or_insert_with(off);
            match (machine.state, kubelet.state) {
                (MachineState::Running, State::Off) => kubelet.state = State::Booting { at: now },
                (MachineState::Stopped, _) => kubelet.state = State::Off,
                _ => {}
            }
        }
    }

    /// Marks the kubelet of this machine as registered.
    fn mark_up(&mut self, machine: &str, timing: Timing, now: Instant) {
        let Some(kubelet) = self.by_machine.get_mut(machine) else { return };
        self.booted = self.booted.wrapping_add(1);
        let renew = now + timing.lease_period * (self.booted % SLOTS) / SLOTS;
        kubelet.state = State::Up { renew, post: now + WARM_UP };
    }

    /// Returns the Nodes with a running kubelet, each with its pod CIDRs.
    fn pod_cidrs(&self, nodes: &[Arc<Node>]) -> HashMap<String, Vec<String>> {
        let up: HashSet<&str> =
            self.by_machine.values().filter(|kubelet| kubelet.is_up()).map(|kubelet| &*kubelet.node).collect();
        let with_pod_cidrs = nodes.iter().map(|node| (node.name_any(), node.spec.pod_cidrs.clone()));
        with_pod_cidrs.filter(|(name, _)| up.contains(&**name)).collect()
    }
}

impl Kubelet {
    fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    fn decide(&mut self, machine: &Arc<Machine>, timing: Timing, now: Instant, actions: &mut Vec<Action>) {
        match &mut self.state {
            State::Off => {}
            State::Booting { at } if *at <= now => {
                *at = now + BOOT_RETRY;
                actions.push(Action::Boot(machine.clone()));
            }
            State::Booting { .. } => {}
            State::Up { renew, post } => {
                if *renew <= now {
                    *renew = now + timing.lease_period;
                    actions.push(Action::Renew(self.node.clone()));
                }
                if *post <= now {
                    *post = now + timing.lease_period * RENEWALS_PER_STATUS;
                    actions.push(Action::PostStatus(self.node.clone()));
                }
            }
        }
    }
}

// ---- Nodes

/// Performs the action. Returns the ID of a machine whose Node was registered.
async fn apply(client: &Client, action: Action) -> Option<String> {
    let done = match &action {
        Action::Boot(machine) => boot(client, machine).await,
        Action::Renew(node) => renew(client, node).await,
        Action::PostStatus(node) => post_status(client, node).await,
    };
    match (done, action) {
        (Ok(()), Action::Boot(machine)) => Some(machine.spec.id.clone()),
        (Ok(()), _) => None,
        (Err(error), Action::Boot(machine)) => {
            tracing::warn!(%error, machine = machine.spec.id, "the simulated kubelet cannot register its Node");
            None
        }
        (Err(error), action) => {
            tracing::debug!(%error, ?action, "a simulated kubelet cannot update its Node");
            None
        }
    }
}

/// Registers the Node and its Lease. If they exist from before the machine was stopped, the Node stays as it is.
async fn boot(client: &Client, machine: &Machine) -> kube::Result<()> {
    let node = match create::<Node>(client, None, &registration(machine)).await {
        Err(error) if is_conflict(&error) => Api::<Node>::all(client.clone()).get(&machine.spec.name).await?,
        created => created?,
    };
    match create::<Lease>(client, Some(LEASE_NAMESPACE), &lease_of(&node)).await {
        Err(error) if is_conflict(&error) => renew(client, &machine.spec.name).await,
        created => created.map(drop),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns the Node as a kubelet with `--cloud-provider=external` registers it.
// upstream: without --node-ip such a kubelet leaves all addresses to the cloud provider, including the host name. The condition
// NetworkUnavailable is the one that kubelets of in-tree cloud providers with routes set; newer kubelets do not set it.
fn registration(machine: &Machine) -> Value {
    let name = &machine.spec.name;
    let labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
    });
    let capacity = json!({"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    let allocatable = json!({"cpu": "3900m", "memory": "15Gi", "ephemeral-storage": "90Gi", "pods": "110"});
    let mut conditions = pressures();
    conditions.push(condition(NETWORK_UNAVAILABLE, "True", "NoRouteCreated", "Node created without a route"));
    conditions.push(condition("Ready", "False", "KubeletNotReady", "container runtime network not ready"));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"taints": [{"key": UNINITIALIZED_TAINT, "value": "true", "effect": NO_SCHEDULE}]},
        "status": {
            "capacity": capacity, "allocatable": allocatable, "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}, "nodeInfo": node_info(&machine.spec.id),
        },
    })
}

fn node_info(machine: &str) -> Value {
    json!({
        "machineID": machine, "systemUUID": machine, "bootID": machine,
        "kernelVersion": "simulated", "osImage": "Bowline playground", "containerRuntimeVersion": "simulated://1.0.0",
        "kubeletVersion": KUBELET_VERSION, "kubeProxyVersion": KUBELET_VERSION,
        "operatingSystem": "linux", "architecture": "amd64",
    })
}

fn pressures() -> Vec<Value> {
    vec![
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ]
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now(), "lastTransitionTime": now(),
    })
}

/// Returns the Lease of a Node, with an owner reference so that it is deleted with the Node.
fn lease_of(node: &Node) -> Value {
    let name = node.name_any();
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid().unwrap_or_default()});
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now_micro()},
    })
}

async fn renew(client: &Client, node: &str) -> kube::Result<()> {
    let leases = Api::<Lease>::namespaced(client.clone(), LEASE_NAMESPACE);
    let patch = Patch::Merge(json!({"spec": {"renewTime": now_micro()}}));
    leases.patch(node, &PatchParams::default(), &patch).await.map(drop)
}

async fn post_status(client: &Client, node: &str) -> kube::Result<()> {
    let mut conditions = pressures();
    conditions.push(condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"));
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    Api::<Node>::all(client.clone()).patch_status(node, &PatchParams::default(), &patch).await.map(drop)
}

// ---- Pods

impl PodAddresses {
    /// Returns the actions for Pods on these Nodes, given by name with their pod CIDRs.
    fn decide(&mut self, pods: &[Arc<Pod>], nodes: &HashMap<String, Vec<String>>) -> Vec<PodAction> {
        let present: HashSet<_> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        self.0.retain(|pod, _| present.contains(&**pod));
        let mut actions = Vec::new();
        for pod in pods {
            let Some(pod_cidrs) = pod.node().and_then(|node| nodes.get(node)) else { continue };
            if pod.metadata.deletion_timestamp.is_some() {
                actions.push(PodAction::Remove(pod.clone()));
            } else if pod.phase() == "Pending" {
                let addresses = self.addresses(pod, pod_cidrs);
                actions.extend(addresses.map(|addresses| PodAction::Run(pod.clone(), addresses)));
            }
        }
        actions
    }

    /// Returns the addresses of this Pod, or allocates them from these pod CIDRs.
    fn addresses(&mut self, pod: &Pod, pod_cidrs: &[String]) -> Option<Vec<IpAddr>> {
        let uid = pod.metadata.uid.clone()?;
        if let Some(pod_addresses) = self.0.get(&uid) {
            return Some(pod_addresses.clone());
        }
        let taken: HashSet<IpAddr> = self.0.values().flatten().copied().collect();
        let addresses = free_addresses(pod_cidrs, |address| taken.contains(&address))?;
        self.0.insert(uid, addresses.clone());
        Some(addresses)
    }
}

async fn apply_pod(client: &Client, action: PodAction) {
    let (PodAction::Run(pod, _) | PodAction::Remove(pod)) = &action;
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let done = match &action {
        PodAction::Run(pod, addresses) => {
            let patch = Patch::Strategic(json!({"status": running(pod, addresses)}));
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.map(drop)
        }
        PodAction::Remove(pod) => {
            pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.map(drop)
        }
    };
    if let Err(error) = done {
        tracing::debug!(%error, pod = pod.name_any(), "a simulated kubelet cannot update a Pod; retrying");
    }
}

/// Returns the status of a Pod whose containers are all running.
fn running(pod: &Pod, addresses: &[IpAddr]) -> Value {
    let containers = pod.spec.containers.iter();
    let states: Vec<_> = containers
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "",
                "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": now()}},
            })
        })
        .collect();
    let is_true = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now()});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(is_true);
    let all: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
    json!({
        "phase": "Running", "podIP": addresses.first(), "podIPs": all, "startTime": now(),
        "containerStatuses": states, "conditions": conditions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_local::NewMachine;

    fn machine(id: &str, state: MachineState) -> Arc<Machine> {
        let spec = NewMachine { name: format!("node-{id}"), id: id.to_owned(), ..NewMachine::default() };
        Arc::new(Machine { spec, state })
    }

    fn kinds(actions: &[Action]) -> Vec<&'static str> {
        let kind = |action: &Action| match action {
            Action::Boot(_) => "boot",
            Action::Renew(_) => "renew",
            Action::PostStatus(_) => "post",
        };
        actions.iter().map(kind).collect()
    }

    #[test]
    fn a_kubelet_runs_while_its_machine_is_running() {
        let (mut kubelets, start, timing) = (Kubelets::default(), Instant::now(), Timing::for_nodes(1));
        let running = [machine("1", MachineState::Running)];
        let stopped = [machine("1", MachineState::Stopped)];
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(kinds(&kubelets.decide(&running, timing, at(0))), ["boot"]);
        assert!(kubelets.decide(&running, timing, at(100)).is_empty(), "not registered yet");
        assert_eq!(kinds(&kubelets.decide(&running, timing, at(2_000))), ["boot"], "retry after a failure");
        kubelets.mark_up("1", timing, at(2_000));
        assert_eq!(kinds(&kubelets.decide(&running, timing, at(2_600))), ["renew", "post"]);
        assert_eq!(kinds(&kubelets.decide(&running, timing, at(3_100))), ["renew"]);
        assert!(kubelets.decide(&stopped, timing, at(9_000)).is_empty(), "no heartbeat of a stopped machine");
        assert_eq!(kinds(&kubelets.decide(&running, timing, at(9_100))), ["boot"], "registers again");
        assert!(kubelets.decide(&[], timing, at(9_200)).is_empty());
        assert!(kubelets.by_machine.is_empty());
    }

    #[test]
    fn heartbeats_are_spread_over_the_period() {
        let (mut kubelets, start, timing) = (Kubelets::default(), Instant::now(), Timing::for_nodes(1_000));
        let machines: Vec<_> = (0..1_000).map(|id| machine(&id.to_string(), MachineState::Running)).collect();
        kubelets.decide(&machines, timing, start);
        machines.iter().for_each(|machine| kubelets.mark_up(&machine.spec.id, timing, start));
        let mut most = 0;
        for tick in 0..100 {
            let actions = kubelets.decide(&machines, timing, start + TICK * tick);
            most = most.max(kinds(&actions).iter().filter(|kind| **kind == "renew").count());
        }
        assert!((20..=80).contains(&most), "{most} renewals in the busiest tick; the average is 40");
    }

    #[test]
    fn a_node_is_registered_as_with_an_external_cloud_provider() {
        let node = registration(&machine("1", MachineState::Running));
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        assert_eq!(node["spec"]["taints"], json!([taint]));
        assert_eq!(node["spec"]["providerID"], Value::Null);
        assert_eq!(node["status"]["addresses"], Value::Null);
        assert_eq!(node["spec"]["podCIDR"], Value::Null);
        let network = node["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|condition| condition["type"] == NETWORK_UNAVAILABLE);
        let network = network.map(|condition| (&condition["status"], &condition["reason"], &condition["message"]));
        let [status, reason, message] = ["True", "NoRouteCreated", "Node created without a route"].map(Value::from);
        assert_eq!(network, Some((&status, &reason, &message)));
        let labels = node["metadata"]["labels"].as_object().unwrap();
        assert!(!labels.keys().any(|key| key.contains("zone") || key.contains("region") || key.contains("instance")));
        assert_eq!(labels["kubernetes.io/hostname"], "node-1");
    }

    fn pod(uid: &str, node: &str, deleting: bool) -> Arc<Pod> {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        let value = json!({
            "metadata": {"name": uid, "uid": uid, "deletionTimestamp": deleted},
            "spec": {"containers": [], "nodeName": node},
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn nodes(pod_cidrs: &[(&str, &[&str])]) -> HashMap<String, Vec<String>> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        pod_cidrs.iter().map(|(node, pod_cidrs)| ((*node).to_owned(), owned(pod_cidrs))).collect()
    }

    /// Returns `POD ADDRESS…` or `remove POD` for each action.
    fn list(actions: &[PodAction]) -> Vec<String> {
        let show = |action: &PodAction| match action {
            PodAction::Run(pod, addresses) => {
                addresses.iter().fold(pod.name_any(), |text, address| format!("{text} {address}"))
            }
            PodAction::Remove(pod) => format!("remove {}", pod.name_any()),
        };
        actions.iter().map(show).collect()
    }

    #[test]
    fn pods_run_on_registered_nodes_and_are_removed_when_deleted() {
        let up = nodes(&[("a", &["10.244.1.0/24"])]);
        let mut pod_addresses = PodAddresses::default();
        assert_eq!(list(&pod_addresses.decide(&[pod("p", "a", false)], &up)), ["p 10.244.1.2"]);
        assert_eq!(list(&pod_addresses.decide(&[pod("p", "a", true)], &up)), ["remove p"]);
        assert!(pod_addresses.decide(&[pod("p", "down", true), pod("q", "", false)], &up).is_empty());
    }

    #[test]
    fn a_pod_gets_an_address_of_its_nodes_pod_cidr_and_keeps_it_until_deleted() {
        let up = nodes(&[("a", &["10.244.1.0/29"]), ("b", &["10.244.2.0/24", "fd00:2::/64"]), ("c", &[])]);
        let mut pod_addresses = PodAddresses::default();
        let all = [pod("p", "a", false), pod("q", "b", false), pod("r", "a", false), pod("waits", "c", false)];
        assert_eq!(list(&pod_addresses.decide(&all, &up)), ["p 10.244.1.2", "q 10.244.2.2 fd00:2::2", "r 10.244.1.3"]);
        assert_eq!(
            list(&pod_addresses.decide(&all, &up))[..],
            ["p 10.244.1.2", "q 10.244.2.2 fd00:2::2", "r 10.244.1.3"]
        );
        let later = [pod("r", "a", false), pod("s", "a", false)];
        assert_eq!(
            list(&pod_addresses.decide(&later, &up)),
            ["r 10.244.1.3", "s 10.244.1.2"],
            "the address of p is free again"
        );
    }
}
