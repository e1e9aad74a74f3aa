//! Payload of a plan step: one write with all that it needs. A resource that an earlier step creates has no ID when the plan is made;
//! `apply` looks it up by name, or through the resource that it belongs to.

use serde_json::Value;

use crate::api::Resource;
use crate::api::network::Port;
use crate::api::octavia::LoadBalancer;

/// Payload of a plan step.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    /// The load balancer that must be ACTIVE before the write; `None` before it exists, and for writes that do not touch Octavia.
    pub(crate) balancer: Option<BalancerRef>,
    /// No earlier step of the plan writes to that load balancer: it was ACTIVE when the plan was made.
    pub(crate) is_first: bool,
    pub(crate) change: Change,
}

/// A load balancer that Octavia has finished changing, as the last poll read it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Polled {
    pub(crate) id: String,
    /// `None` if it is deleted.
    pub(crate) balancer: Option<LoadBalancer>,
}

/// Reference to a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BalancerRef {
    Id(String),
    /// One that an earlier step creates.
    Name(String),
}

/// Reference to a listener of the load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenerRef {
    /// An existing one.
    Id(String),
    /// One that an earlier step creates.
    At { protocol: String, port: u16 },
}

/// Reference to a pool of the load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PoolRef {
    Id(String),
    /// The pool of this listener.
    Of(ListenerRef),
}

/// One write. `body` is the request body without its envelope and without the IDs that are known only when the step is applied.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Creates a load balancer, unless one of its name exists.
    CreateLoadBalancer { body: Value },
    /// Removes the tag of a Service from the load balancer, unless no other Service uses it by then: the next plan deletes it.
    LeaveLoadBalancer { tag: String },
    /// Deletes the load balancer, unless a Service other than the one with this tag uses it by then.
    DeleteLoadBalancer { cascade: bool, tag: String },
    /// Deletes a load balancer that failed before it was ever in service. The step fails afterwards: the Service has none yet.
    DiscardLoadBalancer,
    /// Creates a listener, with `joins` on the load balancer of another Service.
    CreateListener { body: Value, joins: Option<Joining> },
    /// Creates the pool of a listener.
    CreatePool { listener: ListenerRef, body: Value },
    /// Replaces all members of a pool.
    SetMembers { pool: PoolRef, members: Vec<Value> },
    /// Adds a member to a pool.
    CreateMember { pool: PoolRef, body: Value },
    /// Removes a member from a pool.
    DeleteMember { pool: String, id: String },
    /// Creates the health monitor of a pool.
    CreateMonitor { pool: PoolRef, body: Value },
    /// Creates a floating IP at the VIP port of the load balancer, from the first of these subnets with a free address. Without
    /// subnets, Neutron chooses one.
    CreateFloatingIp { body: Value, subnets: Vec<String> },
    /// Attaches a floating IP to this port, by default the VIP port of the load balancer. Only if it is at no port by then.
    AttachFloatingIp { id: String, port: Option<String> },
    /// Detaches a floating IP from this port.
    DetachFloatingIp { id: String, port: String },
    /// Deletes a floating IP, unless by then it is at a port other than this one (empty: at none), or more than one Service uses
    /// the load balancer behind it.
    DeleteFloatingIp { id: String, port: String, leads_to: Option<Sole> },
    /// Creates a security group, unless one of its name and description exists.
    CreateSecurityGroup { body: Value },
    /// Creates a rule of a security group.
    CreateSecurityGroupRule { group: GroupRef, body: Value },
    /// Adds a security group to those of the port, or removes it. Other clients change them as well, which the port's revision shows.
    UpdatePortGroups { port: Box<Port>, group: GroupRef, adds: bool },
    /// Removes a tag from a port.
    DeletePortTag { port: String, tag: String },
    /// Updates a resource whatever its state is by then. Only load balancers and listeners have `tags` to change.
    Update { resource: Resource, id: String, body: Value, tags: TagChange },
    /// Deletes a resource whatever its state is by then.
    Delete { resource: Resource, id: String },
}

/// A Service that joins a load balancer of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joining {
    pub(crate) tag: String,
    /// Maximum number of Services that share it (`max-shared-lb`).
    pub(crate) max: i64,
}

/// A load balancer that only the Service with this tag uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sole {
    pub(crate) balancer: String,
    pub(crate) tag: String,
}

/// Tags to add and to remove. Octavia replaces all tags of a resource at once, and Services that share a load balancer change them
/// concurrently, so the change applies to the tags at the time of the write, not to those of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TagChange {
    pub(crate) add: Vec<String>,
    pub(crate) remove: Vec<String>,
}

impl TagChange {
    pub(crate) fn adding(tag: String) -> TagChange {
        TagChange { add: vec![tag], ..TagChange::default() }
    }

    pub(crate) fn removing(tag: String) -> TagChange {
        TagChange { remove: vec![tag], ..TagChange::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    /// Returns the tags after the change. Octavia fails on a duplicate tag, and some releases ignore an empty list, so a list that
    /// becomes empty has one empty tag.
    pub(crate) fn applied_to(&self, now: &[String]) -> Vec<String> {
        let mut then: Vec<String> = Vec::new();
        let stays = now.iter().filter(|tag| !tag.is_empty() && !self.remove.contains(tag));
        for tag in stays.chain(&self.add) {
            if !then.contains(tag) {
                then.push(tag.clone());
            }
        }
        match then.is_empty() && !now.is_empty() {
            true => vec![String::new()],
            false => then,
        }
    }
}

/// Reference to a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupRef {
    /// An existing one.
    Id(String),
    /// One that an earlier step creates. Another cluster may have a group of the same name.
    New { name: String, description: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_082_other_tags_stay_and_removing_the_last_one_leaves_an_empty_tag() {
        let owned = |tags: &[&str]| tags.iter().map(|&tag| tag.to_owned()).collect::<Vec<_>>();
        let table = [
            [&["a"][..], &["b"], &[], &["a", "b"]],
            [&["a", "b"], &["b"], &[], &["a", "b"]],
            [&["a", "b"], &[], &["a"], &["b"]],
            [&["a"], &[], &["a"], &[""]],
            [&[], &[], &["a"], &[]],
            [&["a", "x"], &["b"], &["a"], &["x", "b"]],
            [&[""], &["a"], &[], &["a"]],
            [&["a", "b"], &["b"], &["a"], &["b"]],
        ];
        for [now, add, remove, then] in table {
            assert_eq!(
                TagChange { add: owned(add), remove: owned(remove) }.applied_to(&owned(now)),
                owned(then),
                "{now:?} {add:?} {remove:?}"
            );
        }
    }
}
