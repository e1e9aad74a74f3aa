//! Declares the keys of `cloud.conf`: one table, which the parser and the reference page use.

use std::time::Duration;

use bowline_config::Secret;
use bowline_config::table::{Example, Format, Key, Keys, Section, Table, UnknownKeys, View, keys};

use super::MonitorTimes;

/// Returns all sections. `[BlockStorage]` and `[Router]` occur in old files and have had no effect for long.
pub(super) fn table() -> Table {
    let former = &["secret-name", "secret-namespace", "kubeconfig-path"];
    let sections = vec![
        Section { obsolete_keys: former, ..Section::of::<GlobalKeys>(GLOBAL, GLOBAL_DOC) },
        Section {
            obsolete_keys: &["use-octavia", "node-security-group"],
            ..Section::of::<LoadBalancer>(LOAD_BALANCER, LOAD_BALANCER_DOC)
        },
        Section { named: true, ..Section::of::<Class>(CLASS, CLASS_DOC) },
        Section::of::<NetworkingKeys>(NETWORKING, "Addresses of servers that Nodes get."),
        Section::of::<Route>(ROUTE, "Routes to the pod CIDRs of Nodes."),
        Section::of::<Metadata>(
            METADATA,
            "The name is historical: neither the config drive nor the metadata service is used.",
        ),
        Section::environment::<Variables>("Other variables, such as `OS_PASSWORD`, are not read."),
        Section::obsolete("BlockStorage"),
        Section::obsolete("Router"),
    ];
    Table { format: Format::Gcfg, unknown: UnknownKeys::Warn, sections }
}

/// Returns the keys of clouds.yaml, secure.yaml and clouds-public.yaml. Other programs have keys of their own there.
pub(super) fn clouds_table() -> Table {
    let aliases = &["public-clouds"];
    let mut clouds = Section { named: true, aliases, ..Section::of::<CloudKeys>(CLOUDS, CLOUDS_DOC) };
    clouds.keys.extend(fills().into_iter().map(|(here, _)| here));
    Table { format: Format::Yaml, unknown: UnknownKeys::Warn, sections: vec![clouds] }
}

/// Returns keys of clouds.yaml, each with the key of `[Global]` that it fills. The first of two for one key counts.
pub(super) fn fills() -> Vec<(Key, Key)> {
    Section::of::<GlobalKeys>(GLOBAL, GLOBAL_DOC).second().collect()
}

/// Returns a template, which works once its three placeholders are filled in.
pub(crate) fn template() -> String {
    use Example::{Optional, Set};
    let global = [
        Set(GlobalKeys::auth_url, "https://keystone.example.com:5000/v3"),
        Set(GlobalKeys::application_credential_id, "ID"),
        Set(GlobalKeys::application_credential_secret, "SECRET"),
        Optional(GlobalKeys::username, "NAME"),
        Optional(GlobalKeys::user_domain_name, "Default"),
        Optional(GlobalKeys::password, "PASSWORD"),
        Optional(GlobalKeys::tenant_name, "PROJECT"),
        Optional(GlobalKeys::tenant_domain_name, "Default"),
        Optional(GlobalKeys::region, "RegionOne"),
        Optional(GlobalKeys::ca_file, "/etc/config/ca.pem"),
    ];
    let load_balancer = [
        Optional(Class::subnet_id, "ID"),
        Optional(Class::floating_network_id, "ID"),
        Optional(LoadBalancer::create_monitor, "true"),
    ];
    let route = [Optional(Route::router_id, "ID")];
    table().template(&[(GLOBAL, &global), (LOAD_BALANCER, &load_balancer), (ROUTE, &route)])
}

pub(super) const GLOBAL: &str = "Global";
pub(super) const LOAD_BALANCER: &str = "LoadBalancer";
pub(super) const CLASS: &str = "LoadBalancerClass";
pub(super) const NETWORKING: &str = "Networking";
pub(super) const ROUTE: &str = "Route";
pub(super) const METADATA: &str = "Metadata";
pub(super) const CLOUDS: &str = "clouds";

const GLOBAL_DOC: &str = "Credentials and the URL of Keystone. The first of these credentials is used: `token`, `password`, \
    `application-credential-id`, `application-credential-name`.";

const LOAD_BALANCER_DOC: &str =
    "Octavia load balancers. Annotations of a Service take precedence over most of these keys.";

const CLASS_DOC: &str = "Networks of load balancers whose Service has the annotation `loadbalancer.openstack.org/class` with this name. Any number of \
    sections; names are case-sensitive.";

