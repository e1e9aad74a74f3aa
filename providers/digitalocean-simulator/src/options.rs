//! Options of a simulated cloud.

use std::collections::BTreeSet;

use bowline_simulator::Work;

/// Default token.
pub const TOKEN: &str = "dop_v1_simulated";

/// Default region.
pub const REGION: &str = "nyc3";

/// Options of a simulated cloud.
#[derive(Debug, Clone)]
pub struct Options {
    /// Token that requests must have.
    pub token: String,
    /// Scopes that the token does not have, such as `load_balancer:create`.
    pub withheld_scopes: BTreeSet<String>,
    /// Region of VPCs and Droplets, and the answer of the metadata service.
    pub region: String,
    /// Requests per hour.
    pub hourly_limit: u64,
    /// Maximum number of items on a page.
    pub max_page: usize,
    /// Maximum number of load balancers of the account. Default: unlimited.
    pub load_balancer_limit: Option<usize>,
    /// Time until a new load balancer is `active`, or a changed firewall `succeeded`.
    pub work: Work,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            token: TOKEN.to_owned(),
            withheld_scopes: BTreeSet::new(),
            region: REGION.to_owned(),
            hourly_limit: 5000,
            max_page: 200,
            load_balancer_limit: None,
            work: Work::Instantly,
        }
    }
}
