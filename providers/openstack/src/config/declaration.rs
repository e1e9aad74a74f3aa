//! What `cloud.conf` may say: one table, by which it is read, and from which the reference page is made.

use std::time::Duration;

use bowline_config::Secret;
use bowline_config::table::{Example, Format, Key, Keys, Section, Table, Unknown, View, keys};

use super::MonitorTimes;

/// All sections. `[BlockStorage]` and `[Router]` are in old files and have meant nothing for long.
pub(super) fn table() -> Table {
    let former = &["secret-name", "secret-namespace", "kubeconfig-path"];
    let sections = vec![
        Section { former, ..Section::of::<GlobalKeys>(GLOBAL, GLOBAL_DOC) },
        Section {
            former: &["use-octavia", "node-security-group"],
            ..Section::of::<LoadBalancer>(LOAD_BALANCER, LOAD_BALANCER_DOC)
        },
        Section { named: true, ..Section::of::<Class>(CLASS, CLASS_DOC) },
        Section::of::<NetworkingKeys>(NETWORKING, "Which addresses of a server become those of its Node."),
        Section::of::<Route>(ROUTE, "Routes to the pods of each node."),
        Section::of::<Metadata>(
            METADATA,
            "The name is historical: the config drive and the metadata service are never asked.",
        ),
        Section::environment::<Variables>("Other variables, such as `OS_PASSWORD`, are not read."),
        Section::retired("BlockStorage"),
        Section::retired("Router"),
    ];
    Table { format: Format::Gcfg, unknown: Unknown::Warn, sections }
}

/// clouds.yaml, secure.yaml and clouds-public.yaml. Other programs have keys of their own there.
pub(super) fn clouds_table() -> Table {
    let aliases = &["public-clouds"];
    let mut clouds = Section { named: true, aliases, ..Section::of::<CloudKeys>(CLOUDS, CLOUDS_DOC) };
    clouds.keys.extend(fills().into_iter().map(|(here, _)| here));
    Table { format: Format::Yaml, unknown: Unknown::Warn, sections: vec![clouds] }
}

/// Keys of clouds.yaml, each with the key of `[Global]` that it fills. Of two for one key, the first counts.
pub(super) fn fills() -> Vec<(Key, Key)> {
    Section::of::<GlobalKeys>(GLOBAL, GLOBAL_DOC).second().collect()
}

/// A file to start from: with its three placeholders filled in, it works.
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

const GLOBAL_DOC: &str = "Who we are, and where Keystone is. Credentials are chosen in this order: `token`; `password`; \
    `application-credential-id`; `application-credential-name`.";

const LOAD_BALANCER_DOC: &str =
    "Load balancers, which Octavia creates. Annotations of a Service win over most of these.";

const CLASS_DOC: &str = "Where balancers are whose Service names this class with `loadbalancer.openstack.org/class`. Any number of them; \
    the case of the name counts.";

