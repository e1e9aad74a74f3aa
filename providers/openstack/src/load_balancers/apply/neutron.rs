//! What is written to Neutron: floating IPs, security groups, and the ports that have them.

use bowline_cloud::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::{APPLY, Writer, misplaced, text, told, with};
use crate::api::network::{self as api, FloatingIp, SecurityGroup};
use crate::api::octavia::{self, LoadBalancer};
use crate::load_balancers::change::{Change, GroupRef, SeenPort, Sole};
use crate::load_balancers::plan::taken;

/// How often a change of a port is tried that others change at the same time.
const TRIES: u32 = 4;
/// Somebody has changed it since it was looked at.
const PRECONDITION_FAILED: u16 = 412;

impl Writer<'_> {
    /// `seen` is the balancer whose address it is about, where the plan could not know that.
    pub(super) async fn write_to_neutron(&self, change: Change, seen: Option<&LoadBalancer>) -> Result<()> {
        let session = self.session;
        match change {
            Change::CreateFloatingIp { body, subnets } => {
                let body = match seen {
                    Some(balancer) => with(body, "port_id", &balancer.vip_port_id),
                    None => body,
                };
                self.create_floating_ip(body, &subnets).await
            }
            Change::AttachFloatingIp { id, port } => {
                let port = port.as_ref().or_else(|| seen.map(|balancer| &balancer.vip_port_id));
                self.attach_floating_ip(&id, port.map(String::as_str).unwrap_or_default()).await
            }
            Change::DetachFloatingIp { id, port } => self.detach_floating_ip(&id, &port).await,
            Change::UpdateFloatingIp { id, body } => api::FLOATING_IPS.update(session, &id, &body).await.map_err(told),
            Change::DeleteFloatingIp { id, port, leads_to: None } => self.delete_floating_ip(&id, &port).await,
            Change::DeleteFloatingIp { id, port, leads_to: Some(sole) } => {
                self.check_sole(&sole).await?;
                self.delete_floating_ip(&id, &port).await
            }
            change => self.write_security(change).await,
        }
    }

    async fn write_security(&self, change: Change) -> Result<()> {
        let session = self.session;
        match change {
            Change::CreateSecurityGroup { body } => self.create_group(&body).await,
            Change::UpdateSecurityGroup { id, body } => {
                api::SECURITY_GROUPS.update(session, &id, &body).await.map_err(told)
            }
            Change::DeleteSecurityGroup { id } => api::SECURITY_GROUPS.delete(session, &id).await.map_err(told),
            Change::CreateSecurityGroupRule { group, body } => self.create_rule(&group, body).await,
            Change::DeleteSecurityGroupRule { id } => {
                api::SECURITY_GROUP_RULES.delete(session, &id).await.map_err(told)
            }
            Change::JoinSecurityGroup { port, group } => {
                let group = self.group_id(&group).await?;
                self.change_groups(port, |groups| joined(groups, &group)).await
            }
            Change::LeaveSecurityGroup { port, group } => self.change_groups(port, |groups| left(groups, &group)).await,
            Change::DeletePortTag { port, tag } => api::delete_port_tag(session, &port, &tag).await.map_err(told),
            change => Err(misplaced(&change)),
        }
    }

    // ---- floating IPs

    /// From the first of the subnets that has one to give.
    async fn create_floating_ip(&self, body: Value, subnets: &[String]) -> Result<()> {
        let Some((last, others)) = subnets.split_last() else {
            return self.try_floating_ip(&body).await?.map_err(told);
        };
        for subnet in others {
            if self.try_floating_ip(&with(body.clone(), "subnet_id", subnet)).await?.is_ok() {
                return Ok(());
            }
        }
        self.try_floating_ip(&with(body, "subnet_id", last)).await?.map_err(told)
    }

    /// The inner error is a refusal, which another subnet may not have. A port has one floating IP at most, so that the second
    /// attempt is refused if the first one came through.
    async fn try_floating_ip(&self, body: &Value) -> Result<std::result::Result<(), Error>> {
        match api::FLOATING_IPS.create(self.session, body).await {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.status() == Some(409) && self.has_floating_ip(text(body, "port_id")).await? => {
                Ok(Ok(()))
            }
            Err(error) if matches!(error.status(), Some(400 | 404 | 409)) => Ok(Err(error)),
            Err(error) => Err(told(error)),
        }
    }

    /// Neutron takes an address from whoever has it, without a word.
    async fn attach_floating_ip(&self, id: &str, port: &str) -> Result<()> {
        let floating = api::FLOATING_IPS.get(self.session, id).await.map_err(told)?;
        match floating.port_id.as_str() {
            "" => api::FLOATING_IPS.update(self.session, id, &json!({ "port_id": port })).await.map_err(told),
            there if there == port => Ok(()),
            _ => Err(taken(APPLY, &floating)),
        }
    }

    async fn detach_floating_ip(&self, id: &str, port: &str) -> Result<()> {
        let floating = api::FLOATING_IPS.get(self.session, id).await.map_err(told)?;
        match floating.port_id.as_str() {
            "" => Ok(()),
            there if there == port => {
                api::FLOATING_IPS.update(self.session, id, &json!({ "port_id": null })).await.map_err(told)
            }
            _ => Err(moved(&floating)),
        }
    }

    /// Whoever has come to use the balancer since the plan was made is reached by its address.
    async fn check_sole(&self, sole: &Sole) -> Result<()> {
        match octavia::LOAD_BALANCERS.get(self.session, &sole.balancer).await {
            Ok(balancer) => self.check_unshared(&balancer, &sole.tag).await,
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(told(error)),
        }
    }

    async fn delete_floating_ip(&self, id: &str, port: &str) -> Result<()> {
        match api::FLOATING_IPS.get(self.session, id).await {
            Ok(floating) if !floating.port_id.is_empty() && floating.port_id != port => Err(moved(&floating)),
            Ok(_) => api::FLOATING_IPS.delete(self.session, id).await.map_err(told),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(told(error)),
        }
    }

    async fn has_floating_ip(&self, port: &str) -> Result<bool> {
        let there = api::FLOATING_IPS.list(self.session, &[("port_id", port)]).await.map_err(told)?;
        Ok(!port.is_empty() && there.iter().any(|floating| floating.port_id == port))
    }

    // ---- security groups

    /// Neutron creates any number of groups with one name, so the step lists them first.
    async fn create_group(&self, body: &Value) -> Result<()> {
        let listed = self.groups_like(text(body, "name"), text(body, "description")).await;
        match listed.map_err(Error::executed_nothing)?.is_empty() {
            true => api::SECURITY_GROUPS.create(self.session, body).await.map(drop).map_err(told),
            false => Ok(()),
        }
    }

    async fn create_rule(&self, group: &GroupRef, body: Value) -> Result<()> {
        let group = self.group_id(group).await?;
        match api::SECURITY_GROUP_RULES.create(self.session, &with(body, "security_group_id", &group)).await {
            Ok(_) => Ok(()),
            // There is such a rule already; of quotas and the like Neutron says so in the fault.
            Err(error) if error.status() == Some(409) && error.clone().during(APPLY).kind() == ErrorKind::Conflict => {
                Ok(())
            }
            Err(error) => Err(told(error)),
        }
    }

    async fn group_id(&self, group: &GroupRef) -> Result<String> {
        let (name, description) = match group {
            GroupRef::Id(id) => return Ok(id.clone()),
            GroupRef::New { name, description } => (name, description),
        };
        match self.groups_like(name, description).await?.as_slice() {
            [id] => Ok(id.clone()),
            others => {
                let count = others.len();
                let message = format!("there are {count} security groups named {name}, where there was to be one");
                Err(Error::new(ErrorKind::Conflict, APPLY, message))
            }
        }
    }

    async fn groups_like(&self, name: &str, description: &str) -> Result<Vec<String>> {
        let found = api::SECURITY_GROUPS.list(self.session, &[("name", name)]).await.map_err(told)?;
        let is_it = |group: &SecurityGroup| group.name == name && group.description == description;
        Ok(found.into_iter().filter(is_it).map(|group| group.id).collect())
    }

    // ---- ports

    /// Groups are written all at once, and are of several Services: a change on the ground of what is no longer so is refused,
    /// and decided anew.
    async fn change_groups(&self, port: SeenPort, wanted: impl Fn(&[String]) -> Option<Vec<String>>) -> Result<()> {
        let id = port.id.clone();
        let mut seen = Some(port).filter(|port| port.revision.is_some());
        for _ in 0..TRIES {
            let port = match seen.take() {
                Some(port) => port,
                None => match self.port(&id).await? {
                    Some(port) => port,
                    None => return Ok(()),
                },
            };
            let Some(groups) = wanted(&port.groups) else { return Ok(()) };
            match api::update_port(self.session, &id, &json!({ "security_groups": groups }), port.revision).await {
                Err(error) if error.status() == Some(PRECONDITION_FAILED) => {}
                Err(error) if error.is_not_found() => return Ok(()),
                written => return written.map_err(told),
            }
        }
        let message = format!("port {id} is being changed by others all the time");
        Err(Error::new(ErrorKind::Conflict, APPLY, message))
    }

    /// `None` if it is gone: with the machine, as a rule.
    async fn port(&self, id: &str) -> Result<Option<SeenPort>> {
        match api::PORTS.get(self.session, id).await {
            Ok(port) => {
                Ok(Some(SeenPort { id: port.id, groups: port.security_groups, revision: port.revision_number }))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(told(error)),
        }
    }
}

