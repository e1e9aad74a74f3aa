//! Applies the steps: one call each, with the error prefixes of the Go manager.

use bowline_cloud::{Applied, Error, ErrorKind, Result, Retry};

use super::super::State;
use super::super::group_steps::GroupRef;
use super::{Change, policies};
use crate::Aws;
use crate::api::elb::{NewLoadBalancer, NewPolicy};

/// Code of AWS for an instance that does not exist.
const INVALID_INSTANCE: &str = "InvalidInstance";

impl Aws {
    pub(in super::super) async fn apply_classic(&self, name: &str, change: &Change) -> Result<Applied<State>> {
        self.write_classic(name, change).await?;
        Ok(Applied::Done)
    }

    async fn write_classic(&self, name: &str, change: &Change) -> Result<()> {
        let during = |operation: &'static str| move |error: Error| error.during(operation);
        let elb = &self.elb;
        match change {
            Change::Create(new, groups) => self.create_classic(new, groups).await,
            Change::DetachSubnets(subnets) => {
                let outcome = elb.detach_subnets(name, subnets).await;
                outcome.map_err(during("error detaching AWS loadbalancer from subnets"))
            }
            Change::AttachSubnets(subnets) => {
                let outcome = elb.attach_subnets(name, subnets).await;
                outcome.map_err(during("error attaching AWS loadbalancer to subnets"))
            }
            Change::SetSecurityGroups(groups) => {
                let outcome = elb.apply_security_groups(name, &self.group_ids(groups).await?).await;
                outcome.map_err(during("error applying AWS loadbalancer security groups"))
            }
            Change::DeleteListeners(ports) => {
                let outcome = elb.delete_listeners(name, ports).await;
                outcome.map_err(during("error deleting AWS loadbalancer listeners"))
            }
            Change::CreateListeners(listeners) => {
                let outcome = elb.create_listeners(name, listeners).await.map_err(changed);
                outcome.map_err(during("error creating AWS loadbalancer listeners"))
            }
            Change::CreateProxyProtocolPolicy => {
                let outcome = self.create_policy(name, &policies::proxy_protocol()).await;
                outcome.map_err(during("error creating proxy protocol policy on load balancer"))
            }
            Change::SetBackendPolicies(port, policies) => {
                let outcome = elb.set_backend_policies(name, *port, policies).await;
                outcome.map_err(during("error adjusting AWS loadbalancer backend policies"))
            }
            Change::AddTags(tags) => {
                elb.add_tags(name, tags).await.map_err(during("unable to create additional load balancer tags"))
            }
            Change::SetAttributes(attributes) => {
                let outcome = elb.modify_attributes(name, attributes).await;
                outcome.map_err(during("Unable to update load balancer attributes during attribute sync"))
            }
            Change::CreateTlsPolicy(policy) => {
                let outcome = self.create_policy(name, policy).await;
                outcome.map_err(during("error creating security policy on load balancer"))
            }
            Change::SetTlsPolicy(port, policy) => {
                let outcome = elb.set_listener_policies(name, *port, std::slice::from_ref(policy)).await;
                let operation = || format!("error setting SSL negotiation policy '{policy}' on load balancer");
                outcome.map_err(|error| error.during(operation()))
            }
            Change::SetHealthCheck(check) => {
                let outcome = elb.configure_health_check(name, check).await;
                let operation = || format!("error configuring load balancer health check for {name:?}");
                outcome.map_err(|error| error.during(operation()))
            }
            Change::Register(ids) => self.register_instances(name, ids).await,
            Change::Deregister(ids) => elb.deregister_instances(name, ids).await,
            Change::Delete => elb.delete(name).await,
        }
    }

    async fn create_classic(&self, new: &NewLoadBalancer, groups: &[GroupRef]) -> Result<()> {
        let security_groups = self.group_ids(groups).await?;
        let new = NewLoadBalancer { security_groups, ..new.clone() };
        self.elb.create(&new).await.map(drop).map_err(changed)
    }

    /// Creates a policy; one that exists is a success.
    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<()> {
        match self.elb.create_policy(name, policy).await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    }

    /// Registers instances. One that was terminated a moment ago may still be in the cache, which would keep the others out.
    async fn register_instances(&self, name: &str, ids: &[String]) -> Result<()> {
        let outcome = self.elb.register_instances(name, ids).await;
        outcome.map_err(|error| match error.code() {
            Some(INVALID_INSTANCE) => {
                self.instance_cache.clear();
                error.retry(Retry::Backoff)
            }
            _ => error,
        })
    }
}

/// Replaces the error for a resource that exists with other settings: it has to be observed again.
fn changed(error: Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            let conflict = Error::new(ErrorKind::Conflict, error.operation(), error.message());
            error.code().map(str::to_owned).into_iter().fold(conflict, Error::with_code)
        }
        _ => error,
    }
}