keys! {
    /// `[Global]`, read by key, because clouds.yaml fills what is empty.
    #[allow(dead_code, reason = "clouds.yaml fills what is empty, so texts are read by key")]
    pub(super) struct GlobalKeys {
        auth_url: String = "auth-url" or "auth.auth_url", "",
            "Where Keystone is, with or without `/v3`. Required, here or in clouds.yaml.";
        username: String = "username" or "auth.username", "",
            "The user, by name in a domain. One of this and `user-id` goes with a password.";
        user_id: String = "user-id" or "auth.user_id", "", "The user, by ID.";
        password: Secret = "password" or "auth.password", "", "The password.";
        tenant_id: String = "tenant-id" or "auth.project_id", "", "The project, by ID. Wins over `tenant-name`.";
        tenant_name: String = "tenant-name" or "auth.project_name", "", "The project, by name in a domain.";
        domain_id: String = "domain-id" or "auth.domain_id", "",
            "The domain of user and project, unless they have their own; without a project, the scope.";
        domain_name: String = "domain-name" or "auth.domain_name", "",
            "The domain of user and project, by name. An ID wins over a name, here and below.";
        user_domain_id: String = "user-domain-id" or "auth.user_domain_id", "", "The domain of the user.";
        user_domain_name: String = "user-domain-name" or "auth.user_domain_name", "", "The domain of the user, by name.";
        tenant_domain_id: String = "tenant-domain-id" or "auth.project_domain_id", "",
            "The domain of the project; of use with `tenant-name` only.";
        tenant_domain_name: String = "tenant-domain-name" or "auth.project_domain_name", "",
            "The domain of the project, by name.";
        trust_id: String = "trust-id", "", "A trust, which is the scope then: the project is not sent.";
        trustee_id: String = "trustee-id", "", "With `trust-id`: who is trusted, in place of `user-id`.";
        trustee_password: Secret = "trustee-password", "", "With `trust-id`: in place of `password`.";
        application_credential_id: String = "application-credential-id" or "auth.application_credential_id", "",
            "An application credential, by ID. No scope is sent with it.";
        application_credential_name: String = "application-credential-name" or "auth.application_credential_name", "",
            "An application credential, by name, which needs its user.";
        application_credential_secret: Secret = "application-credential-secret" or "auth.application_credential_secret", "",
            "Secret of the application credential.";
        token: Secret = "token" or "auth.token", "",
            "A token that somebody else got. It needs a project or a domain, and cannot be renewed.";
        region: String = "region" or "region_name", "",
            "Which region of the catalog; also the region of Nodes. Without it, the first one is taken.";
        os_endpoint_type: String = "os-endpoint-type" or "endpoint_type" or "interface", "public",
            "Which endpoints of the catalog: `public`, `internal` or `admin`.";
        ca_file: String = "ca-file" or "cacert", "",
            "Whom to trust: certificates in PEM, in place of those of the system.";
        cafilecontents: String = "cafilecontents", "", "The same as text, used without `ca-file`.";
        tls_insecure: String = "tls-insecure", "",
            "Exactly `true`: nobody's certificate is checked. Anything else: all are.";
        cert_file: String = "cert-file" or "cert", "", "Our own certificate in PEM, used together with `key-file`.";
        key_file: String = "key-file" or "key", "", "Key of `cert-file`, in PEM.";
        use_clouds: bool = "use-clouds", "false", "Fill what is empty here from clouds.yaml.";
        clouds_file: String = "clouds-file", "", "Where clouds.yaml is, if not at one of the usual places.";
        cloud: String = "cloud", "", "Which cloud of clouds.yaml; without it `OS_CLOUD`, or the only one.";
    }
}

const CLOUDS_DOC: &str = "An entry of clouds.yaml, secure.yaml or, as `public-clouds.NAME`, clouds-public.yaml.";

keys! {
    /// What an entry of clouds.yaml has beside the keys that fill `[Global]`.
    // upstream: trust_id, default_domain, system_scope and regions are not taken.
    pub(super) struct CloudKeys {
        verify: Option<bool> = "verify", "", "`false` is `tls-insecure = true`, if `[Global]` does not set that.";
        profile: String = "profile", "", "An entry of clouds-public.yaml, for what is empty here.";
        cloud: String = "cloud", "", "The same, where `profile` is empty.";
    }
}

keys! {
    /// Environment variables.
    pub(super) struct Variables {
        regional: String = "OS_CCM_REGIONAL", "",
            "Exactly `true`: provider IDs of new Nodes have the region in them, `openstack://REGION/ID`.";
        wait_active_steps: String = "OCCM_WAIT_LB_ACTIVE_STEPS", "23",
            "How long Octavia may work on a load balancer until that is an error, in polls of the Go manager, each pause 1.2 \
             times the one before: 23 is 4.5 minutes, 30 is 16. A value that is no number is ignored.";
        clouds_file: String = "OS_CLIENT_CONFIG_FILE", "", "Where clouds.yaml is, if `clouds-file` does not say.";
        cloud: String = "OS_CLOUD", "", "Which cloud of clouds.yaml, if `cloud` does not say.";
        home: String = "HOME", "", "Where `.config/openstack` with clouds.yaml is looked for.";
    }
}

