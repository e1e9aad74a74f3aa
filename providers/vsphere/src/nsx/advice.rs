//! Remedies in messages, with the keys of the configuration in both formats.

pub(crate) const LB_SERVICE: &str = "correct lbServiceId (lb-service-id) of the section loadBalancer";
pub(crate) const TIER1: &str = "correct tier1GatewayPath (tier1-gateway-path) of the section loadBalancer";
pub(crate) const IP_POOL: &str =
    "correct ipPoolName or ipPoolId (ip-pool-name, ip-pool-id) of the section loadBalancer or of the class";
pub(crate) const PROFILE: &str = "correct tcpAppProfileName or udpAppProfileName (tcp-app-profile-name, udp-app-profile-name), or the \
                                  path in place of it, of the section loadBalancer or of the class";
pub(crate) const UNIQUE_PROFILE: &str =
    "set tcpAppProfilePath or udpAppProfilePath (tcp-app-profile-path, udp-app-profile-path) in place of the name";
pub(crate) const ROUTER_PATH: &str = "correct route.routerPath (router-path)";
