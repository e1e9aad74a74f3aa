//! The items of the document. The serialised form is an API (`docs/reference/console-document.md` is generated from it): fields may be
//! added, and clients ignore fields that they do not know. Fields without a value are left out.
//!
//! Texts that come from users or clouds are limited in length by [`text`] and may contain any character; a client must escape them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Everything that the console shows, as of one moment. Each entry becomes an item with the key `KIND/NAME`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// The manager process: one item with the name `self`.
    pub manager: BTreeMap<String, Manager>,
    /// Clouds by name.
    pub cloud: BTreeMap<String, Cloud>,
    /// Machines by `CLOUD/ID`, as far as the process knows them other than through Nodes: those of the playground's cloud.
    pub machine: BTreeMap<String, Machine>,
    /// Nodes by name.
    pub node: BTreeMap<String, Node>,
    /// Services with a load balancer, or of type LoadBalancer, by `NAMESPACE/NAME`.
    pub service: BTreeMap<String, Service>,
    /// Load balancers by `CLOUD/NAME`, as far as the process knows more about them than their Services show.
    pub load_balancer: BTreeMap<String, LoadBalancer>,
    /// Routes to pod CIDRs by `CLOUD/CIDR`.
    pub route: BTreeMap<String, Route>,
    /// Controllers by name.
    pub controller: BTreeMap<String, Controller>,
    /// Work queues by name.
    pub queue: BTreeMap<String, Queue>,
    /// Watches by resource.
    pub watch: BTreeMap<String, Watch>,
    /// Events that this process has emitted, by number: the most recent ones.
    pub event: BTreeMap<String, Event>,
    /// Steps of the playground's tour, by two-digit number.
    pub step: BTreeMap<String, TourStep>,
    /// Faults of the playground's cloud, by name.
    pub fault: BTreeMap<String, Fault>,
}

/// Severity of an item, from the best to the worst. The page shows it by colour and by shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// As desired.
    Ok,
    /// Work is in progress or queued; no action is needed.
    Progressing,
    /// Not known, for example because the kubelet does not report.
    #[default]
    Unknown,
    /// Degraded, or waiting for something outside of the manager.
    Warning,
    /// Failed: an operator has to act.
    Error,
}

/// Health of an item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Severity.
    pub level: Level,
    /// One CamelCase word, such as `Pending` or `QuotaExceeded`.
    pub reason: String,
    /// What is wrong or what is waited for, and what to do, in at most a few sentences; empty if there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The manager process.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manager {
    /// Health of the whole process.
    pub health: Health,
    /// Version, such as `v0.1.0`.
    pub version: String,
    /// Start of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Cluster name, recorded on cloud resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whether this process runs the controllers: it holds the Lease, or there is no leader election.
    pub leader: bool,
    /// Leases by `NAMESPACE/NAME`, with the fields of `/statusz`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub leases: BTreeMap<String, Value>,
    /// Writes are logged and not sent.
    pub dry_run: bool,
}

/// A cloud.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cloud {
    /// Whether the cloud has started, and responds.
    pub health: Health,
    /// Provider, such as `openstack`.
    pub provider: String,
    /// Region, if the cloud has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Further facts: project, VPC, API version.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    /// What the provider supports: `instances`, `loadBalancers`, `routes`, `podCidrs`.
    pub capabilities: Vec<String>,
    /// Calls of the last minutes.
    pub calls: Calls,
}

/// Calls to a cloud.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    /// Calls in progress.
    pub in_progress: usize,
    /// Finished calls in intervals of ten seconds, oldest first; intervals without a call are left out.
    pub intervals: Vec<CallInterval>,
    /// The most recent calls, newest first.
    pub recent: Vec<RecentCall>,
    /// Maximum number of calls per second, if the rate is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<f64>,
    /// End of the longest pause that a service of the cloud has requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_until: Option<Timestamp>,
    /// Number of calls that the cloud still accepts, by service.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub budgets: BTreeMap<String, Budget>,
}

/// Finished calls of one interval of ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallInterval {
    /// Start, in seconds since the Unix epoch.
    pub at: i64,
    /// Number of calls.
    pub calls: u32,
    /// Failed calls, including throttled ones. The answer that an object does not exist is no failure.
    pub failed: u32,
    /// Throttled calls.
    pub throttled: u32,
    /// Mean duration in milliseconds.
    pub mean_ms: u32,
    /// Longest duration in milliseconds.
    pub max_ms: u32,
}

/// One finished call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecentCall {
    /// End of the call.
    pub at: Timestamp,
    /// Service of the cloud.
    pub service: &'static str,
    /// Name of the call, as in metrics.
    pub call: &'static str,
    /// `ok`, or the kind of the error.
    pub outcome: &'static str,
    /// Duration in milliseconds.
    pub ms: u32,
    /// Error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Number of calls that a cloud accepts in a period.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Calls between two resets.
    pub limit: u64,
    /// Calls that remain.
    pub remaining: u64,
    /// Time of the reset.
    pub resets: Timestamp,
}

