//! Reads what belongs to a Network Load Balancer.
//!
//! An existing one takes one call for its listeners, one for its attributes, and one for the targets of each target group. The target
//! groups of all load balancers are read together.

use bowline_cloud::Result;
use bowline_core::DesiredLoadBalancer;
use futures::future::{join_all, try_join};

use super::super::annotations::Values;
use super::super::subnets::Network;
use super::{Observed, attributes, target_groups};
use crate::Aws;
use crate::api::ec2::Subnet;
use crate::api::{Filter, Tags, elbv2};

impl Aws {
    /// Reads what the listings do not contain. `all_groups` are the target groups of the region.
    pub(in super::super) async fn observe_network(
        &self,
        one: &elbv2::LoadBalancer,
        tags: &Tags,
        desired: &DesiredLoadBalancer,
        all_groups: &[elbv2::TargetGroup],
        network: &Network,
    ) -> Result<Observed> {
        let groups = all_groups.iter().filter(|group| group.load_balancer_arns.contains(&one.arn)).cloned();
        let (load_balancer, tags) = (one.clone(), tags.clone());
        if desired.spec.is_none() {
            let of_group = |group| target_groups::Observed { group, ..target_groups::Observed::default() };
            let target_groups = groups.map(of_group).collect();
            return Ok(Observed { load_balancer, tags, target_groups, ..Observed::default() });
        }
        let needs_attributes =
            attributes::needs_groups(Values(&desired.annotations), desired.settings.proxy_protocol, &tags);
        let groups = async {
            let read = join_all(groups.map(|group| self.observe_group(group, needs_attributes))).await;
            read.into_iter().collect::<Result<Vec<_>>>()
        };
        let (listeners, attributes, target_groups, subnets) = futures::try_join!(
            self.elbv2.listeners(&one.arn),
            self.elbv2.attributes(&one.arn),
            groups,
            self.subnets_of(one, network)
        )?;
        Ok(Observed { load_balancer, tags, attributes, listeners, target_groups, subnets })
    }

    async fn observe_group(
        &self,
        group: elbv2::TargetGroup,
        needs_attributes: bool,
    ) -> Result<target_groups::Observed> {
        let attributes = async {
            match needs_attributes {
                true => self.elbv2.target_group_attributes(&group.arn).await,
                false => Ok(elbv2::Attributes::new()),
            }
        };
        let (health, attributes) = try_join(self.elbv2.targets(&group.arn), attributes).await?;
        Ok(target_groups::Observed { targets: target_groups::registered(health), group, attributes })
    }

    /// Returns the subnets of a load balancer. Those outside the VPC of the cluster are read.
    async fn subnets_of(&self, one: &elbv2::LoadBalancer, network: &Network) -> Result<Vec<Subnet>> {
        let ids: Vec<&String> = one.zones.iter().map(|zone| &zone.subnet_id).collect();
        let mut subnets: Vec<_> = network.subnets.iter().filter(|subnet| ids.contains(&&subnet.id)).cloned().collect();
        let missing: Vec<_> = ids.into_iter().filter(|id| !subnets.iter().any(|subnet| subnet.id == **id)).collect();
        if !missing.is_empty() {
            subnets.extend(self.ec2.subnets(&[Filter::new("subnet-id", missing)]).await?);
        }
        subnets.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(subnets)
    }
}
