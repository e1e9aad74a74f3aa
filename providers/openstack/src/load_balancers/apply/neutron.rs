//! What is written to Neutron: floating IPs, security groups, and the ports that have them.

use bowline_cloud::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::{APPLY, Writer, text, told, with};
use crate::api::network::{self as api, FloatingIp, Port, SecurityGroup};
use crate::api::octavia::{self, LoadBalancer};
use crate::load_balancers::change::{GroupRef, Sole};
use crate::load_balancers::plan::taken;
use crate::load_balancers::written::newer;

/// How often a change of a port is tried that others change at the same time.
const TRIES: u32 = 4;

impl Writer<'_> {
    // ---- floating IPs

    /// From the first of the subnets that has one to give. The plan knows the port of a balancer that was there.
    pub(super) async fn create_floating_ip(
        &self,
        balancer: &LoadBalancer,
        body: Value,
        subnets: &[String],
    ) -> Result<()> {
        let body = if balancer.id.is_empty() { body } else { with(body, "port_id", &balancer.vip_port_id) };
        let bodies = subnets.iter().map(|subnet| with(body.clone(), "subnet_id", subnet));
        let anywhere = subnets.is_empty().then(|| body.clone());
        let mut refusal = Ok(());
        for body in bodies.chain(anywhere) {
            match api::FLOATING_IPS.create(self.session, &body).await {
                Ok(_) => return Ok(()),
                // A port has one floating IP at most, so that the second attempt is refused if the first one came through.
                Err(error) if error.status() == Some(409) && self.has_floating_ip(text(&body, "port_id")).await? => {
                    return Ok(());
                }
                // Another subnet may have one.
                Err(error) if matches!(error.status(), Some(400 | 404 | 409)) => refusal = Err(told(error)),
                Err(error) => return Err(told(error)),
            }
        }
        refusal
    }

    /// Neutron takes an address from whoever has it, without a word.
    pub(super) async fn attach_floating_ip(
        &self,
        id: &str,
        port: Option<String>,
        balancer: &LoadBalancer,
    ) -> Result<()> {
        let port = port.unwrap_or_else(|| balancer.vip_port_id.clone());
        let floating = api::FLOATING_IPS.get(self.session, id).await.map_err(told)?;
        match floating.port_id.as_str() {
            "" => self.move_floating_ip(id, json!(port)).await,
            there if there == port => Ok(()),
            _ => Err(taken(APPLY, &floating)),
        }
    }

    pub(super) async fn detach_floating_ip(&self, id: &str, port: &str) -> Result<()> {
        let floating = api::FLOATING_IPS.get(self.session, id).await.map_err(told)?;
        match floating.port_id.as_str() {
            "" => Ok(()),
            there if there == port => self.move_floating_ip(id, Value::Null).await,
            _ => Err(moved(&floating)),
        }
    }

    async fn move_floating_ip(&self, id: &str, port: Value) -> Result<()> {
        api::FLOATING_IPS.resource.update(self.session, id, &json!({ "port_id": port })).await.map_err(told)
    }

    /// A Service that has come to use the balancer since the plan was made is reached by its address.
    pub(super) async fn delete_floating_ip(&self, id: &str, port: &str, leads_to: Option<Sole>) -> Result<()> {
        if let Some(sole) = leads_to {
            let found = octavia::LOAD_BALANCERS.find(self.session, &sole.balancer).await.map_err(told)?;
            if let Some(balancer) = found {
                self.check_unshared(&balancer, &sole.tag).await?;
            }
        }
        match api::FLOATING_IPS.find(self.session, id).await.map_err(told)? {
            Some(floating) if !floating.port_id.is_empty() && floating.port_id != port => Err(moved(&floating)),
            Some(_) => api::FLOATING_IPS.resource.delete(self.session, id).await.map_err(told),
            None => Ok(()),
        }
    }

    async fn has_floating_ip(&self, port: &str) -> Result<bool> {
        let there = api::FLOATING_IPS.list(self.session, &[("port_id", port)]).await.map_err(told)?;
        Ok(!port.is_empty() && there.iter().any(|floating| floating.port_id == port))
    }

    // ---- security groups

    /// Neutron creates any number of groups with one name, so the step lists them first.
    pub(super) async fn create_group(&self, body: &Value) -> Result<()> {
        let listed = self.groups_like(text(body, "name"), text(body, "description")).await;
        let listed = listed.map_err(Error::executed_nothing)?;
        if let [id] = listed.as_slice() {
            self.written.created_group(text(body, "name"), id.clone());
        }
        if listed.is_empty() {
            let made = api::SECURITY_GROUPS.create(self.session, body).await.map_err(told)?;
            self.written.created_group(&made.name, made.id);
        }
        Ok(())
    }

    pub(super) async fn create_rule(&self, group: &GroupRef, body: Value) -> Result<()> {
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
        if let Some(id) = self.written.group(name) {
            return Ok(id);
        }
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

    pub(super) async fn join_group(&self, port: Port, group: &GroupRef) -> Result<()> {
        let group = self.group_id(group).await?;
        self.change_groups(port, &group, true).await
    }

    pub(super) async fn leave_group(&self, port: Port, group: &str) -> Result<()> {
        self.change_groups(port, group, false).await
    }

    /// Groups are written all at once, and are of several Services: a change on the ground of what is no longer so is refused,
    /// and decided again on what the port has now. That may also be a group that is gone (404). A port that is gone has gone with
    /// its machine, as a rule.
    async fn change_groups(&self, port: Port, group: &str, joins: bool) -> Result<()> {
        let id = port.id.clone();
        let mut last = self.written.port(&id).await;
        let mut seen = newer(port, last.take());
        let mut refusal = None;
        for _ in 0..TRIES {
            let now = match seen.take() {
                Some(port) => Some(port),
                None => api::PORTS.find(self.session, &id).await.map_err(told)?,
            };
            let Some(port) = now else { return Ok(()) };
            let Some(groups) = changed(&port.security_groups, group, joins) else { return Ok(()) };
            let body = json!({ "security_groups": groups });
            match api::update_port(self.session, &id, &body, port.revision_number).await {
                Ok(written) => {
                    *last = Some(written);
                    return Ok(());
                }
                Err(error) if matches!(error.status(), Some(404 | 412)) => refusal = Some(error),
                Err(error) => return Err(told(error)),
            }
        }
        Err(refusal.map_or_else(|| Error::new(ErrorKind::Conflict, APPLY, "the port is not written"), told))
    }
}

