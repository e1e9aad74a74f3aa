//! What `cloud.conf` may say: one table, by which it is read, and of which the page of reference is made.

use bowline_config::gcfg::{Key, Kind, Section};

const fn text(name: &'static str, meaning: &'static str) -> Key {
    key(name, Kind::Text, "", meaning)
}

const fn secret(name: &'static str, meaning: &'static str) -> Key {
    key(name, Kind::Secret, "", meaning)
}

const fn key(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, default, meaning }
}

/// All sections. `[BlockStorage]` and `[Router]` are in old files and have meant nothing for long.
pub(super) const SECTIONS: &[Section] = &[
    GLOBAL,
    LOAD_BALANCER,
    CLASS,
    NETWORKING,
    ROUTE,
    METADATA,
    Section { name: "BlockStorage", ..Section::EMPTY },
    Section { name: "Router", ..Section::EMPTY },
];

const GLOBAL: Section = Section {
    name: "Global",
    meaning: "Who we are, and where Keystone is. Credentials are chosen in this order: `token`; `password`; \
              `application-credential-id`; `application-credential-name`. Environment variables such as `OS_PASSWORD` are \
              not read.",
    keys: &[
        text("auth-url", "Where Keystone is, with or without `/v3`. Required, here or in clouds.yaml."),
        text("username", "The user, by name in a domain. One of this and `user-id` goes with a password."),
        text("user-id", "The user, by ID."),
        secret("password", "The password."),
        text("tenant-id", "The project, by ID. Wins over `tenant-name`."),
        text("tenant-name", "The project, by name in a domain."),
        text("domain-id", "The domain of user and project, unless they have their own; without a project, the scope."),
        text("domain-name", "The same by name. An ID wins over a name, here and below."),
        text("user-domain-id", "The domain of the user."),
        text("user-domain-name", "The same by name."),
        text("tenant-domain-id", "The domain of the project; of use with `tenant-name` only."),
        text("tenant-domain-name", "The same by name."),
        text("trust-id", "A trust, which is the scope then: the project is not sent."),
        text("trustee-id", "With `trust-id`: who is trusted, in place of `user-id`."),
        secret("trustee-password", "With `trust-id`: in place of `password`."),
        text("application-credential-id", "An application credential, by ID. No scope is sent with it."),
        text("application-credential-name", "The same by name, which needs its user."),
        secret("application-credential-secret", "Its secret."),
        secret("token", "A token that somebody else got. It needs a project or a domain, and cannot be renewed."),
        text("region", "Which region of the catalog; also the region of Nodes. Without it, the first one is taken."),
        key(
            "os-endpoint-type",
            Kind::Text,
            "public",
            "Which endpoints of the catalog: `public`, `internal` or `admin`.",
        ),
        text("ca-file", "Whom to trust: certificates in PEM, in place of those of the system."),
        text("cafilecontents", "The same as text, used without `ca-file`."),
        text("tls-insecure", "Exactly `true`: nobody's certificate is checked. Anything else: all are."),
        text("cert-file", "Our own certificate in PEM, used together with `key-file`."),
        text("key-file", "Its key in PEM."),
        key("use-clouds", Kind::Bool, "false", "Fill what is empty here from clouds.yaml."),
        text("clouds-file", "Where clouds.yaml is, if not at one of the usual places."),
        text("cloud", "Which cloud of clouds.yaml; without it `OS_CLOUD`, or the only one."),
    ],
    former: &["secret-name", "secret-namespace", "kubeconfig-path"],
    ..Section::EMPTY
};