keys! {
    /// `[LoadBalancer]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LoadBalancer {
        enabled: bool = "enabled", "true", "Whether Services get balancers. Without, Octavia need not be there.";
        lb_version: String = "lb-version", "", "Empty or `v2`: there is no other any more.";
        provider: String = "lb-provider", "amphora",
            "Which of Octavia's providers: amphora, ovn, f5, amphorav2 or another.";
        method: String = "lb-method", "ROUND_ROBIN", "How a member is chosen. ovn needs `SOURCE_IP_PORT`.";
        create_monitor: bool = "create-monitor", "false",
            "Whether members are watched, and left out while they do not answer.";
        manage_security_groups: bool = "manage-security-groups", "false", "Whether node ports are opened to balancers.";
        internal: bool = "internal-lb", "false", "Whether every balancer is internal, whatever its Service says.";
        node_selector: String = "node-selector", "",
            "Labels of the nodes that become members: `key=value` or `key`, separated by commas.";
        cascade_delete: bool = "cascade-delete", "true",
            "Whether a balancer is removed with all its parts in one request.";
        flavor_id: String = "flavor-id", "", "The flavor of new balancers.";
        availability_zone: String = "availability-zone", "", "The availability zone of new balancers.";
        ingress_hostname: bool = "enable-ingress-hostname", "false",
            "With PROXY protocol: publish a host name, not the address.";
        ingress_hostname_suffix: String = "ingress-hostname-suffix", "nip.io", "What follows the address in that name.";
        max_shared: i64 = "max-shared-lb", "2", "How many Services may share a balancer.";
        tls_container_ref: String = "default-tls-container-ref", "",
            "The certificate in Barbican of Services that name none.";
        container_store: String = "container-store", "barbican",
            "Where certificates are: `barbican` looks at them, `external` does not.";
        serial: bool = "provider-requires-serial-api-calls", "false", "Whether everything is made one by one.";
        ..
        /// `network-id`, `subnet-id` and the like.
        places: Class;
        ..
        /// `monitor-delay`, `monitor-timeout`, `monitor-max-retries`, `monitor-max-retries-down`.
        monitor: MonitorTimes;
    }
}

keys! {
    /// Where load balancers and their floating IPs are: of `[LoadBalancer]`, or of a `[LoadBalancerClass]`. An empty text is none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Class {
        floating_network_id: String = "floating-network-id", "",
            "The external network of floating IPs. Without it, one is looked for.";
        network_id: String = "network-id", "", "The network of virtual IPs.";
        subnet_id: String = "subnet-id", "",
            "The subnet of virtual IPs, and of members unless `member-subnet-id` is set.";
        member_subnet_id: String = "member-subnet-id", "", "The subnet of members.";
        ..
        /// `floating-subnet-id`, `floating-subnet` and `floating-subnet-tags`.
        floating_subnet: FloatingSubnet;
    }
}

keys! {
    /// Which subnet a floating IP is taken from, as written. An empty text is none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FloatingSubnet {
        id: String = "floating-subnet-id", "", "The subnet of floating IPs, by ID.";
        name: String = "floating-subnet", "",
            "The same by name: a pattern such as `ext-*`, `~` and a regular expression, or `!` and either.";
        tags: String = "floating-subnet-tags", "",
            "The same by tags: `a,b` has any, `&a,b` all, `!a,b` none, `!&a,b` not all of them.";
    }
}

keys! {
    /// Health monitors, as written.

    struct MonitorKeys {
        monitor_delay: Duration = "monitor-delay", "5s", "How often, in whole seconds.";
        monitor_timeout: Duration = "monitor-timeout", "3s", "How long an answer may take, in whole seconds.";
        monitor_max_retries: u64 = "monitor-max-retries", "1", "How many good answers until a member is well.";
        monitor_max_retries_down: u64 = "monitor-max-retries-down", "3", "How many bad ones until it is not.";
    }
}

keys! {
    /// `[Networking]`, as written.
    pub(super) struct NetworkingKeys {
        ipv6_disabled: bool = "ipv6-support-disabled", "false", "Whether IPv6 addresses are left out.";
        public_networks: Vec<String> = "public-network-name", "", "A network whose addresses are external.";
        internal_networks: Vec<String> = "internal-network-name", "",
            "A network whose addresses are internal; with any, no other's are.";
        address_sort_order: String = "address-sort-order", "",
            "Ranges, separated by commas or blanks: addresses in the first of them come first.";
    }
}

keys! {
    /// `[Route]`.
    pub(super) struct Route {
        router_id: String = "router-id", "", "The router that they are set on. Without it there are none.";
    }
}

keys! {
    /// `[Metadata]`.
    pub(super) struct Metadata {
        search_order: String = "search-order", "configDrive,metadataService", "Only looked at for mistakes.";
        request_timeout: Duration = "request-timeout", "60s", "How long any request to any service may take.";
    }
}

// upstream: Octavia takes whole seconds; the rest of one is cut off.
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
