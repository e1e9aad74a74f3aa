//! Observes the security groups of a Service, and the ports of its nodes.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use futures::try_join;

use super::super::names::{Names, described};
use super::super::observation::{Placement, Security};
use super::super::servers;
use super::{OBSERVE, Observer, Service, during_observe};
use crate::api::network::{self, Port, SecurityGroup, Subnet};

impl Observer<'_> {
    /// Reads groups and ports. Where groups are not managed, an existing Service may still have one from the time when they were.
    pub(super) async fn security(&self, service: Service<'_>, placement: &Placement) -> Result<Security> {
        let Service { names, balancer, .. } = service;
        if !self.config.load_balancer.manage_security_groups {
            let groups = if balancer.is_some() { self.named_groups(&names, true).await? } else { Vec::new() };
            let ports = self.members_of(&groups).await?;
            return Ok(Security { groups, ports, ..Security::default() });
        }
        let (groups, stale) = self.own_groups(&names, balancer.is_some()).await?;
        let (ports, node_ports, member_subnet) = try_join!(
            self.members_of(&stale),
            self.node_ports(service),
            self.member_subnet(placement.member_subnet(balancer))
        )?;
        Ok(Security { groups, stale, ports, node_ports, member_subnet })
    }

    pub(super) async fn security_to_remove(&self, names: &Names<'_>, has_balancer: bool) -> Result<Security> {
        let groups = self.named_groups(names, has_balancer).await?;
        let stale = self.stale_groups(names, &groups).await?;
        let (mut ports, of_stale) = try_join!(self.members_of(&groups), self.members_of(&stale))?;
        add_new(&mut ports, of_stale);
        Ok(Security { groups, stale, ports, ..Security::default() })
    }

    /// Returns the groups of the Service, and those that earlier Services of its name left. A single group that an earlier Service
    /// left together with its load balancer is taken over like the load balancer.
    async fn own_groups(
        &self,
        names: &Names<'_>,
        has_balancer: bool,
    ) -> Result<(Vec<SecurityGroup>, Vec<SecurityGroup>)> {
        let groups = self.named_groups(names, has_balancer).await?;
        // They are not read in every sync, only in the one that creates the Service's own group.
        if !groups.is_empty() && !self.reader.is_listed() {
            return Ok((groups, Vec::new()));
        }
        let stale = self.stale_groups(names, &groups).await?;
        match groups.is_empty() && has_balancer && stale.len() == 1 {
            true => Ok((stale, groups)),
            false => Ok((groups, stale)),
        }
    }

    /// Returns the groups of the Service by name, which contains its UID.
    async fn named_groups(&self, names: &Names<'_>, has_balancer: bool) -> Result<Vec<SecurityGroup>> {
        let named = match names.has_uid() {
            true => self.reader.groups("name", &names.security_group(), |group| &group.name).await?,
            false => Vec::new(),
        };
        Ok(of_cluster(named, &names.security_group_description(), has_balancer))
    }

    /// Returns the groups of earlier Services of the name, which have the same description. If the UID is unknown, these are all
    /// groups of the name.
    async fn stale_groups(&self, names: &Names<'_>, own: &[SecurityGroup]) -> Result<Vec<SecurityGroup>> {
        let description = names.security_group_description();
        let mut stale = self.reader.groups("description", &description, |group| &group.description).await?;
        stale.retain(|group| !own.iter().any(|own| own.id == group.id));
        Ok(stale)
    }

    /// Returns the ports with one of the groups.
    async fn members_of(&self, groups: &[SecurityGroup]) -> Result<Vec<Port>> {
        let mut members: Vec<Port> = Vec::new();
        for group in groups {
            let ports = network::PORTS
                .list(self.reader.session, &[("security_groups", &group.id)])
                .await
                .map_err(during_observe)?;
            add_new(&mut members, ports);
        }
        Ok(members)
    }

    async fn node_ports(&self, service: Service<'_>) -> Result<Vec<Port>> {
        let backends = servers::behind(self.config, &service.spec.targets, service.settings.family)?;
        let mut servers: Vec<_> = backends.iter().map(|backend| backend.server.as_str()).collect();
        servers.sort_unstable();
        servers.dedup();
        self.reader.ports_of(&servers).await
    }

    async fn member_subnet(&self, id: Option<&str>) -> Result<Option<Subnet>> {
        let Some(id) = id else { return Ok(None) };
        let subnet = self.reader.subnet(id).await?;
        subnet.map(Some).ok_or_else(|| {
            let message = format!("the subnet {id}, where the members should be, does not exist or is not visible");
            Error::new(ErrorKind::InvalidConfig, OBSERVE, message).retry(Retry::Backoff)
        })
    }
}

/// Adds the ports that are not in the list yet.
fn add_new(known: &mut Vec<Port>, mut ports: Vec<Port>) {
    ports.retain(|port| !known.iter().any(|known| known.id == port.id));
    known.extend(ports);
}

/// Selects the groups of this cluster by description, because names do not contain it. If there are none, those of another cluster
/// count for a Service that has a load balancer: the cluster was renamed.
fn of_cluster(named: Vec<SecurityGroup>, description: &str, has_balancer: bool) -> Vec<SecurityGroup> {
    let (own, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|group| {
        let is_of_another = described(&group.description).is_some() && group.description != description;
        !is_of_another
    });
    if own.is_empty() && has_balancer { others } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: &str, description: &str) -> SecurityGroup {
        SecurityGroup { id: id.to_owned(), description: description.to_owned(), ..SecurityGroup::default() }
    }

    #[test]
    fn a_group_of_another_cluster_is_used_only_after_a_cluster_rename() {
        let own = "Security Group for default/web Service LoadBalancer in cluster kubernetes";
        let foreign = "Security Group for default/web Service LoadBalancer in cluster other";
        let ids = |groups: &[(&str, &str)], has_balancer| {
            let groups = groups.iter().map(|(id, description)| group(id, description)).collect();
            of_cluster(groups, own, has_balancer).into_iter().map(|group| group.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[("a", own), ("b", foreign)], true), ["a"]);
        assert_eq!(ids(&[("b", foreign)], true), ["b"]);
        assert!(ids(&[("b", foreign)], false).is_empty());
        assert_eq!(ids(&[("c", "another description")], false), ["c"]);
    }
}
