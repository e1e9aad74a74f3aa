//! Declares the keys of both file formats and the environment variables: one table, which the parser and the reference page use.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use bowline_agent_client::{AGENT_DOC, AgentKeys};
use bowline_cloud::EnvironmentVariable;
use bowline_config::Secret;
use bowline_config::table::{Example, Format, Section, Table, UnknownKeys, keys};

/// A section, which has another name in each format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Global,
    Vcenter,
    Labels,
    Nodes,
    Nsx,
    LoadBalancer,
    Class,
    Agent,
    Route,
}

impl Part {
    /// Returns the name of the section in files of a format.
    pub(super) fn name(self, format: Format) -> &'static str {
        let (yaml, ini) = match self {
            Part::Global => ("global", "Global"),
            Part::Vcenter => ("vcenter", "VirtualCenter"),
            Part::Labels => ("labels", "Labels"),
            Part::Nodes => ("nodes", "Nodes"),
            Part::Nsx => ("nsxt", "NSXT"),
            Part::LoadBalancer => ("loadBalancer", "LoadBalancer"),
            Part::Class => ("loadBalancerClass", "LoadBalancerClass"),
            Part::Agent => ("agent", "Agent"),
            Part::Route => ("route", "Route"),
        };
        if format == Format::Gcfg { ini } else { yaml }
    }

    /// Returns whether the field of an error is in this section.
    pub(super) fn has(self, format: Format, field: &str) -> bool {
        let below = field.trim_start_matches('[').strip_prefix(self.name(format));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ' ', ']']))
    }
}

/// Returns all sections, under their names in files of a format.
pub(super) fn table(format: Format) -> Table {
    let name = |part: Part| part.name(format);
    let sections = vec![
        Section { obsolete_keys: OBSOLETE, ..Section::of::<Global>(name(Part::Global), GLOBAL_DOC) },
        Section { named: true, ..Section::of::<Connection>(name(Part::Vcenter), VCENTER_DOC) },
        Section::of::<Labels>(name(Part::Labels), LABELS_DOC),
        Section::of::<Nodes>(name(Part::Nodes), NODES_DOC),
        Section::of::<Nsx>(name(Part::Nsx), NSX_DOC),
        Section::of::<LoadBalancer>(name(Part::LoadBalancer), LOAD_BALANCER_DOC),
        Section { named: true, ..Section::of::<Class>(name(Part::Class), CLASS_DOC) },
        Section::of::<AgentKeys>(name(Part::Agent), AGENT_DOC),
        Section::of::<Route>(name(Part::Route), "Routes to the pod CIDRs of Nodes, in NSX or by agents."),
        Section::environment::<Variables>(VARIABLES_DOC),
    ];
    // upstream: unknown sections and keys are ignored.
    Table { format, unknown: UnknownKeys::Warn, sections }
}

/// Keys that the Go manager accepts without any effect.
const OBSOLETE: &[&str] = &["apiDisable", "api-disable", "apiBinding", "api-binding", "service-account"];

const GLOBAL_DOC: &str = "Settings of all vCenters that do not have their own.";

const VCENTER_DOC: &str = "A vCenter. Any number of entries; the name identifies the entry, and is case-sensitive. An entry inherits the \
    settings of `global` that it does not have, except `server`, the Secret, and, if there is a Secret or a directory, `user` and \
    `password`.";

const LABELS_DOC: &str = "Tag categories of zones and regions. Without both of them, Nodes get no zone labels.";

const NODES_DOC: &str = "Selection of Node addresses. A list of CIDRs is one string, separated by commas.";

const NSX_DOC: &str = "NSX manager of load balancers and routes. The first of these credentials is used: client certificate, VMC token, \
    Secret, user and password. An invalid section switches load balancers and routes off, with a warning; Nodes are served.";

const LOAD_BALANCER_DOC: &str = "Load balancers of NSX, which are on if `size`, `lbServiceId`, `ipPoolId`, `ipPoolName` or \
    `tier1GatewayPath` is set, or if there is a class. An invalid section switches them off, with a warning; Nodes are served.";

const CLASS_DOC: &str = "Class of load balancers, selected by the annotation `loadbalancer.vmware.io/class` of a Service. Pool and profiles \
    that it does not have are those of the class `default`, which has those of `loadBalancer`.";

