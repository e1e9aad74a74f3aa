//! Options of a simulated account.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline_simulator::Work;

/// Default region.
pub const REGION: &str = "us-east-1";

/// Default account ID.
pub const ACCOUNT: &str = "123456789012";

/// ID of the access key that the account has.
pub const ACCESS_KEY: &str = "AKIASIMULATED0000001";

/// Secret of [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "simulated/secret/key/of/the/account+0001";

/// Token that the container credentials endpoint expects in `Authorization`.
pub const CONTAINER_TOKEN: &str = "simulated-container-token";

/// Token that `AssumeRoleWithWebIdentity` expects.
pub const WEB_IDENTITY_TOKEN: &str = "simulated.web.identity";

/// Options of a simulated account.
#[derive(Debug, Clone)]
pub struct Options {
    /// Region.
    pub region: String,
    /// Account ID.
    pub account: String,
    /// Cluster in the tags of the fixture.
    pub cluster: String,
    /// Whether there is a control-plane instance, which the metadata service describes.
    pub control_plane: bool,
    /// Maximum number of items on a page of EC2, also if the request has no `MaxResults`.
    pub ec2_page: usize,
    /// Maximum number of items on a page of ELB and ELBv2, also if the request has no `PageSize`.
    pub elb_page: usize,
    /// Quotas.
    pub limits: Limits,
    /// Number of reads that do not show a new security group, load balancer or target group yet.
    pub hidden_reads: u64,
    /// Time until a new load balancer of ELBv2 is `active`.
    pub work: Work,
    /// Time for which a deregistered target is `draining`.
    pub draining: Duration,
    /// Time for which the network interfaces of a deleted load balancer use its security groups.
    pub lingering: Duration,
    /// Lifetime of session credentials, unless the request names another one.
    pub session: Duration,
    /// Maximum difference between the clocks of client and simulator. Default: unchecked.
    pub clock_skew: Option<Duration>,
    /// External ID that `AssumeRole` requires.
    pub external_id: Option<String>,
    /// Denied actions, as in IAM policies: `ec2:CreateTags`, `elasticloadbalancing:AddTags`.
    pub denied: BTreeSet<String>,
}

/// Quotas of the account.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Classic load balancers.
    pub classic_load_balancers: usize,
    /// Load balancers of ELBv2.
    pub load_balancers: usize,
    /// Listeners of a load balancer of ELBv2.
    pub listeners: usize,
    /// Target groups.
    pub target_groups: usize,
    /// Targets of a target group.
    pub targets: usize,
    /// Security groups.
    pub security_groups: usize,
    /// Inbound rules of a security group, for each IP family.
    pub rules: usize,
    /// Routes of a route table, without the local ones.
    pub routes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            region: REGION.to_owned(),
            account: ACCOUNT.to_owned(),
            cluster: "demo".to_owned(),
            control_plane: true,
            ec2_page: 1000,
            elb_page: 400,
            limits: Limits::default(),
            hidden_reads: 0,
            work: Work::Instantly,
            draining: Duration::from_secs(5),
            lingering: Duration::ZERO,
            session: Duration::from_secs(3600),
            clock_skew: None,
            external_id: None,
            denied: BTreeSet::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            classic_load_balancers: 20,
            load_balancers: 50,
            listeners: 50,
            target_groups: 3000,
            targets: 500,
            security_groups: 2500,
            rules: 60,
            routes: 500,
        }
    }
}
