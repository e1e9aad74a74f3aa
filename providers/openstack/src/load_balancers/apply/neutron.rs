//! Writes to Neutron: floating IPs, security groups, and the ports that have them.

use bowline_cloud::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::{APPLY, Writer, only, text, with};
use crate::api::network::{self as api, FloatingIp, Port, SecurityGroup};
use crate::api::octavia::{self, LoadBalancer};
use crate::load_balancers::change::{GroupRef, Sole};
use crate::load_balancers::plan::in_use;
use crate::load_balancers::write_cache::newer;

/// Maximum number of attempts to change a port that other clients change concurrently.
const ATTEMPTS: u32 = 4;

impl Writer<'_> {
    // ---- floating IPs

    /// Creates a floating IP from the first subnet with a free address. The body has the port of a load balancer that existed when
    /// the plan was made.
    pub(super) async fn create_floating_ip(
        &self,
        balancer: &LoadBalancer,
        body: Value,
        subnets: &[String],
    ) -> Result<()> {
        let body = if balancer.id.is_empty() { body } else { with(body, "port_id", &balancer.vip_port_id) };
        let bodies = subnets.iter().map(|subnet| with(body.clone(), "subnet_id", subnet));
        let anywhere = subnets.is_empty().then(|| body.clone());
        let mut outcome = Ok(());
        for body in bodies.chain(anywhere) {
            match api::FLOATING_IPS.create(self.session, &body).await {
                Ok(_) => return Ok(()),
                // A port has at most one floating IP, so a second attempt is rejected if the first one succeeded.
                Err(error) if error.status() == Some(409) && self.has_floating_ip(text(&body, "port_id")).await? => {
                    return Ok(());
                }
                // Another subnet may have a free address.
                Err(error) if matches!(error.status(), Some(400 | 404 | 409)) => outcome = Err(error),
                Err(error) => return Err(error),
            }
        }
        outcome
    }

    /// Attaches a floating IP that is at no port: Neutron would move one without a warning.
    pub(super) async fn attach_floating_ip(
        &self,
        id: &str,
        port: Option<String>,
        balancer: &LoadBalancer,
    ) -> Result<()> {
        let port = port.unwrap_or_else(|| balancer.vip_port_id.clone());
        let floating = api::FLOATING_IPS.get(self.session, id).await?;
        match floating.port_id.as_str() {
            "" => self.move_floating_ip(id, json!(port)).await,
            existing if existing == port => Ok(()),
            _ => Err(in_use(APPLY, &floating)),
        }
    }

    pub(super) async fn detach_floating_ip(&self, id: &str, port: &str) -> Result<()> {
        let floating = api::FLOATING_IPS.get(self.session, id).await?;
        match floating.port_id.as_str() {
            "" => Ok(()),
            existing if existing == port => self.move_floating_ip(id, Value::Null).await,
            _ => Err(attached_elsewhere(&floating)),
        }
    }

    async fn move_floating_ip(&self, id: &str, port: Value) -> Result<()> {
        api::FLOATING_IPS.resource.update(self.session, id, &json!({ "port_id": port })).await
    }

    /// Deletes a floating IP, unless a Service that uses the load balancer since the plan was made is reached by it.
    pub(super) async fn delete_floating_ip(&self, id: &str, port: &str, leads_to: Option<Sole>) -> Result<()> {
        if let Some(sole) = leads_to {
            let found = octavia::LOAD_BALANCERS.find(self.session, &sole.balancer).await?;
            if let Some(balancer) = found {
                self.check_unshared(&balancer, &sole.tag).await?;
            }
        }
        match api::FLOATING_IPS.find(self.session, id).await? {
            Some(floating) if !floating.port_id.is_empty() && floating.port_id != port => {
                Err(attached_elsewhere(&floating))
            }
            Some(_) => api::FLOATING_IPS.resource.delete(self.session, id).await,
            None => Ok(()),
        }
    }

    async fn has_floating_ip(&self, port: &str) -> Result<bool> {
        let existing = api::FLOATING_IPS.list(self.session, &[("port_id", port)]).await?;
        Ok(!port.is_empty() && existing.iter().any(|floating| floating.port_id == port))
    }

    // ---- security groups

    /// Creates a security group. Neutron does not enforce unique names, so this lists them first.
    pub(super) async fn create_group(&self, body: &Value) -> Result<()> {
        let listed = self.groups_like(text(body, "name"), text(body, "description")).await;
        let listed = listed.map_err(Error::not_executed)?;
        if let [id] = listed.as_slice() {
            self.write_cache.created_group(text(body, "name"), id.clone());
        }
        if listed.is_empty() {
            let created = api::SECURITY_GROUPS.create(self.session, body).await?;
            self.write_cache.created_group(&created.name, created.id);
        }
        Ok(())
    }

    pub(super) async fn create_rule(&self, group: &GroupRef, body: Value) -> Result<()> {
        let group = self.group_id(group).await?;
        match api::SECURITY_GROUP_RULES.create(self.session, &with(body, "security_group_id", &group)).await {
            // The rule exists. A fault about a quota has another kind.
            Err(error) if error.status() == Some(409) && error.kind() == ErrorKind::Conflict => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn group_id(&self, group: &GroupRef) -> Result<String> {
        let (name, description) = match group {
            GroupRef::Id(id) => return Ok(id.clone()),
            GroupRef::New { name, description } => (name, description),
        };
        if let Some(id) = self.write_cache.group(name) {
            return Ok(id);
        }
        only("security groups", name, self.groups_like(name, description).await?)
    }

    async fn groups_like(&self, name: &str, description: &str) -> Result<Vec<String>> {
        let found = api::SECURITY_GROUPS.list(self.session, &[("name", name)]).await?;
        let is_same = |group: &SecurityGroup| group.name == name && group.description == description;
        Ok(found.into_iter().filter(is_same).map(|group| group.id).collect())
    }

    // ---- ports

    /// Adds a group to a port or removes it. Neutron replaces all groups of a port at once, and several Services write them: a write
    /// based on a stale revision (412) or on a deleted group (404) is retried with the current groups. A deleted port is a success,
    /// because its server is deleted as a rule.
    pub(super) async fn change_groups(&self, port: Port, group: &GroupRef, adds: bool) -> Result<()> {
        let (id, group) = (port.id.clone(), self.group_id(group).await?);
        let mut last = self.write_cache.port(&id).await;
        let mut seen = newer(port, last.take());
        let mut rejection = None;
        for _ in 0..ATTEMPTS {
            let now = match seen.take() {
                Some(port) => Some(port),
                None => api::PORTS.find(self.session, &id).await?,
            };
            let Some(port) = now else { return Ok(()) };
            let Some(groups) = changed(&port.security_groups, &group, adds) else { return Ok(()) };
            let body = json!({ "security_groups": groups });
            match api::update_port(self.session, &id, &body, port.revision_number).await {
                Ok(written) => {
                    *last = Some(written);
                    return Ok(());
                }
                Err(error) if matches!(error.status(), Some(404 | 412)) => rejection = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(rejection.unwrap_or_else(|| Error::new(ErrorKind::Conflict, APPLY, "the port is not written")))
    }
}

/// The floating IP was attached to another port after the plan was made; the next plan observes that.
fn attached_elsewhere(floating: &FloatingIp) -> Error {
    let FloatingIp { floating_ip_address, port_id, .. } = floating;
    let message = format!("floating IP {floating_ip_address} is attached to port {port_id} now and is left there");
    Error::new(ErrorKind::Conflict, APPLY, message)
}

/// Returns the groups with this one added or removed; `None` if nothing changes.
fn changed(groups: &[String], group: &str, adds: bool) -> Option<Vec<String>> {
    let others = groups.iter().filter(|existing| *existing != group).cloned();
    let then: Vec<String> = others.chain(adds.then(|| group.to_owned())).collect();
    (then.len() != groups.len()).then_some(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_added_and_removed_once() {
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
