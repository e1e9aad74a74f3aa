//! The security group of a Service, and what it needs to be known for it.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use futures::try_join;

use super::super::names::{Names, described};
use super::super::observation::{Places, Security};
use super::super::servers;
use super::{OBSERVE, Observer, Service, told};
use crate::api::network::{self, Port, SecurityGroup, Subnet};

impl Observer<'_> {
    /// Where groups are not managed, there may be one from the time when they were, for a Service that had a balancer then.
    pub(super) async fn security(&self, service: Service<'_>, places: &Places) -> Result<Security> {
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
            self.member_subnet(places.member_subnet(balancer))
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

    /// The Service's, and those that earlier ones of its name left. The only one that an earlier one left together with its
    /// balancer goes on as the balancer does: as it is.
    async fn own_groups(
        &self,
        names: &Names<'_>,
        has_balancer: bool,
    ) -> Result<(Vec<SecurityGroup>, Vec<SecurityGroup>)> {
        let groups = self.named_groups(names, has_balancer).await?;
        // Nobody asks for them in every pass: they go in the one that makes the Service's own.
        if !groups.is_empty() && !self.sight.is_listed() {
            return Ok((groups, Vec::new()));
        }
        let stale = self.stale_groups(names, &groups).await?;
        match groups.is_empty() && has_balancer && stale.len() == 1 {
            true => Ok((stale, groups)),
            false => Ok((groups, stale)),
        }
    }

    /// By name, which has the Service's UID in it.
    async fn named_groups(&self, names: &Names<'_>, has_balancer: bool) -> Result<Vec<SecurityGroup>> {
        let named = match names.has_uid() {
            true => self.sight.groups("name", &names.security_group(), |group| &group.name).await?,
            false => Vec::new(),
        };
        Ok(of_cluster(named, &names.security_group_description(), has_balancer))
    }

    /// Those of other Services of the name, which were before: theirs have the same description. So has that of a Service whose
    /// UID nobody knows any more.
    async fn stale_groups(&self, names: &Names<'_>, own: &[SecurityGroup]) -> Result<Vec<SecurityGroup>> {
        let description = names.security_group_description();
        let mut stale = self.sight.groups("description", &description, |group| &group.description).await?;
        stale.retain(|group| !own.iter().any(|own| own.id == group.id));
        Ok(stale)
    }

    /// The ports that have one of the groups.
    async fn members_of(&self, groups: &[SecurityGroup]) -> Result<Vec<Port>> {
        let mut members: Vec<Port> = Vec::new();
        for group in groups {
            let ports =
                network::PORTS.list(self.sight.session, &[("security_groups", &group.id)]).await.map_err(told)?;
            add_new(&mut members, ports);
        }
        Ok(members)
    }

    async fn node_ports(&self, service: Service<'_>) -> Result<Vec<Port>> {
        let backends = servers::behind(self.config, &service.spec.targets, service.settings.family)?;
        let mut servers: Vec<_> = backends.iter().map(|backend| backend.server.as_str()).collect();
        servers.sort_unstable();
        servers.dedup();
        self.sight.ports_of(&servers).await
    }

    async fn member_subnet(&self, id: Option<&str>) -> Result<Option<Subnet>> {
        let Some(id) = id else { return Ok(None) };
        let subnet = self.sight.subnet(id).await?;
        subnet.map(Some).ok_or_else(|| {
            let message = format!("there is no subnet {id}, or none that is visible, where the members should be");
            Error::new(ErrorKind::InvalidConfig, OBSERVE, message).retry(Retry::Backoff)
        })
    }
}

/// Those that are not among them yet.
fn add_new(known: &mut Vec<Port>, mut ports: Vec<Port>) {
    ports.retain(|port| !known.iter().any(|known| known.id == port.id));
    known.extend(ports);
}

/// The name says nothing of the cluster. Where a group is described as this cluster's, that is the one; where none is, one of
/// another cluster counts for a Service that has a balancer: the cluster has got another name since.
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
    fn a_group_of_another_cluster_counts_only_where_the_cluster_was_renamed() {
        let own = "Security Group for default/web Service LoadBalancer in cluster kubernetes";
        let foreign = "Security Group for default/web Service LoadBalancer in cluster other";
        let ids = |groups: &[(&str, &str)], has_balancer| {
            let groups = groups.iter().map(|(id, description)| group(id, description)).collect();
            of_cluster(groups, own, has_balancer).into_iter().map(|group| group.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[("a", own), ("b", foreign)], true), ["a"]);
        assert_eq!(ids(&[("b", foreign)], true), ["b"]);
        assert!(ids(&[("b", foreign)], false).is_empty());
        assert_eq!(ids(&[("c", "somebody wrote something else")], false), ["c"]);
    }
}
