//! The kinds of records that the cloud has.

pub use bowline_simulator::Record;
pub(crate) use bowline_simulator::{Fields, Row, object};

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A server of Nova.
    Server,
    /// A flavor of Nova.
    Flavor,
    /// A network of Neutron.
    Network,
    /// A subnet of Neutron.
    Subnet,
    /// A port of Neutron.
    Port,
    /// A router of Neutron.
    Router,
    /// A floating IP of Neutron.
    FloatingIp,
    /// A security group of Neutron.
    SecurityGroup,
    /// A rule of a security group.
    SecurityGroupRule,
    /// A load balancer of Octavia.
    LoadBalancer,
    /// A listener of Octavia.
    Listener,
    /// A pool of Octavia.
    Pool,
    /// A member of a pool.
    Member,
    /// A health monitor of Octavia.
    HealthMonitor,
    /// A secret of Barbican.
    Secret,
    /// A container of Barbican.
    Container,
}

/// All records. The owner of a listener or pool is its load balancer, that of a member or monitor its pool.
pub(crate) type Records = bowline_simulator::Records<Kind>;