/// Somebody uses it elsewhere now; whoever plans anew sees that.
fn moved(floating: &FloatingIp) -> Error {
    let FloatingIp { floating_ip_address, port_id, .. } = floating;
    let message = format!("floating IP {floating_ip_address} is at port {port_id} now, and is left alone there");
    Error::new(ErrorKind::Conflict, APPLY, message)
}

/// With the group; `None` if it is among them already.
fn joined(groups: &[String], group: &str) -> Option<Vec<String>> {
    let is_in = groups.iter().any(|there| there == group);
    (!is_in).then(|| groups.iter().cloned().chain([group.to_owned()]).collect())
}

/// Without the group; `None` if it is not among them.
fn left(groups: &[String], group: &str) -> Option<Vec<String>> {
    let is_in = groups.iter().any(|there| there == group);
    is_in.then(|| groups.iter().filter(|there| *there != group).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_joined_and_left_once() {
        let groups = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(joined(&groups(&["a"]), "b"), Some(groups(&["a", "b"])));
        assert_eq!(joined(&groups(&["a", "b"]), "b"), None);
        assert_eq!(left(&groups(&["a", "b", "c"]), "b"), Some(groups(&["a", "c"])));
        assert_eq!(left(&groups(&["a"]), "b"), None);
        assert_eq!(left(&groups(&["a"]), "a"), Some(Vec::new()));
    }
}