const VARIABLES_DOC: &str = "\
Variables of the connection are defaults of the vCenters that other variables define: `VSPHERE_VCENTER_ID=NAME` adds the vCenter `NAME`, or \
replaces that entry of the file, for any `ID` except `PORT`. Its settings are in `VCENTER_ID_SERVER` (default: `NAME`), \
`VCENTER_ID_USERNAME`, `VCENTER_ID_PASSWORD`, `VCENTER_ID_PORT`, `VCENTER_ID_INSECURE`, `VCENTER_ID_DATACENTERS`, `VCENTER_ID_ROUNDTRIP`, \
`VCENTER_ID_CAFILE`, `VCENTER_ID_THUMBPRINT`, `VCENTER_ID_IP_FAMILY`, and `VCENTER_ID_SECRET_NAME` with `VCENTER_ID_SECRET_NAMESPACE`. \
They do not change the entries of the file. An empty variable counts as unset, except the switches.";

keys! {
    /// `global`.
    #[derive(Debug, Clone)]
    pub(super) struct Global {
        secrets_directory: String = "secretsDirectory" gcfg "secrets-directory", "",
            "Directory with credentials, in files named like the keys of the Secret. Default: `/etc/cloud/secrets`, if it exists. It takes \
             precedence over the Secret of this section.";
        ../// Settings that a vCenter can have of its own.
        connection: Connection;
    }
}

keys! {
    /// Settings of a vCenter.
    #[derive(Debug, Clone)]
    pub(super) struct Connection {
        user: String = "user", "", "User, or a certificate as PEM text. Tried before the Secret.";
        password: Secret = "password", "", "Password, or the key of the certificate as PEM text.";
        server: String = "server", "",
            "Host name or IP address. Required in an entry; in INI, it is the name of the entry by default. In `global`, it adds a vCenter \
             with this name, which is deprecated.";
        port: Option<NonZeroU64> = "port", "", "Port. Default: 443.";
        insecure: bool = "insecureFlag" gcfg "insecure-flag", "false",
            "Do not verify the server certificate. An entry cannot switch off that of `global`.";
        datacenters: Vec<String> = "datacenters", "",
            "Names, inventory paths or IDs of datacenters, as a list; in INI, separated by commas. Default: all.";
        round_trips: Option<NonZeroU64> = "soapRoundtripCount" gcfg "soap-roundtrip-count", "",
            "Attempts of a call with temporary network errors, at most 4. Default: 3.";
        ca_file: String = "caFile" gcfg "ca-file", "",
            "CA certificates in PEM, in place of those of the system. Several files are separated by `:`.";
        thumbprint: String = "thumbprint", "",
            "SHA-1 or SHA-256 fingerprint of the server certificate, as hexadecimal pairs separated by `:`. Accepts a certificate of an \
             unknown authority or with another name.";
        secret_name: String = "secretName" gcfg "secret-name", "", "Secret with credentials. Used together with `secretNamespace`.";
        secret_namespace: String = "secretNamespace" gcfg "secret-namespace", "", "Namespace of that Secret.";
        ip_families: Vec<String> = "ipFamily" gcfg "ip-family", "",
            "IP families of Node addresses, in order of priority: `ipv4`, `ipv6`. Default: `ipv4`. Both need the variable `ENABLE_ALPHA_DUAL_STACK`.";
    }
}

keys! {
    /// `labels`.
    #[derive(Debug, Clone)]
    pub(super) struct Labels {
        zone: String = "zone" env "VSPHERE_LABEL_ZONE", "", "Tag category of zones.";
        region: String = "region" env "VSPHERE_LABEL_REGION", "", "Tag category of regions.";
    }
}

keys! {
    /// `nodes`.
    #[derive(Debug, Clone)]
    pub(super) struct Nodes {
        internal_subnets: String = "internalNetworkSubnetCidr" gcfg "internal-network-subnet-cidr"
            env "VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR", "", "CIDRs of internal addresses.";
        external_subnets: String = "externalNetworkSubnetCidr" gcfg "external-network-subnet-cidr"
            env "VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR", "", "CIDRs of external addresses.";
        internal_network: String = "internalVmNetworkName" gcfg "internal-vm-network-name"
            env "VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME", "", "Network of internal addresses; the case has no effect.";
        external_network: String = "externalVmNetworkName" gcfg "external-vm-network-name"
            env "VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME", "", "Network of external addresses; the case has no effect.";
        excluded_internal_subnets: String = "excludeInternalNetworkSubnetCidr" gcfg "exclude-internal-network-subnet-cidr", "",
            "CIDRs that have no internal addresses.";
        excluded_external_subnets: String = "excludeExternalNetworkSubnetCidr" gcfg "exclude-external-network-subnet-cidr", "",
            "CIDRs that have no external addresses.";
    }
}