/// Somebody uses it elsewhere now; whoever plans anew sees that.
fn moved(floating: &FloatingIp) -> Error {
    let FloatingIp { floating_ip_address, port_id, .. } = floating;
    let message = format!("floating IP {floating_ip_address} is at port {port_id} now, and is left alone there");
    Error::new(ErrorKind::Conflict, APPLY, message)
}

/// With or without the group; `None` if that is so already.
fn changed(groups: &[String], group: &str, joins: bool) -> Option<Vec<String>> {
    let others = groups.iter().filter(|there| *there != group).cloned();
    let then: Vec<String> = others.chain(joins.then(|| group.to_owned())).collect();
    (then.len() != groups.len()).then_some(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_joined_and_left_once() {
        let groups = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let joined = |names: &[&str], group: &str| changed(&groups(names), group, true);
        let left = |names: &[&str], group: &str| changed(&groups(names), group, false);
        assert_eq!(joined(&["a"], "b"), Some(groups(&["a", "b"])));
        assert_eq!(joined(&["a", "b"], "b"), None);
        assert_eq!(left(&["a", "b", "c"], "b"), Some(groups(&["a", "c"])));
        assert_eq!(left(&["a"], "b"), None);
        assert_eq!(left(&["a"], "a"), Some(Vec::new()));
    }
}
