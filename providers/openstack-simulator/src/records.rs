//! Kinds of records.

pub use bowline_simulator::Record;
pub(crate) use bowline_simulator::{Fields, Row, object};

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Nova server.
    Server,
    /// Nova flavor.
    Flavor,
    /// Neutron network.
    Network,
    /// Neutron subnet.
    Subnet,
    /// Neutron port.
    Port,
    /// Neutron router.
    Router,
    /// Neutron floating IP.
    FloatingIp,
    /// Neutron security group.
    SecurityGroup,
    /// Neutron security group rule.
    SecurityGroupRule,
    /// Octavia load balancer.
    LoadBalancer,
    /// Octavia listener.
    Listener,
    /// Octavia pool.
    Pool,
    /// Octavia pool member.
    Member,
    /// Octavia health monitor.
    HealthMonitor,
    /// Barbican secret.
    Secret,
    /// Barbican container.
    Container,
}

/// All records. The owner of a listener or pool is its load balancer, the owner of a member or health monitor its pool.
pub(crate) type Records = bowline_simulator::Records<Kind>;
