//! The payload of a step: one writing call, with all that it needs. What a step before it makes has no ID yet when the plan is
//! made, and is found by what it hangs on.

use serde_json::Value;

use crate::api::Resource;
use crate::api::network::Port;
use crate::api::octavia::LoadBalancer;

/// What a step needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    /// The balancer that must be at rest before the call; `None` before it exists, and for calls that do not touch Octavia.
    pub(crate) balancer: Option<BalancerRef>,
    /// No earlier step of the plan writes to that load balancer: it was at rest when the plan was made.
    pub(crate) is_first: bool,
    pub(crate) change: Change,
}

/// A load balancer that Octavia has finished to work on, as a poll has read it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Polled {
    pub(crate) id: String,
    /// `None` if it is gone.
    pub(crate) balancer: Option<LoadBalancer>,
}

/// Which balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BalancerRef {
    Id(String),
    /// One that an earlier step makes.
    Name(String),
}

/// Which listener of the balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenerRef {
    Id(String),
    /// The one that an earlier step makes.
    At {
        protocol: String,
        port: u16,
    },
}

/// Which pool of the balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PoolRef {
    Id(String),
    /// The pool of this listener.
    Of(ListenerRef),
}

/// One writing call. `body` is what is sent, without its envelope and without the IDs that only `apply` can know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    CreateLoadBalancer {
        body: Value,
    },
    /// These four are about the payload's balancer.
    UpdateLoadBalancer {
        body: Value,
        tags: Retag,
    },
    /// Removes the tag of a Service, unless by then no other Service uses it: then the next plan deletes it.
    LeaveLoadBalancer {
        tag: String,
    },
    /// Unless by then another Service than the one with this tag uses it.
    DeleteLoadBalancer {
        cascade: bool,
        tag: String,
    },
    /// Deletes one that has failed before it was ever in service, and then fails itself: it is not the user's wish that is done.
    DiscardLoadBalancer,
    CreateListener {
        body: Value,
        /// Of a Service that comes to a balancer of somebody else's.
        joins: Option<Joining>,
    },
    RetagListener {
        id: String,
        body: Value,
        tags: Retag,
    },
    CreatePool {
        listener: ListenerRef,
        body: Value,
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
    /// Unless by then it is at another port than this one, which is empty if it is at none; and unless by then the balancer that it
    /// leads to is not one Service's alone.
    DeleteFloatingIp {
        id: String,
        port: String,
        leads_to: Option<Sole>,
    },
    CreateSecurityGroup {
        body: Value,
    },
    CreateSecurityGroupRule {
        group: GroupRef,
        body: Value,
    },
    /// Adds a group to those that the port has. Others change them, too: its revision tells whether they have since.
    JoinSecurityGroup {
        port: Box<Port>,
        group: GroupRef,
    },
    /// Takes a group from those that the port has.
    LeaveSecurityGroup {
        port: Box<Port>,
        group: String,
    },
    DeletePortTag {
        port: String,
        tag: String,
    },
    /// Updates a resource whatever it is like by then.
    Update {
        resource: Resource,
        id: String,
        body: Value,
    },
    /// Deletes a resource whatever it is like by then.
    Delete {
        resource: Resource,
        id: String,
    },
}

/// Who comes to a balancer that others use, and how many there may be in all by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joining {
    pub(crate) tag: String,
    pub(crate) most: i64,
}

/// A balancer that the Service with this tag alone uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sole {
    pub(crate) balancer: String,
    pub(crate) tag: String,
}

/// Tags that are added to those that there are by then, and some that are taken away. They are written all at once, and others who
/// share a balancer change them, too: so what was there when the plan was made does not count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Retag {
    pub(crate) add: Vec<String>,
    pub(crate) remove: Vec<String>,
}

impl Retag {
    /// No tag comes or goes.
    pub(crate) fn is_nothing(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    /// What becomes of these. Octavia breaks over a tag that is there twice, and some releases take an empty list for no list at
    /// all, so one that is to be empty has an empty tag.
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

/// Which security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupRef {
    Id(String),
    /// One that an earlier step makes. The name alone may be that of another cluster's.
    New {
        name: String,
        description: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_082_tags_of_others_stay_and_the_last_one_leaves_an_empty_one() {
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
                Retag { add: owned(add), remove: owned(remove) }.applied_to(&owned(now)),
                owned(then),
                "{now:?} {add:?} {remove:?}"
            );
        }
    }
}
