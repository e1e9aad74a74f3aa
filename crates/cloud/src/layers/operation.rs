//! What a cloud can be asked, by name: for metrics, logs and errors.

use std::fmt;

/// One method of the contract. The contract makes each of them repeatable: reads by nature, writes by their rules.
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
    AssignPodRange,
    ListRoutes,
    CreateRoute,
    DeleteRoute,
}

/// What operations are about. In many a cloud each of these is a service of its own, with limits and bad days of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// The cloud as a whole: whether it takes us at all.
    Access,
    Machines,
    Balancers,
    Routes,
}

impl Operation {
    /// What it is about.
    pub(crate) fn family(self) -> Family {
        match self {
            Operation::Check => Family::Access,
            Operation::FindInstances | Operation::ListInstances | Operation::AssignPodRange => Family::Machines,
            Operation::ObserveLoadBalancers
            | Operation::ListLoadBalancers
            | Operation::PlanLoadBalancer
            | Operation::ApplyLoadBalancer
            | Operation::PollLoadBalancer => Family::Balancers,
            Operation::ListRoutes | Operation::CreateRoute | Operation::DeleteRoute => Family::Routes,
        }
    }

    /// As a metric label.
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
            Operation::AssignPodRange => "assign_pod_range",
            Operation::ListRoutes => "list_routes",
            Operation::CreateRoute => "create_route",
            Operation::DeleteRoute => "delete_route",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label().replace('_', " "))
    }
}