keys! {
    /// `nsxt`.
    #[derive(Debug, Clone)]
    pub(super) struct Nsx {
        host: String = "host" env "NSXT_MANAGER_HOST", "", "Host name or address, with an optional port. HTTPS is used. Required.";
        user: String = "user" env "NSXT_USERNAME", "", "User.";
        password: Secret = "password" env "NSXT_PASSWORD", "", "Password of the user.";
        insecure: bool = "insecureFlag" gcfg "insecure-flag" env "NSXT_ALLOW_UNVERIFIED_SSL", "false",
            "Do not verify the server certificate.";
        remote_auth: bool = "remoteAuth" gcfg "remote-auth", "false", "The user is one of VMware Identity Manager.";
        vmc_access_token: Secret = "vmcAccessToken" gcfg "vmc-access-token", "", "Refresh token of VMware Cloud.";
        vmc_auth_host: String = "vmcAuthHost" gcfg "vmc-auth-host", "",
            "Host and path that exchange that token, without `https://`.";
        client_certificate: String = "clientAuthCertFile" gcfg "client-auth-cert-file" env "NSXT_CLIENT_AUTH_CERT_FILE", "",
            "File with the certificate of a principal identity.";
        client_key: String = "clientAuthKeyFile" gcfg "client-auth-key-file" env "NSXT_CLIENT_AUTH_KEY_FILE", "",
            "File with the key of that certificate.";
        ca_file: String = "caFile" gcfg "ca-file" env "NSXT_CA_FILE", "", "CA certificates in PEM, in place of those of the system.";
        secret_name: String = "secretName" gcfg "secret-name" env "NSXT_SECRET_NAME", "",
            "Secret with the keys `username` and `password`, which take precedence over `user` and `password`.";
        secret_namespace: String = "secretNamespace" gcfg "secret-namespace" env "NSXT_SECRET_NAMESPACE", "",
            "Namespace of that Secret.";
    }
}

keys! {
    /// `loadBalancer`.
    #[derive(Debug, Clone)]
    pub(super) struct LoadBalancer {
        size: String = "size", "", "Size of LB services: `SMALL`, `MEDIUM`, `LARGE`, `XLARGE` or `DLB`. Required.";
        service_id: String = "lbServiceId" gcfg "lb-service-id", "",
            "Existing LB service, which is never deleted. This or `tier1GatewayPath` is required.";
        tier1: String = "tier1GatewayPath" gcfg "tier1-gateway-path", "",
            "Policy path of a tier-1 gateway, `/infra/tier-1s/ID`. Without `lbServiceId`, the LB service is created there, and deleted when \
             it is not used any more.";
        snat_disabled: bool = "snatDisabled" gcfg "snat-disabled", "false", "Keep the source addresses of clients.";
        tags: BTreeMap<String, String> = "tags", "",
            "Additional tags of all objects; in INI, a JSON object. `owner` replaces the value of that tag.";
        agent: BTreeMap<String, String> = "agent", "", "An error. Load balancers by agents have the section `agent`.";
        ../// Pool and profiles of the class `default`.
        class: Class;
    }
}

keys! {
    /// `loadBalancerClass.NAME`.
    #[derive(Debug, Clone)]
    pub(super) struct Class {
        pool_name: String = "ipPoolName" gcfg "ip-pool-name", "", "Pool of virtual IP addresses, by name. Together with the ID, it is an error in the main section, and ignored in a class.";
        pool_id: String = "ipPoolId" gcfg "ip-pool-id", "", "The same by ID.";
        tcp_profile_name: String = "tcpAppProfileName" gcfg "tcp-app-profile-name", "", "Application profile of TCP ports, by name.";
        tcp_profile_path: String = "tcpAppProfilePath" gcfg "tcp-app-profile-path", "",
            "The same by policy path, which takes precedence. One of the two is required in `loadBalancer`.";
        udp_profile_name: String = "udpAppProfileName" gcfg "udp-app-profile-name", "", "Application profile of UDP ports, by name.";
        udp_profile_path: String = "udpAppProfilePath" gcfg "udp-app-profile-path", "",
            "The same by policy path, which takes precedence. One of the two is required in `loadBalancer`.";
    }
}

keys! {
    /// `route`.
    #[derive(Debug, Clone)]
    pub(super) struct Route {
        router_path: String = "routerPath" gcfg "router-path", "",
            "Policy path of a gateway, such as `/infra/tier-1s/ID`, for static routes of NSX.";
        agents: bool = "agents", "false",
            "The agents of the section `agent` add the routes to the kernel of their hosts. Each Node needs an agent.";
    }
}