const LOAD_BALANCER: Section = Section {
    name: "LoadBalancer",
    meaning: "Balancers, which Octavia makes. Annotations of a Service win over most of these.",
    keys: &[
        key("enabled", Kind::Bool, "true", "Whether Services get balancers. Without, Octavia need not be there."),
        text("lb-version", "Empty or `v2`: there is no other any more."),
        key(
            "lb-provider",
            Kind::Text,
            "amphora",
            "Which of Octavia's providers: amphora, ovn, f5, amphorav2 or another.",
        ),
        key("lb-method", Kind::Text, "ROUND_ROBIN", "How a member is chosen. ovn needs `SOURCE_IP_PORT`."),
        text("subnet-id", "The subnet of virtual IPs, and of members unless `member-subnet-id` is set."),
        text("member-subnet-id", "The subnet of members."),
        text("network-id", "The network of virtual IPs."),
        text("floating-network-id", "The external network of floating IPs. Without it, one is looked for."),
        text("floating-subnet-id", "The subnet of floating IPs, by ID."),
        text(
            "floating-subnet",
            "The same by name: a pattern such as `ext-*`, `~` and a regular expression, or `!` and either.",
        ),
        text(
            "floating-subnet-tags",
            "The same by tags: `a,b` has any, `&a,b` all, `!a,b` none, `!&a,b` not all of them.",
        ),
        key(
            "create-monitor",
            Kind::Bool,
            "false",
            "Whether members are watched, and left out while they do not answer.",
        ),
        key("monitor-delay", Kind::Duration, "5s", "How often, in whole seconds."),
        key("monitor-timeout", Kind::Duration, "3s", "How long an answer may take, in whole seconds."),
        key("monitor-max-retries", Kind::Unsigned, "1", "How many good answers until a member is well."),
        key("monitor-max-retries-down", Kind::Unsigned, "3", "How many bad ones until it is not."),
        key("manage-security-groups", Kind::Bool, "false", "Whether node ports are opened to balancers."),
        key("internal-lb", Kind::Bool, "false", "Whether every balancer is internal, whatever its Service says."),
        text("node-selector", "Labels of the nodes that become members: `key=value` or `key`, separated by commas."),
        key("cascade-delete", Kind::Bool, "true", "Whether a balancer is removed with all its parts in one request."),
        text("flavor-id", "The flavor of new balancers."),
        text("availability-zone", "The availability zone of new balancers."),
        key(
            "enable-ingress-hostname",
            Kind::Bool,
            "false",
            "With PROXY protocol: publish a host name, not the address.",
        ),
        key("ingress-hostname-suffix", Kind::Text, "nip.io", "What follows the address in that name."),
        key("max-shared-lb", Kind::Integer, "2", "How many Services may share a balancer."),
        text("default-tls-container-ref", "The certificate in Barbican of Services that name none."),
        key(
            "container-store",
            Kind::Text,
            "barbican",
            "Where certificates are: `barbican` looks at them, `external` does not.",
        ),
        key("provider-requires-serial-api-calls", Kind::Bool, "false", "Whether everything is made one by one."),
    ],
    former: &["use-octavia", "node-security-group"],
    ..Section::EMPTY
};

const CLASS: Section = Section {
    name: "LoadBalancerClass",
    named: true,
    meaning: "Where balancers are whose Service names this class with `loadbalancer.openstack.org/class`. Any number of them; \
              the case of the name counts.",
    keys: &[
        text("floating-network-id", "As in `[LoadBalancer]`."),
        text("floating-subnet-id", "As in `[LoadBalancer]`."),
        text("floating-subnet", "As in `[LoadBalancer]`."),
        text("floating-subnet-tags", "As in `[LoadBalancer]`."),
        text("network-id", "As in `[LoadBalancer]`."),
        text("subnet-id", "As in `[LoadBalancer]`."),
        text("member-subnet-id", "As in `[LoadBalancer]`."),
    ],
    ..Section::EMPTY
};

const NETWORKING: Section = Section {
    name: "Networking",
    meaning: "Which addresses of a server become those of its Node.",
    keys: &[
        key("ipv6-support-disabled", Kind::Bool, "false", "Whether IPv6 addresses are left out."),
        key("public-network-name", Kind::List, "", "A network whose addresses are external."),
        key(
            "internal-network-name",
            Kind::List,
            "",
            "A network whose addresses are internal; with any, no other's are.",
        ),
        text("address-sort-order", "Ranges, separated by commas or blanks: addresses in the first of them come first."),
    ],
    ..Section::EMPTY
};

const ROUTE: Section = Section {
    name: "Route",
    meaning: "Routes to the pods of each node.",
    keys: &[text("router-id", "The router that they are set on. Without it there are none.")],
    ..Section::EMPTY
};

const METADATA: Section = Section {
    name: "Metadata",
    meaning: "The name is historical: the config drive and the metadata service are never asked.",
    keys: &[
        key("search-order", Kind::Text, "configDrive,metadataService", "Only looked at for mistakes."),
        key("request-timeout", Kind::Duration, "60s", "How long any request to any service may take."),
    ],
    ..Section::EMPTY
};