keys! {
    /// `[Global]`, read by key, because clouds.yaml fills empty keys.
    #[allow(dead_code, reason = "clouds.yaml fills empty keys, so texts are read by key")]
    pub(super) struct GlobalKeys {
        auth_url: String = "auth-url" or "auth.auth_url", "",
            "URL of Keystone, with or without `/v3`. Required, here or in clouds.yaml.";
        username: String = "username" or "auth.username", "",
            "User name, which needs a domain. A password needs this or `user-id`.";
        user_id: String = "user-id" or "auth.user_id", "", "User ID.";
        password: Secret = "password" or "auth.password", "", "Password of the user.";
        tenant_id: String = "tenant-id" or "auth.project_id", "", "Project ID. Takes precedence over `tenant-name`.";
        tenant_name: String = "tenant-name" or "auth.project_name", "", "Project name, which needs a domain.";
        domain_id: String = "domain-id" or "auth.domain_id", "",
            "Domain ID of user and project, unless they have their own; without a project, the scope.";
        domain_name: String = "domain-name" or "auth.domain_name", "",
            "Domain name of user and project. An ID takes precedence over a name, here and below.";
        user_domain_id: String = "user-domain-id" or "auth.user_domain_id", "", "Domain ID of the user.";
        user_domain_name: String = "user-domain-name" or "auth.user_domain_name", "", "Domain name of the user.";
        tenant_domain_id: String = "tenant-domain-id" or "auth.project_domain_id", "",
            "Domain ID of the project, used with `tenant-name` only.";
        tenant_domain_name: String = "tenant-domain-name" or "auth.project_domain_name", "",
            "Domain name of the project.";
        trust_id: String = "trust-id", "", "Trust ID. The trust is the scope, and the project is not sent.";
        trustee_id: String = "trustee-id", "", "With `trust-id`: user ID of the trustee, instead of `user-id`.";
        trustee_password: Secret = "trustee-password", "", "With `trust-id`: password of the trustee, instead of `password`.";
        application_credential_id: String = "application-credential-id" or "auth.application_credential_id", "",
            "Application credential ID. No scope is sent with it.";
        application_credential_name: String = "application-credential-name" or "auth.application_credential_name", "",
            "Application credential name, which needs its user.";
        application_credential_secret: Secret = "application-credential-secret" or "auth.application_credential_secret", "",
            "Secret of the application credential.";
        token: Secret = "token" or "auth.token", "",
            "Existing token. It needs a project or a domain, and cannot be renewed.";
        region: String = "region" or "region_name", "",
            "Region in the service catalog, and of Nodes. Default: the first endpoint of the catalog.";
        os_endpoint_type: String = "os-endpoint-type" or "endpoint_type" or "interface", "public",
            "Endpoint interface in the catalog: `public`, `internal` or `admin`.";
        ca_file: String = "ca-file" or "cacert", "",
            "CA certificates in PEM, instead of the system's.";
        cafilecontents: String = "cafilecontents", "", "CA certificates as text, used without `ca-file`.";
        tls_insecure: String = "tls-insecure", "",
            "Exactly `true` disables certificate verification.";
        cert_file: String = "cert-file" or "cert", "", "Client certificate in PEM, used together with `key-file`.";
        key_file: String = "key-file" or "key", "", "Private key of `cert-file`, in PEM.";
        use_clouds: bool = "use-clouds", "false", "Fill empty keys of this section from clouds.yaml.";
        clouds_file: String = "clouds-file", "", "Path of clouds.yaml. Default: the locations below.";
        cloud: String = "cloud", "", "Name of the cloud in clouds.yaml. Default: `OS_CLOUD`, or the only cloud.";
    }
}

const CLOUDS_DOC: &str = "Entry of clouds.yaml, secure.yaml or, as `public-clouds.NAME`, clouds-public.yaml.";

keys! {
    /// Keys of clouds.yaml that fill no key of `[Global]`.
    // upstream: trust_id, default_domain, system_scope and regions are not read.
    pub(super) struct CloudKeys {
        verify: Option<bool> = "verify", "", "`false` means `tls-insecure = true`, unless `[Global]` sets it.";
        profile: String = "profile", "", "Entry of clouds-public.yaml that fills empty keys.";
        cloud: String = "cloud", "", "The same, if `profile` is empty.";
    }
}

keys! {
    /// Environment variables.
    pub(super) struct Variables {
        regional: String = "OS_CCM_REGIONAL", "",
            "Exactly `true`: provider IDs of new Nodes contain the region, `openstack://REGION/ID`.";
        wait_active_steps: String = "OCCM_WAIT_LB_ACTIVE_STEPS", "23",
            "Timeout of an Octavia operation, in polls of the Go manager, each pause 1.2 times the one before: 23 is 4.5 minutes, 30 is \
             16 minutes. An invalid number is ignored.";
        clouds_file: String = "OS_CLIENT_CONFIG_FILE", "", "Path of clouds.yaml, if `clouds-file` is not set.";
        cloud: String = "OS_CLOUD", "", "Name of the cloud in clouds.yaml, if `cloud` is not set.";
        home: String = "HOME", "", "Home directory, with `.config/openstack/clouds.yaml`.";
    }
}

