//! Operations of the provider contract, by name: for metrics, logs and errors.

use std::fmt;

/// One method of the contract. Each may be repeated: reads by nature, writes by the rules of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Check,
    FindInstances,
    ListInstances,
    ObserveLoadBalancers,
    ListLoadBalancers,
    PlanLoadBalancer,
    ApplyLoadBalancer,
    PollLoadBalancer,
    AssignPodCidr,
    ListRoutes,
    CreateRoute,
    DeleteRoute,
    PlanLoop,
    ApplyLoop,
}

/// Group of operations. In many clouds each group is a service of its own, with its own limits and outages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Access to the cloud as a whole.
    Access,
    Machines,
    LoadBalancers,
    Routes,
    Loops,
}

impl Operation {
    /// Returns the group of the operation.
    pub(crate) fn family(self) -> Family {
        match self {
            Operation::Check => Family::Access,
            Operation::FindInstances | Operation::ListInstances | Operation::AssignPodCidr => Family::Machines,
            Operation::ObserveLoadBalancers
            | Operation::ListLoadBalancers
            | Operation::PlanLoadBalancer
            | Operation::ApplyLoadBalancer
            | Operation::PollLoadBalancer => Family::LoadBalancers,
            Operation::ListRoutes | Operation::CreateRoute | Operation::DeleteRoute => Family::Routes,
            Operation::PlanLoop | Operation::ApplyLoop => Family::Loops,
        }
    }

    /// Returns the metric label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Operation::Check => "check",
            Operation::FindInstances => "find_instances",
            Operation::ListInstances => "list_instances",
            Operation::ObserveLoadBalancers => "observe_load_balancers",
            Operation::ListLoadBalancers => "list_load_balancers",
            Operation::PlanLoadBalancer => "plan_load_balancer",
            Operation::ApplyLoadBalancer => "apply_load_balancer",
            Operation::PollLoadBalancer => "poll_load_balancer",
            Operation::AssignPodCidr => "assign_pod_range",
            Operation::ListRoutes => "list_routes",
            Operation::CreateRoute => "create_route",
            Operation::DeleteRoute => "delete_route",
            Operation::PlanLoop => "plan_loop",
            Operation::ApplyLoop => "apply_loop",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label().replace('_', " "))
    }
}
