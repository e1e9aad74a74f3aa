//! Methods with which a test changes and reads the account without going through its API.
//!
//! A kind of record is one of `vpc`, `internet_gateway`, `zone`, `subnet`, `route_table`, `security_group`, `instance`,
//! `network_interface`, `address`, `certificate`, `classic`, `load_balancer`, `listener` and `target_group`. Fields have the names of
//! the elements in responses; those with an underscore are internal.

use bowline_simulator::{Fields, Record, Service, object};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::auth::AccessKey;
use crate::ec2::add_rules;
use crate::fixture::Fixture;
use crate::options::Options;
use crate::simulator::Simulator;
use crate::{elb, elbv2};

impl Simulator {
    /// Changes the options. The change applies to all later requests.
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.state().options);
    }

    /// IDs of the resources that the account had at the start.
    pub fn fixture(&self) -> Fixture {
        self.state().fixture.clone()
    }

    // ---- permissions and credentials

    /// Denies an action, as in IAM policies: `ec2:CreateTags`, `elasticloadbalancing:AddTags`.
    pub fn deny(&self, action: &str) {
        self.state().options.denied.insert(action.to_owned());
    }

    /// Allows a denied action.
    pub fn allow(&self, action: &str) {
        self.state().options.denied.remove(action);
    }

    /// Replaces all access keys by this one, which does not expire.
    pub fn rotate_access_key(&self, id: &str, secret: &str) {
        let state = &mut *self.state();
        let (_, key) = AccessKey::of_account(&state.options.account);
        state.keys = [(id.to_owned(), AccessKey { secret: secret.to_owned(), ..key })].into();
    }

    /// Secret of an access key, for a check of signatures; `None` if the key is unknown.
    pub fn secret_key(&self, id: &str) -> Option<String> {
        self.state().keys.get(id).map(|key| key.secret.clone())
    }

    /// Expires all session credentials that were issued so far.
    pub fn expire_sessions(&self) {
        for key in self.state().keys.values_mut() {
            key.expires = key.expires.map(|_| Instant::now());
        }
    }

    // ---- records

    /// All records of a kind as responses show them, oldest first. ELB and ELBv2 records also have `_tags` and `_attributes`, target
    /// groups `_targets`.
    pub fn records(&self, kind: &'static str) -> Vec<Record> {
        let state = &mut *self.state();
        state.settle();
        let rows = state.records.of(kind).oldest_first();
        rows.into_iter().map(|row| object(state.view(kind, &row.record))).collect()
    }

    /// Security groups.
    pub fn security_groups(&self) -> Vec<Record> {
        self.records("security_group")
    }

    /// Classic load balancers.
    pub fn classic_load_balancers(&self) -> Vec<Record> {
        self.records("classic")
    }

    /// Load balancers of ELBv2.
    pub fn load_balancers(&self) -> Vec<Record> {
        self.records("load_balancer")
    }

    /// Listeners of ELBv2.
    pub fn listeners(&self) -> Vec<Record> {
        self.records("listener")
    }

    /// Target groups.
    pub fn target_groups(&self) -> Vec<Record> {
        let mut groups = self.records("target_group");
        let state = &*self.state();
        for group in &mut groups {
            group.set("LoadBalancerArns", elbv2::users(state, group.text("id")));
        }
        groups
    }

    /// Routes of a route table.
    pub fn routes(&self, table: &str) -> Vec<Value> {
        let tables = self.records("route_table").into_iter().filter(|record| record.text("id") == table);
        tables.flat_map(|table| table.get("routeSet").and_then(Value::as_array).cloned().unwrap_or_default()).collect()
    }

    /// Creates a record without validation and returns its ID. Fields that are not given get defaults.
    pub fn put(&self, kind: &'static str, fields: Value) -> String {
        self.state().put(kind, object(fields))
    }

    /// Creates a classic load balancer by hand: internet-facing in the public subnets, with these tags.
    pub fn put_classic_load_balancer(&self, name: &str, listeners: Value, tags: &[(&str, &str)]) -> String {
        elb::put(&mut self.state(), name, &listeners, tags)
    }

    /// Creates a load balancer of ELBv2 by hand, `network` or `application`: internet-facing in the public subnets, with these tags.
    /// Returns its ARN.
    pub fn put_load_balancer(&self, name: &str, kind: &str, tags: &[(&str, &str)]) -> String {
        elbv2::put(&mut self.state(), name, kind, tags)
    }

    /// Creates a TCP target group by hand and returns its ARN.
    pub fn put_target_group(&self, name: &str, port: u16, tags: &[(&str, &str)]) -> String {
        elbv2::put_target_group(&mut self.state(), name, port, tags)
    }

    /// Creates a TCP listener by hand and returns its ARN.
    pub fn put_listener(&self, load_balancer: &str, port: u16, target_group: &str, tags: &[(&str, &str)]) -> String {
        elbv2::put_listener(&mut self.state(), load_balancer, port, target_group, tags)
    }

    /// Creates a security group by hand and returns its ID.
    pub fn put_security_group(&self, name: &str, tags: &[(&str, &str)]) -> String {
        let vpc = self.fixture().vpc;
        let tags: Vec<_> = tags.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        self.put("security_group", json!({"groupName": name, "groupDescription": name, "vpcId": vpc, "tagSet": tags}))
    }

    /// Adds an inbound rule to a security group by hand: TCP from this CIDR to these ports. Returns `false` if it exists.
    pub fn put_rule(&self, group: &str, cidr: &str, from: u16, to: u16, description: Option<&str>) -> bool {
        let kind = if cidr.contains(':') { "Ipv6Ranges" } else { "IpRanges" };
        self.put_permission(group, "tcp", (Some(from.into()), Some(to.into())), (kind, cidr), description)
    }

    /// Adds the inbound rule for path MTU discovery from this CIDR. Returns `false` if it exists.
    pub fn put_icmp_rule(&self, group: &str, cidr: &str) -> bool {
        self.put_permission(group, "icmp", (Some(3), Some(4)), ("IpRanges", cidr), None)
    }

    /// Adds the inbound rule for all traffic from another group. Returns `false` if it exists.
    pub fn put_group_rule(&self, group: &str, source: &str) -> bool {
        self.put_permission(group, "-1", (None, None), ("Groups", source), None)
    }

    fn put_permission(
        &self,
        group: &str,
        protocol: &str,
        (from, to): (Option<i64>, Option<i64>),
        (kind, source): (&str, &str),
        description: Option<&str>,
    ) -> bool {
        let rule = json!({"protocol": protocol, "from": from, "to": to, "kind": kind, "source": source, "description": description});
        add_rules(&mut self.state(), group, vec![rule]).is_ok()
    }

    /// Adds a route by hand.
    pub fn put_route(&self, table: &str, cidr: &str, instance: &str) {
        let route =
            json!({"destinationCidrBlock": cidr, "instanceId": instance, "origin": "CreateRoute", "state": "active"});
        self.edit("route_table", table, |record| {
            if let Some(routes) = record.get_mut("_routes").and_then(Value::as_array_mut) {
                routes.push(route);
            }
        });
    }

    /// Changes a record without validation; `false` if it does not exist.
    pub fn edit(&self, kind: &'static str, id: &str, change: impl FnOnce(&mut Record)) -> bool {
        self.state().records.get_mut(kind, id).map(change).is_some()
    }

    /// Removes a record and what belongs to it, so that its ID is unknown; `false` if it did not exist.
    pub fn remove(&self, kind: &'static str, id: &str) -> bool {
        let records = &mut self.state().records;
        for part in ["network_interface", "listener"] {
            records.of_mut(part).retain(|row| row.owner != id);
        }
        records.of_mut(kind).remove(id).is_some()
    }

    /// Instance that the metadata service describes.
    pub fn set_own_instance(&self, id: &str) {
        self.state().own_instance = id.to_owned();
    }

    // ---- work in progress

    /// Completes all changes in progress: load balancers become active, targets stop draining, and hidden resources are shown.
    pub fn finish_work(&self) {
        let state = &mut *self.state();
        for job in state.jobs.all() {
            elbv2::finish(state, &job);
        }
        state.draining.clear();
        state.lingering.clear();
        state.show_hidden();
    }

    /// Makes this many of the next load balancers of ELBv2 end as `failed`.
    pub fn fail_work(&self, changes: u64) {
        self.state().jobs.fail_next(changes);
    }
}