keys! {
    /// `[LoadBalancer]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LoadBalancer {
        enabled: bool = "enabled", "true", "Create load balancers for Services. If `false`, Octavia is not needed.";
        lb_version: String = "lb-version", "", "Empty or `v2`, the only version.";
        provider: String = "lb-provider", "amphora",
            "Octavia provider: amphora, ovn, f5, amphorav2 or another.";
        method: String = "lb-method", "ROUND_ROBIN", "Load-balancing algorithm. ovn needs `SOURCE_IP_PORT`.";
        create_monitor: bool = "create-monitor", "false",
            "Create health monitors, which exclude members that do not respond.";
        manage_security_groups: bool = "manage-security-groups", "false", "Manage a security group for each Service, which opens its node ports to the load balancer.";
        internal: bool = "internal-lb", "false", "Make every load balancer internal, whatever its Service requests.";
        node_selector: String = "node-selector", "",
            "Labels of the nodes that become members: `key=value` or `key`, separated by commas.";
        cascade_delete: bool = "cascade-delete", "true",
            "Delete a load balancer with all its parts in one request.";
        flavor_id: String = "flavor-id", "", "Flavor of new load balancers.";
        availability_zone: String = "availability-zone", "", "Availability zone of new load balancers.";
        ingress_hostname: bool = "enable-ingress-hostname", "false",
            "With the PROXY protocol, publish a host name instead of the address.";
        ingress_hostname_suffix: String = "ingress-hostname-suffix", "nip.io", "Suffix of that host name, after the address.";
        max_shared: i64 = "max-shared-lb", "2", "Maximum number of Services that share a load balancer.";
        tls_container_ref: String = "default-tls-container-ref", "",
            "Barbican certificate of Services without the annotation.";
        container_store: String = "container-store", "barbican",
            "Certificate store: `barbican` checks that certificates exist, `external` does not.";
        serial: bool = "provider-requires-serial-api-calls", "false", "Send one request per resource.";
        ..
        /// `network-id`, `subnet-id` and others.
        placement: Class;
        ..
        /// `monitor-delay`, `monitor-timeout`, `monitor-max-retries`, `monitor-max-retries-down`.
        monitor: MonitorTimes;
    }
}

keys! {
    /// Networks of load balancers and floating IPs, in `[LoadBalancer]` or in a `[LoadBalancerClass]`. An empty text is none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Class {
        floating_network_id: String = "floating-network-id", "",
            "External network of floating IPs. Default: detected.";
        network_id: String = "network-id", "", "Network of VIPs.";
        subnet_id: String = "subnet-id", "",
            "Subnet of VIPs, and of members unless `member-subnet-id` is set.";
        member_subnet_id: String = "member-subnet-id", "", "Subnet of members.";
        ..
        /// `floating-subnet-id`, `floating-subnet` and `floating-subnet-tags`.
        floating_subnet: FloatingSubnet;
    }
}

keys! {
    /// Subnets of floating IPs. An empty text is none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FloatingSubnet {
        id: String = "floating-subnet-id", "", "Subnet of floating IPs, by ID.";
        name: String = "floating-subnet", "",
            "The same by name: a glob such as `ext-*`, `~` and a regular expression, or `!` and either.";
        tags: String = "floating-subnet-tags", "",
            "The same by tags: `a,b` matches any, `&a,b` all, `!a,b` none, `!&a,b` not all of them.";
    }
}

keys! {
    /// Health monitors.

    struct MonitorKeys {
        monitor_delay: Duration = "monitor-delay", "5s", "Interval of probes, in whole seconds.";
        monitor_timeout: Duration = "monitor-timeout", "3s", "Timeout of a probe, in whole seconds.";
        monitor_max_retries: u64 = "monitor-max-retries", "1", "Successful probes until a member is online.";
        monitor_max_retries_down: u64 = "monitor-max-retries-down", "3", "Failed probes until a member is offline.";
    }
}

keys! {
    /// `[Networking]`.
    pub(super) struct NetworkingKeys {
        ipv6_disabled: bool = "ipv6-support-disabled", "false", "Ignore IPv6 addresses.";
        public_networks: Vec<String> = "public-network-name", "", "Name of a network whose addresses are external.";
        internal_networks: Vec<String> = "internal-network-name", "",
            "Name of a network whose addresses are internal. If set, addresses of other networks are left out.";
        address_sort_order: String = "address-sort-order", "",
            "CIDRs, separated by commas or spaces: addresses in the first CIDR come first.";
    }
}

keys! {
    /// `[Route]`.
    pub(super) struct Route {
        router_id: String = "router-id", "", "Router of the routes. Without it, there are none.";
    }
}

keys! {
    /// `[Metadata]`.
    pub(super) struct Metadata {
        search_order: String = "search-order", "configDrive,metadataService", "Only validated.";
        request_timeout: Duration = "request-timeout", "60s", "Timeout of requests to all services.";
    }
}

// upstream: Octavia takes whole seconds; fractions are truncated.
impl Keys for MonitorTimes {
    fn keys() -> Vec<Key> {
        MonitorKeys::keys()
    }

    fn sections() -> Vec<Section> {
        Vec::new()
    }

    fn read(view: &View<'_>) -> MonitorTimes {
        let keys = MonitorKeys::read(view);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        MonitorTimes {
            delay: number(keys.monitor_delay.as_secs()),
            timeout: number(keys.monitor_timeout.as_secs()),
            max_retries: number(keys.monitor_max_retries),
            max_retries_down: number(keys.monitor_max_retries_down),
        }
    }
}
