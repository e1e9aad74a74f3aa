//! The security group of a Service, and what it needs to be known for it.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::LoadBalancerSpec;
use futures::try_join;

use super::super::names::Names;
use super::super::observation::{Places, Security};
use super::super::servers;
use super::super::settings::Settings;
use super::sight::Sight;
use super::{OBSERVE, Observer, told};
use crate::api::network::{self, Port, SecurityGroup, SecurityGroupRule, Subnet};
use crate::api::octavia::LoadBalancer;

impl Observer<'_> {
    /// Where groups are not managed, there may be one from the time when they were.
    pub(super) async fn security(
        &self,
        sight: &Sight<'_>,
        names: &Names<'_>,
        spec: &LoadBalancerSpec,
        settings: &Settings,
        places: &Places,
        balancer: Option<&LoadBalancer>,
    ) -> Result<Security> {
        let groups = sight.groups_named(&names.security_group()).await.map_err(told)?;
        if !self.config.load_balancer.manage_security_groups {
            let ports = self.members_of(&groups).await?;
            return Ok(Security { groups, ports, ..Security::default() });
        }
        let of_balancer = balancer.map(|balancer| balancer.vip_subnet_id.as_str()).unwrap_or_default();
        let subnet = [places.member_subnet_id.as_str(), of_balancer].into_iter().find(|id| !id.is_empty());
        let (rules, node_ports, member_subnet) =
            try_join!(self.rules(&groups), self.node_ports(sight, spec, settings), self.member_subnet(sight, subnet))?;
        Ok(Security { groups, rules, node_ports, member_subnet, ports: Vec::new() })
    }

    /// Of a Service that is forgotten nobody knows the UID, which is in the name; the description is enough.
    pub(super) async fn security_to_remove(
        &self,
        sight: &Sight<'_>,
        names: &Names<'_>,
        is_forgotten: bool,
    ) -> Result<Security> {
        let groups = match is_forgotten {
            true => sight.groups_described(&names.security_group_description()).await,
            false => sight.groups_named(&names.security_group()).await,
        };
        let groups = groups.map_err(told)?;
        let ports = self.members_of(&groups).await?;
        Ok(Security { groups, ports, ..Security::default() })
    }

    /// The ports that have one of the groups.
    async fn members_of(&self, groups: &[SecurityGroup]) -> Result<Vec<Port>> {
        let mut members: Vec<Port> = Vec::new();
        for group in groups {
            let ports = network::ports(self.session, &[("security_groups", &group.id)]).await.map_err(told)?;
            let news = ports.into_iter().filter(|port| !members.iter().any(|known| known.id == port.id));
            members.extend(news.collect::<Vec<_>>());
        }
        Ok(members)
    }

    /// Of the only one: of several nobody knows which is meant.
    async fn rules(&self, groups: &[SecurityGroup]) -> Result<Vec<SecurityGroupRule>> {
        match groups {
            [group] => {
                network::security_group_rules(self.session, &[("security_group_id", &group.id)]).await.map_err(told)
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn node_ports(&self, sight: &Sight<'_>, spec: &LoadBalancerSpec, settings: &Settings) -> Result<Vec<Port>> {
        let backends = servers::behind(self.config, &spec.targets, settings.family)?;
        let mut servers: Vec<_> = backends.iter().map(|backend| backend.server.as_str()).collect();
        servers.sort_unstable();
        servers.dedup();
        sight.ports_of_all(&servers).await.map_err(told)
    }

    async fn member_subnet(&self, sight: &Sight<'_>, id: Option<&str>) -> Result<Option<Subnet>> {
        let Some(id) = id else { return Ok(None) };
        let subnet = sight.subnet(id).await.map_err(told)?;
        subnet.map(Some).ok_or_else(|| {
            let message = format!("there is no subnet {id}, or none that is visible, where the members should be");
            Error::new(ErrorKind::InvalidConfig, OBSERVE, message).retry(Retry::Backoff)
        })
    }
}
