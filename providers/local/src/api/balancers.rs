//! API of load balancers: user calls and management views.

use bowline_agent::fit_response;
use bowline_agent_client::{
    Balancer, ChangeRequest, CloudAddress, FindBalancersReply, FindBalancersRequest, OwnersReply, OwnersRequest,
};
use bowline_l4::LoadBalancerStatus;
use serde::{Deserialize, Serialize};

use crate::cloud::{LocalCloud, World};

use super::reply::{ApiError, ApiResult, ok};
use super::users::{read, write};

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
        ok(&FindBalancersReply { found: fit_response(request.asking.iter().map(|query| cloud.observe(world, query))) })
    };
    read(cloud, "observe-balancers", show, || ok(&FindBalancersReply { found: Vec::new() })).await
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