/// A machine of the playground's cloud.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Health: a stopped machine is a warning.
    pub health: Health,
    /// Cloud that it belongs to.
    pub cloud: String,
    /// ID in the cloud.
    pub id: String,
    /// Name of the Node that it runs, whether the Node exists or not.
    pub node: String,
    /// `running`, `stopped`.
    pub state: String,
    /// Whether the cloud hides it from its API, as a fault of the tour.
    #[serde(skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// Machine type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Addresses.
    pub addresses: Vec<String>,
}

/// State of a key in the work queue of a controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// `idle`, `waiting`, `inWork` or `delayed`.
    pub state: WorkState,
    /// Since when it waits or is in work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Number of failures in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Time of the next sync, if one is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// End of the last sync, if it is still known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// Duration of the last sync in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u32>,
    /// Error of the last sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Position of a key in a work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkState {
    /// Not queued.
    #[default]
    Idle,
    /// In the queue.
    Waiting,
    /// A worker syncs it.
    InWork,
    /// It is queued again when a timer fires: a retry, or a later check.
    Delayed,
}

/// A Node.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Health: what is waited for, if the Node is not in order.
    pub health: Health,
    /// Cloud that owns its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// `spec.providerID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// ID of the machine in its cloud: the last part of the provider ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// `running`, `stopped`, `gone` or `unknown`, as far as a controller has found out.
    pub machine_state: String,
    /// Label `node.kubernetes.io/instance-type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Label `topology.kubernetes.io/zone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Label `topology.kubernetes.io/region`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Status of the condition `Ready`: `True`, `False` or `Unknown`.
    pub ready: String,
    /// Addresses as `TYPE ADDRESS`.
    pub addresses: Vec<String>,
    /// Taints as `KEY=VALUE:EFFECT`.
    pub taints: Vec<String>,
    /// Whether the cloud-node-controller has not initialised it yet.
    pub uninitialized: bool,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<String>,
    /// Creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    #[serde(skip_serializing_if = "is_false")]
    pub deleting: bool,
    /// Whether an operator has paused it.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Deletion that is held back although the machine seems to be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldDeletion>,
    /// State in the work queue of each controller that syncs it, by controller name.
    pub work: BTreeMap<String, Work>,
}

/// A deletion that is held back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldDeletion {
    /// One CamelCase word.
    pub reason: String,
    /// Reason and remedy.
    pub message: String,
    /// Command that releases it, if an operator has to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Health: what is waited for, if it has no working address.
    pub health: Health,
    /// Cloud of its load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// `spec.loadBalancerClass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// `spec.type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Ports as `NAME PROTOCOL PORT → NODEPORT`.
    pub ports: Vec<String>,
    /// `spec.externalTrafficPolicy`.
    pub traffic_policy: String,
    /// Creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    #[serde(skip_serializing_if = "is_false")]
    pub deleting: bool,
    /// Whether it has the finalizer of its load balancer.
    pub finalizer: bool,
    /// Whether an operator has paused it.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Addresses and host names of `status.loadBalancer`.
    pub addresses: Vec<String>,
    /// Condition `LoadBalancerReady`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Name of the load balancer in its cloud, if a plan of this process has shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<String>,
    /// Nodes that the load balancer sends traffic to, as of the last sync: the first 50 by name.
    pub targets: Vec<Target>,
    /// Number of all targets, including those that drain.
    pub target_count: usize,
    /// Nodes that are not targets, with the reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// The last plan that had steps, and its outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<LastPlan>,
    /// State of the cloud resources as of the last sync, if it was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// State in the work queue.
    pub work: Work,
}

/// A condition of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One CamelCase word.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// A target of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Name of the Node.
    pub node: String,
    /// Whether it gets no new connections.
    #[serde(skip_serializing_if = "is_false")]
    pub draining: bool,
}

/// Observed state of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Time of the observation.
    pub at: Timestamp,
    /// Whether the cloud has a load balancer.
    pub exists: bool,
    /// Errors of ports that do not work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Operation in progress in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// The last plan of a Service that had steps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastPlan {
    /// Time of the plan.
    pub at: Timestamp,
    /// What caused the sync: `userChange`, `nodes` or `drift`.
    pub trigger: String,
    /// Steps in order, at most 50.
    pub steps: Vec<PlanStep>,
    /// Number of all steps.
    pub step_count: usize,
    /// Warnings about settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// `inProgress`, `applied`, `waitingForLock`, `dryRun` or `failed`.
    pub outcome: String,
    /// Error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// End of the work on the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanStep {
    /// `create`, `update`, `delete`.
    pub verb: String,
    /// Kind of the resource, in the terms of the cloud.
    pub kind: String,
    /// Name of the resource.
    pub name: String,
    /// Changed fields, at most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Whether it was applied.
    pub done: bool,
}

