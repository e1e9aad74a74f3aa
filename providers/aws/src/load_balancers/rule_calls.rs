//! Calls that add and remove rules of security groups.
//!
//! The Network Load Balancers of a node group share its rules for path MTU discovery, and AWS rejects a whole call because of one rule
//! that exists. So that concurrent syncs of new Services do not reject each other's calls, these rules are added one call at a time,
//! and those that were added lately are remembered.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::groups::{MTU, is_needed_mtu};
use crate::Aws;
use crate::api::Filter;
use crate::api::ec2::{Rule, SecurityGroup};

/// Codes of AWS for rules that exist already, and for rules that do not exist.
const DUPLICATE: &str = "InvalidPermission.Duplicate";
const MISSING: &str = "InvalidPermission.NotFound";

/// Time for which added rules are remembered. Plans that were made before the rule was added are applied by then.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Rules for path MTU discovery that this process has added lately. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct MtuRules(Arc<Mutex<Vec<AddedRule>>>);

struct AddedRule {
    group: String,
    rule: Rule,
    at: Instant,
}

impl AddedRule {
    fn is(&self, group: &str, rule: &Rule) -> bool {
        self.group == group && self.rule.is_same(rule)
    }
}

fn is_mtu(rule: &Rule) -> bool {
    rule.description == MTU
}

impl Aws {
    /// Adds rules to a group.
    pub(super) async fn authorize(&self, group: &str, rules: &[Rule]) -> Result<()> {
        if !rules.iter().any(is_mtu) {
            return self.add_rules(group, rules).await;
        }
        let mut added = self.mtu_rules.0.lock().await;
        added.retain(|added| added.at.elapsed() < REMEMBERED);
        let is_new = |rule: &&Rule| !added.iter().any(|added| added.is(group, rule));
        let new: Vec<Rule> = rules.iter().filter(is_new).cloned().collect();
        if !new.iter().any(is_mtu) {
            drop(added);
            return if new.is_empty() { Ok(()) } else { self.add_rules(group, &new).await };
        }
        self.add_rules(group, &new).await?;
        let at = Instant::now();
        added.extend(new.into_iter().filter(is_mtu).map(|rule| AddedRule { group: group.to_owned(), rule, at }));
        Ok(())
    }

    /// Adds rules. AWS adds none if one of them exists; then the plan is made again, unless all exist.
    async fn add_rules(&self, group: &str, rules: &[Rule]) -> Result<()> {
        match self.ec2.authorize_ingress(group, rules).await {
            Err(error) if error.code() == Some(DUPLICATE) => {
                let observed = self.group_rules(group).await?;
                let is_present = |rule: &Rule| observed.iter().any(|other| other.is_same(rule));
                if rules.iter().all(is_present) { Ok(()) } else { Err(changed(&error)) }
            }
            outcome => outcome.map_err(|error| error.during("error authorizing security group ingress")),
        }
    }

    /// Removes rules from a group, but none for path MTU discovery that another load balancer has come to need.
    pub(super) async fn revoke(&self, group: &str, rules: &[Rule]) -> Result<()> {
        if !rules.iter().any(is_mtu) {
            return self.remove_rules(group, rules).await;
        }
        let mut added = self.mtu_rules.0.lock().await;
        let needed = self.needed_mtu_rules(group, rules).await?;
        let rules: Vec<Rule> = rules.iter().filter(|rule| !needed.contains(rule)).cloned().collect();
        added.retain(|added| !rules.iter().any(|rule| added.is(group, rule)));
        if rules.is_empty() { Ok(()) } else { self.remove_rules(group, &rules).await }
    }

    /// Returns which of the rules a load balancer needs whose own rules are not to be removed.
    async fn needed_mtu_rules(&self, group: &str, rules: &[Rule]) -> Result<Vec<Rule>> {
        let remaining: Vec<Rule> =
            self.group_rules(group).await?.into_iter().filter(|rule| !rules.contains(rule)).collect();
        let remaining = SecurityGroup { rules: remaining, ..SecurityGroup::default() };
        Ok(rules.iter().filter(|rule| is_needed_mtu(&remaining, rule)).cloned().collect())
    }

    async fn remove_rules(&self, group: &str, rules: &[Rule]) -> Result<()> {
        match self.ec2.revoke_ingress(group, rules).await {
            Err(error) if error.code() == Some(MISSING) => {
                let observed = self.group_rules(group).await?;
                let is_present = |rule: &Rule| observed.iter().any(|other| other.is_same(rule));
                if rules.iter().any(is_present) { Err(changed(&error)) } else { Ok(()) }
            }
            // The group was deleted, and its rules with it.
            Err(error) if error.is_not_found() => Ok(()),
            outcome => outcome.map_err(|error| error.during("error revoking security group ingress")),
        }
    }

    async fn group_rules(&self, group: &str) -> Result<Vec<Rule>> {
        let groups =
            self.ec2.security_groups(&[Filter::new("group-id", [group])]).await.map_err(Error::not_executed)?;
        Ok(groups.into_iter().flat_map(|group| group.rules).collect())
    }
}

/// Error for rules that have changed since they were observed.
fn changed(error: &Error) -> Error {
    Error::new(ErrorKind::Conflict, "change security group", error.message())
}