keys! {
    /// Environment variables. Numbers and switches are strings, because an invalid one is ignored with a warning.
    #[derive(Debug, Clone)]
    pub(super) struct Variables {
        vcenter: String = "VSPHERE_VCENTER", "", "Ignored. Use `VSPHERE_VCENTER_ID`.";
        port: String = "VSPHERE_VCENTER_PORT", "", "Port.";
        user: String = "VSPHERE_USER", "", "User.";
        password: Secret = "VSPHERE_PASSWORD", "", "Password.";
        datacenters: String = "VSPHERE_DATACENTER", "", "Datacenters, separated by commas.";
        round_trips: String = "VSPHERE_ROUNDTRIP_COUNT", "", "`soapRoundtripCount`.";
        insecure: String = "VSPHERE_INSECURE", "", "`insecureFlag`.";
        ca_file: String = "VSPHERE_CAFILE", "", "`caFile`.";
        thumbprint: String = "VSPHERE_THUMBPRINT", "", "`thumbprint`.";
        secret_name: String = "VSPHERE_SECRET_NAME", "", "Replaces `secretName` of `global`, also for the entries of the file.";
        secret_namespace: String = "VSPHERE_SECRET_NAMESPACE", "", "Replaces `secretNamespace` of `global`, as above.";
        secrets_directory: String = "VSPHERE_SECRETS_DIRECTORY", "", "Replaces `secretsDirectory`, as above.";
        ..
        /// Switches.
        switches: Switches;
    }
}

keys! {
    /// Variables that are on with any value, even an empty one.
    #[derive(Debug, Clone)]
    #[allow(dead_code, reason = "an empty value counts as well, so they are not read as strings")]
    pub(super) struct Switches {
        dual_stack: String = "ENABLE_ALPHA_DUAL_STACK", "", "With any value: allow two IP families.";
        skip_node_deletion: String = "SKIP_NODE_DELETION", "",
            "With any value: Nodes whose virtual machine is not found are not deleted.";
    }
}

/// Returns the environment variables for the manifests: the switches, which no file has.
pub(crate) fn environment() -> Vec<EnvironmentVariable> {
    let switches = [Switches::dual_stack, Switches::skip_node_deletion];
    let variable =
        |key: bowline_config::table::Key| EnvironmentVariable { name: key.name, summary: key.doc, secret: None };
    switches.map(variable).to_vec()
}

/// Returns a file with the names of the manifests of the Go manager.
pub(crate) fn template() -> String {
    use Example::{Optional, Set};
    let format = Format::Yaml;
    let global = [
        Set(Connection::secret_name, "vsphere-cloud-secret"),
        Set(Connection::secret_namespace, "kube-system"),
        Optional(Connection::port, "443"),
        Optional(Connection::ca_file, "/etc/cloud/ca.pem"),
    ];
    let vcenter = [
        Set(Connection::server, "vcenter.example.com"),
        Optional(Connection::datacenters, "[DATACENTER]"),
        Optional(Connection::thumbprint, "\"AA:BB\""),
    ];
    let labels = [Optional(Labels::region, "k8s-region"), Optional(Labels::zone, "k8s-zone")];
    let nodes = [Optional(Nodes::internal_network, "NETWORK"), Optional(Nodes::external_network, "NETWORK")];
    table(format).template(&[
        (Part::Global.name(format), &global),
        ("vcenter.vcenter-1", &vcenter),
        (Part::Labels.name(format), &labels),
        (Part::Nodes.name(format), &nodes),
    ])
}

/// Returns the reference page.
pub(crate) fn reference() -> String {
    HEAD.to_owned() + &table(Format::Yaml).reference() + INI + &table(Format::Gcfg).syntax()
}

const HEAD: &str = "\
# vSphere: configuration

<!-- Generated by `cargo xtask generate` from providers/vsphere/src/config; edit that instead. -->

The file of `--cloud-config` with `--cloud-provider=vsphere`, which is required. It is that of vsphere-cloud-controller-manager, in YAML or \
INI. Where two names are given, the second one is that of INI, and works in YAML as well. An unknown key is ignored with a warning. \
Credentials are in [Secrets or a directory](../guides/vsphere.md). `HTTPS_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` apply as to every provider, except to agents.
";

const INI: &str = "
## INI

A file whose first line that is not a comment begins with `[` is INI, which is deprecated. Its sections are `[Global]`, \
`[VirtualCenter \"name\"]`, `[Labels]`, `[Nodes]`, `[NSXT]`, `[LoadBalancer]`, `[LoadBalancerClass \"name\"]`, `[Agent]` and \
`[Route]`.

";