/// A load balancer of the playground's cloud or of an L4 agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Health: whether it has targets that respond.
    pub health: Health,
    /// Cloud that it belongs to.
    pub cloud: String,
    /// Service that it belongs to, as `NAMESPACE/NAME`, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Addresses.
    pub addresses: Vec<String>,
    /// Listeners, with the state of each target.
    pub listeners: Vec<Listener>,
    /// Connections accepted so far.
    pub connections: u64,
    /// Bytes forwarded so far, in both directions.
    pub bytes: u64,
}

/// A listener of a load balancer.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// `TCP` or `UDP`, and the port.
    pub port: String,
    /// Targets by Node, with their health.
    pub targets: Vec<ListenerTarget>,
}

/// A target of a listener.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTarget {
    /// Name of the Node, or its address.
    pub node: String,
    /// Address and port.
    pub address: String,
    /// `healthy`, `unhealthy`, `draining` or `unknown`.
    pub state: String,
}

/// A route to a pod CIDR.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Health: whether the cloud has the route.
    pub health: Health,
    /// Cloud whose route table has it.
    pub cloud: String,
    /// Pod CIDR.
    pub destination: String,
    /// Node that it leads to.
    pub node: String,
}

/// A controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    /// Health.
    pub health: Health,
    /// Whether it runs in this process at the moment.
    pub running: bool,
    /// Its periodic loops, by name. Controllers that react to changes have queues, and may have loops in addition.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub loops: BTreeMap<String, Loop>,
}

/// A periodic loop of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loop {
    /// Health: whether its runs are on time, and whether the last one succeeded.
    pub health: Health,
    /// Whether it is running at the moment; otherwise it waits for its next run.
    pub running: bool,
    /// Since when it runs or waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Runs so far.
    pub runs: u64,
    /// Duration of the last run in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u32>,
    /// Time of the next run, if one is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// What the last run did, if the loop reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// A work queue.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Health: whether it makes progress.
    pub health: Health,
    /// Keys that wait for a worker.
    pub waiting: usize,
    /// Keys in work.
    pub in_work: usize,
    /// Keys with a timer.
    pub delayed: usize,
    /// Syncs so far.
    pub finished: u64,
    /// Failed syncs so far.
    pub failed: u64,
    /// Since when the oldest key has waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// Keys that are in work or failed in their last sync, at most 50.
    pub keys: BTreeMap<String, Work>,
}

/// A watch.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// Health: whether the watch is synced.
    pub health: Health,
    /// Number of objects.
    pub objects: usize,
    /// Since when it is interrupted; the last known state is in use meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Timestamp>,
    /// Restarts so far.
    pub restarts: u64,
}

/// An Event that this process has emitted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Time; of repeated Events, of the last one.
    pub at: Timestamp,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Reason, one CamelCase word.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Controller that emitted it.
    pub controller: String,
    /// Kind of the object, such as `Service`.
    pub object_kind: String,
    /// `NAMESPACE/NAME` of the object, or its name if it has no namespace.
    pub object: String,
    /// Number of times that it was emitted in a row.
    pub count: u32,
}

/// A step of the playground's tour.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TourStep {
    /// Title.
    pub title: String,
    /// What happens and why.
    pub text: String,
    /// `todo`, `waiting` (for the user), `running`, `passed` or `failed`.
    pub state: String,
    /// Checks, each with whether it is true.
    pub checks: Vec<(String, bool)>,
    /// Shell commands that perform the step; empty if only the playground can.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Shell commands that show the effects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<String>,
    /// Result of a step that has ended, with the reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// A fault of the playground's cloud.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// What happens while it is on.
    pub text: String,
    /// Whether it is on.
    pub on: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Maximum number of characters of a text from a user or a cloud.
const MAX_TEXT: usize = 2_000;

/// Limits a text from a user or a cloud in length.
pub fn text(text: impl Into<String>) -> String {
    let mut text = text.into();
    if text.len() <= MAX_TEXT {
        return text;
    }
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Health {
    /// As desired.
    pub fn ok() -> Health {
        Health { level: Level::Ok, reason: "Ok".to_owned(), message: String::new() }
    }

    /// Creates a health with a reason and a message.
    pub fn new(level: Level, reason: impl Into<String>, message: impl Into<String>) -> Health {
        Health { level, reason: reason.into(), message: text(message) }
    }

    /// Health of a component that returns `Ok`, or the reason why it does not work.
    pub fn of(result: Result<(), String>, reason: &str) -> Health {
        result.map_or_else(|message| Health::new(Level::Error, reason, message), |()| Health::ok())
    }

    /// Replaces this health by a more severe one.
    pub fn worsen(&mut self, other: Health) {
        if other.level > self.level {
            *self = other;
        }
    }
}
