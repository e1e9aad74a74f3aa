//! Balancers over the API: what users ask and order, and what the owner sees.

use bowline_core::{ClusterName, LoadBalancerKey};
use bowline_l4::BalancerStatus;
use serde::{Deserialize, Serialize};

use crate::balancers::{Asking, Balancer, Change, CloudAddress, Observation};
use crate::cloud::{LocalCloud, World};

use super::reply::{Outcome, Refusal, good};
use super::users::{look, order};

/// Who wants to know.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindBalancersRequest {
    pub(crate) asking: Vec<Asking>,
}

/// Approximate size up to which an answer takes in further load balancers; one that has more by itself is answered alone.
/// Half of the most that a client reads.
const LARGEST_ANSWER: usize = 8 << 20;

/// An answer for each asker in their order, or for the first ones only: the rest would make the answer too large, and is to be
/// asked for again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FindBalancersReply {
    pub(crate) found: Vec<Observation>,
}

/// Whose balancers there are: those owners in a cluster that come after this one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnersRequest {
    pub(crate) cluster: ClusterName,
    #[serde(default)]
    pub(crate) after: Option<LoadBalancerKey>,
    #[serde(default)]
    pub(crate) limit: Option<usize>,
}

/// Some owners, and whether there are more.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnersReply {
    pub(crate) owners: Vec<LoadBalancerKey>,
    pub(crate) more: bool,
}

/// An order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeRequest {
    pub(crate) asking: Asking,
    pub(crate) change: Change,
}

/// All balancers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListBalancersReply {
    pub(crate) balancers: Vec<BalancerView>,
}

/// All addresses.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListAddressesReply {
    pub(crate) addresses: Vec<CloudAddress>,
}

/// A balancer as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerView {
    /// What the cloud keeps of it.
    pub balancer: Balancer,
    /// Its addresses.
    pub addresses: Vec<CloudAddress>,
    /// How it is doing; `None` if the cloud has no data plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BalancerStatus>,
}

pub(super) async fn find(cloud: &LocalCloud, asked: FindBalancersRequest) -> Outcome {
    let (count, most) = (asked.asking.len(), cloud.page_size());
    if count > most {
        return Err(Refusal::too_many_keys(count, most));
    }
    let show = |world: Option<&World>| {
        good(&FindBalancersReply { found: first_of(asked.asking.iter().map(|asking| cloud.observe(world, asking))) })
    };
    look(cloud, "observe-balancers", show, || good(&FindBalancersReply { found: Vec::new() })).await
}

/// As many observations as fit into one answer, and at least one.
fn first_of(observations: impl Iterator<Item = Observation>) -> Vec<Observation> {
    let mut size = 0;
    let mut found = Vec::new();
    for observation in observations {
        size += observation.size();
        if size > LARGEST_ANSWER && !found.is_empty() {
            break;
        }
        found.push(observation);
    }
    found
}

pub(super) async fn owners(cloud: &LocalCloud, asked: OwnersRequest) -> Outcome {
    let limit = asked.limit.unwrap_or(usize::MAX).clamp(1, cloud.page_size());
    let page = |world: &World| world.balancers.owners(&asked.cluster, asked.after.as_ref(), limit);
    let show = |world: Option<&World>| {
        let (owners, more) = cloud.view(world, page);
        good(&OwnersReply { owners, more })
    };
    look(cloud, "list-balancers", show, || good(&OwnersReply { owners: Vec::new(), more: false })).await
}

pub(super) async fn change(cloud: &LocalCloud, ordered: ChangeRequest) -> Outcome {
    let ChangeRequest { asking, change } = ordered;
    let kind = change.kind();
    order(cloud, kind, async { good(&cloud.order(&asking, change).await?) }).await
}

/// All balancers, with how they are doing.
pub(super) fn all(cloud: &LocalCloud) -> ListBalancersReply {
    ListBalancersReply { balancers: cloud.balancers().into_iter().map(|balancer| view(cloud, balancer)).collect() }
}

/// A balancer, with how it is doing.
pub(super) fn view(cloud: &LocalCloud, balancer: Balancer) -> BalancerView {
    let addresses = cloud
        .read(|world| world.balancers.addresses_of(&balancer).map(|address| CloudAddress::clone(address)).collect());
    BalancerView { status: cloud.balancer_status(&balancer.id), balancer, addresses }
}
