//! The payload of a step: one writing call, with all that it needs. What a step before it makes has no ID yet when the plan is
//! made, and is found by what it hangs on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a step needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Payload {
    /// The balancer that must be at rest before the call; `None` before it exists, and for calls that do not touch Octavia.
    pub(crate) balancer: Option<BalancerRef>,
    pub(crate) change: Change,
}

/// Which balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum BalancerRef {
    Id(String),
    /// One that an earlier step makes.
    Name(String),
}

/// Which listener of the balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ListenerRef {
    Id(String),
    /// The one that an earlier step makes.
    At {
        protocol: String,
        port: u16,
    },
}

/// Which pool of the balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PoolRef {
    Id(String),
    /// The pool of this listener.
    Of(ListenerRef),
}

/// One writing call. `body` is what is sent, without its envelope and without the IDs that only `apply` can know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub(crate) enum Change {
    CreateLoadBalancer {
        body: Value,
    },
    UpdateLoadBalancer {
        id: String,
        body: Value,
    },
    /// Unless by then another Service than the one with this tag uses it.
    DeleteLoadBalancer {
        id: String,
        cascade: bool,
        tag: String,
    },
    /// Deletes one that has failed before it was ever in service, and then fails itself: it is not the user's wish that is done.
    DiscardLoadBalancer {
        id: String,
        cascade: bool,
    },
    /// Adds tags to those that the balancer has by then, and takes some of them away: others who share it change them, too.
    TagLoadBalancer {
        id: String,
        add: Vec<String>,
        remove: Vec<String>,
    },
    CreateListener {
        body: Value,
    },
    UpdateListener {
        id: String,
        body: Value,
    },
    DeleteListener {
        id: String,
    },
    CreatePool {
        listener: ListenerRef,
        body: Value,
    },
    UpdatePool {
        id: String,
        body: Value,
    },
    DeletePool {
        id: String,
    },
    SetMembers {
        pool: PoolRef,
        members: Vec<Value>,
    },
    CreateMember {
        pool: PoolRef,
        body: Value,
    },
    DeleteMember {
        pool: String,
        id: String,
    },
    CreateMonitor {
        pool: PoolRef,
        body: Value,
    },
    UpdateMonitor {
        id: String,
        body: Value,
    },
    DeleteMonitor {
        id: String,
    },
    /// At the VIP port of the payload's balancer. With each of these subnets in turn until one has room; none at all leaves the
    /// choice to Neutron.
    CreateFloatingIp {
        body: Value,
        subnets: Vec<String>,
    },
    /// To this port, or else to the VIP port of the payload's balancer. Only if nobody has it by then.
    AttachFloatingIp {
        id: String,
        port: Option<String>,
    },
    /// From this port.
    DetachFloatingIp {
        id: String,
        port: String,
    },
    UpdateFloatingIp {
        id: String,
        body: Value,
    },
    /// Unless by then it is at another port than this one, which is empty if it is at none.
    DeleteFloatingIp {
        id: String,
        port: String,
    },
    CreateSecurityGroup {
        body: Value,
    },
    UpdateSecurityGroup {
        id: String,
        body: Value,
    },
    DeleteSecurityGroup {
        id: String,
    },
    CreateSecurityGroupRule {
        group: GroupRef,
        body: Value,
    },
    DeleteSecurityGroupRule {
        id: String,
    },
    /// Adds a group to those that the port has.
    JoinSecurityGroup {
        port: SeenPort,
        group: GroupRef,
    },
    /// Takes a group from those that the port has.
    LeaveSecurityGroup {
        port: SeenPort,
        group: String,
    },
    DeletePortTag {
        port: String,
        tag: String,
    },
    /// No call at all: what comes before it is done, and then the pass fails with these words.
    Refuse {
        message: String,
    },
}

/// Which security group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum GroupRef {
    Id(String),
    /// One that an earlier step makes. The name alone may be that of another cluster's.
    New {
        name: String,
        description: String,
    },
}

/// A port and the groups that it had when it was seen. Others change them, too: the revision tells whether they have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenPort {
    pub(crate) id: String,
    pub(crate) groups: Vec<String>,
    pub(crate) revision: Option<u64>,
}
