//! API of load balancers: user calls and management views.

use bowline_core::{ClusterName, LoadBalancerKey};
use bowline_l4::LoadBalancerStatus;
use serde::{Deserialize, Serialize};

use crate::balancers::{Balancer, Change, CloudAddress, Observation, Query};
use crate::cloud::{LocalCloud, World};

use super::reply::{ApiError, ApiResult, ok};
use super::users::{read, write};

/// Services to observe.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindBalancersRequest {
    pub(crate) asking: Vec<Query>,
}

/// Approximate maximum size of a response; a larger load balancer is returned alone. Half of what a client reads.
const MAX_RESPONSE: usize = 8 << 20;

/// Observations in the order of the request, or the first of them if the response would be too large; the client requests the
/// rest again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FindBalancersReply {
    pub(crate) found: Vec<Observation>,
}

/// Lists the owners of a cluster after this one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnersRequest {
    pub(crate) cluster: ClusterName,
    #[serde(default)]
    pub(crate) after: Option<LoadBalancerKey>,
    #[serde(default)]
    pub(crate) limit: Option<usize>,
}

/// Page of owners, and whether there are more.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnersReply {
    pub(crate) owners: Vec<LoadBalancerKey>,
    pub(crate) more: bool,
}

/// Change of one resource.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeRequest {
    pub(crate) asking: Query,
    pub(crate) change: Change,
}

/// All load balancers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListBalancersReply {
    pub(crate) balancers: Vec<BalancerView>,
}

/// All addresses.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListAddressesReply {
    pub(crate) addresses: Vec<CloudAddress>,
}

/// Load balancer with its addresses and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerView {
    /// The load balancer.
    pub balancer: Balancer,
    /// Its addresses.
    pub addresses: Vec<CloudAddress>,
    /// Status; `None` if the cloud has no data plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<LoadBalancerStatus>,
}

pub(super) async fn find(cloud: &LocalCloud, request: FindBalancersRequest) -> ApiResult {
    let (count, limit) = (request.asking.len(), cloud.page_size());
    if count > limit {
        return Err(ApiError::too_many_keys(count, limit));
    }
    let show = |world: Option<&World>| {
        ok(&FindBalancersReply { found: first_of(request.asking.iter().map(|query| cloud.observe(world, query))) })
    };
    read(cloud, "observe-balancers", show, || ok(&FindBalancersReply { found: Vec::new() })).await
}

/// Takes as many observations as fit into one response, at least one.
fn first_of(observations: impl Iterator<Item = Observation>) -> Vec<Observation> {
    let mut size = 0;
    let mut found = Vec::new();
    for observation in observations {
        size += observation.size();
        if size > MAX_RESPONSE && !found.is_empty() {
            break;
        }
        found.push(observation);
    }
    found
}

pub(super) async fn owners(cloud: &LocalCloud, request: OwnersRequest) -> ApiResult {
    let limit = request.limit.unwrap_or(usize::MAX).clamp(1, cloud.page_size());
    let page = |world: &World| world.balancers.owners(&request.cluster, request.after.as_ref(), limit);
    let show = |world: Option<&World>| {
        let (owners, more) = cloud.view(world, page);
        ok(&OwnersReply { owners, more })
    };
    read(cloud, "list-balancers", show, || ok(&OwnersReply { owners: Vec::new(), more: false })).await
}

pub(super) async fn change(cloud: &LocalCloud, request: ChangeRequest) -> ApiResult {
    let ChangeRequest { asking, change } = request;
    let kind = change.kind();
    write(cloud, kind, async { ok(&cloud.change_load_balancer(&asking, change).await?) }).await
}

/// All load balancers with their status.
pub(super) fn all(cloud: &LocalCloud) -> ListBalancersReply {
    ListBalancersReply { balancers: cloud.balancers().into_iter().map(|balancer| view(cloud, balancer)).collect() }
}

/// Load balancer with its status.
pub(super) fn view(cloud: &LocalCloud, balancer: Balancer) -> BalancerView {
    let addresses = cloud
        .read(|world| world.balancers.addresses_of(&balancer).map(|address| CloudAddress::clone(address)).collect());
    BalancerView { status: cloud.balancer_status(&balancer.id), balancer, addresses }
}
