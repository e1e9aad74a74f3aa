//! Declares the keys of the file and the environment variables: one table, which the parser and the reference page use.

use bowline_config::Secret;
use bowline_config::table::{Example, Format, Section, Table, UnknownKeys, keys};

pub(super) const GLOBAL: &str = "Global";
pub(super) const OVERRIDE: &str = "ServiceOverride";

/// Returns all sections.
pub(super) fn table() -> Table {
    let sections = vec![
        Section { obsolete_keys: OBSOLETE, ..Section::of::<Global>(GLOBAL, GLOBAL_DOC) },
        Section { named: true, ..Section::of::<Override>(OVERRIDE, OVERRIDE_DOC) },
        Section::environment::<Variables>(VARIABLES_DOC),
    ];
    // upstream: unknown sections and keys are ignored.
    Table { format: Format::Gcfg, unknown: UnknownKeys::Warn, sections }
}

/// Keys of older releases, which have no effect any more.
const OBSOLETE: &[&str] = &["DisableStrictZoneCheck", "Debug"];

const GLOBAL_DOC: &str =
    "Region, cluster and load balancers. Every key is optional on an instance that has the tag of its cluster.";

const OVERRIDE_DOC: &str = "Endpoint of one service in one region, in place of that of AWS. Any number of sections, each with a name of its \
    own. They take precedence over the environment variables below.";

const VARIABLES_DOC: &str = "Endpoints and credentials, as other AWS tools read them. Credentials come from the first of these sources \
    that is configured: keys in the environment, a web identity token (IRSA), a profile of the shared files, a container endpoint (such \
    as EKS Pod Identity), the metadata service of the instance.";

keys! {
    /// Environment variables.
    #[derive(Debug, Clone)]
    pub(crate) struct Variables {
        ../// Endpoints.
        endpoints: EndpointVariables;
        ../// Credentials.
        credentials: CredentialVariables;
    }
}

keys! {
    /// `[Global]`.
    #[derive(Debug, Clone)]
    pub(crate) struct Global {
        zone: String = "Zone", "", "Availability zone, from which only the region is derived. Takes precedence over `Region`.";
        region: String = "Region", "", "Region. Default: that of the metadata service.";
        vpc: String = "VPC", "", "VPC of the cluster. Only read if the manager does not run on an instance of the cluster, which is \
            assumed if this key, one of `SubnetID` and `RoleARN`, and one of `KubernetesClusterTag` and `KubernetesClusterID` are set.";
        subnet_id: String = "SubnetID", "", "Subnet that load balancers get if no other is suitable. Only read together with `VPC`.";
        route_table_id: String = "RouteTableID", "", "Route table for pod CIDRs. Default: the one with the tag of the cluster.";
        role_arn: String = "RoleARN", "", "IAM role to assume for all calls.";
        source_arn: String = "SourceARN", "", "With `RoleARN`: value of the header `x-amz-source-arn` of the AssumeRole call.";
        cluster_tag: String = "KubernetesClusterTag", "", "Cluster ID. New resources get the legacy tag `KubernetesCluster` as well.";
        cluster_id: String = "KubernetesClusterID", "", "Cluster ID. Default: that in the tags of this instance.";
        disable_security_group_ingress: bool = "DisableSecurityGroupIngress", "false",
            "Never change the security groups of Nodes.";
        elb_security_group: String = "ElbSecurityGroup", "",
            "Security group of all Classic Load Balancers. Its rules are never changed, and it is never deleted.";
        node_ip_families: Vec<String> = "NodeIPFamilies", "ipv4",
            "IP families of Node addresses, in this order: `ipv4`, `ipv6`. Other values are ignored with a warning.";
        health_probe_mode: String = "ClusterServiceLoadBalancerHealthProbeMode", "ServiceNodePort",
            "`Shared` lets load balancers check kube-proxy, unless the Service has `externalTrafficPolicy: Local`. With \
             `ServiceNodePort` they check the node port.";
        health_probe_port: i64 = "ClusterServiceSharedLoadBalancerHealthProbePort", "10256",
            "Port of the health check with `Shared`.";
        health_probe_path: String = "ClusterServiceSharedLoadBalancerHealthProbePath", "/healthz",
            "Path of the health check with `Shared`.";
        topology_types: String = "SupportedTopologyInstanceTypePattern", r"^(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?(\.[0-9a-z]*)$",
            "Regular expression for instance types whose Nodes wait for the labels of their network topology.";
        nlb_security_group_mode: String = "NLBSecurityGroupMode", "",
            "`Managed` gives each new Network Load Balancer a security group. Empty: none.";
    }
}

keys! {
    /// `[ServiceOverride "name"]`.
    #[derive(Debug, Clone)]
    pub(crate) struct Override {
        service: String = "Service", "",
            "Service: `EC2`, `Elastic Load Balancing`, `Elastic Load Balancing v2` or `ec2imds`, or as in older releases `ec2`, \
             `elasticloadbalancing` (both load balancer APIs) or `ec2metadata`. The case has no effect. Required.";
        region: String = "Region", "", "Region in which the override applies. Not compared for `ec2imds`. Required.";
        url: String = "URL", "", "URL of the endpoint. Required.";
        signing_region: String = "SigningRegion", "", "Region that signatures are valid for. Required.";
        signing_method: String = "SigningMethod", "", "Not used: signatures are always Version 4.";
        signing_name: String = "SigningName", "", "Service name that signatures are valid for. Default: that of the service.";
    }
}

keys! {
    /// Environment variables of endpoints.
    #[derive(Debug, Clone)]
    pub(crate) struct EndpointVariables {
        all: String = "AWS_ENDPOINT_URL", "", "Endpoint of every service that has no variable of its own.";
        ec2: String = "AWS_ENDPOINT_URL_EC2", "", "Endpoint of EC2.";
        elb: String = "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING", "", "Endpoint of Classic Load Balancers.";
        elbv2: String = "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2", "", "Endpoint of Network Load Balancers.";
        sts: String = "AWS_ENDPOINT_URL_STS", "", "Endpoint of STS, which no section of the file can replace.";
        metadata: String = "AWS_EC2_METADATA_SERVICE_ENDPOINT", "", "Endpoint of the metadata service.";
        metadata_mode: String = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv4",
            "`IPv6` for the IPv6 address of the metadata service.";
        ignore: String = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "", "`true`: ignore all `AWS_ENDPOINT_URL` variables.";
        fips: String = "AWS_USE_FIPS_ENDPOINT", "", "`true`: use the FIPS endpoints of AWS.";
        dual_stack: String = "AWS_USE_DUALSTACK_ENDPOINT", "", "`true`: use the endpoints that also have IPv6 addresses.";
    }
}

keys! {
    /// Environment variables of credentials.
    #[derive(Debug, Clone)]
    pub(crate) struct CredentialVariables {
        access_key_id: String = "AWS_ACCESS_KEY_ID", "", "Access key ID. Used together with `AWS_SECRET_ACCESS_KEY`.";
        secret_access_key: Secret = "AWS_SECRET_ACCESS_KEY", "", "Secret access key.";
        session_token: Secret = "AWS_SESSION_TOKEN", "", "Session token of temporary keys.";
        role_arn: String = "AWS_ROLE_ARN", "", "Role of the web identity token.";
        web_identity_token_file: String = "AWS_WEB_IDENTITY_TOKEN_FILE", "",
            "File with the web identity token, read again for each renewal.";
        role_session_name: String = "AWS_ROLE_SESSION_NAME", "", "Name of the session with that role.";
        config_file: String = "AWS_CONFIG_FILE", "", "Shared configuration file. Default: `~/.aws/config`.";
        credentials_file: String = "AWS_SHARED_CREDENTIALS_FILE", "", "Shared credentials file. Default: `~/.aws/credentials`.";
        profile: String = "AWS_PROFILE", "", "Profile in these files. Default: `default`.";
        container_relative_uri: String = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "", "Path of the container endpoint of ECS.";
        container_full_uri: String = "AWS_CONTAINER_CREDENTIALS_FULL_URI", "",
            "URL of the container endpoint: HTTPS, or a loopback address, or one of ECS or EKS Pod Identity.";
        container_token: Secret = "AWS_CONTAINER_AUTHORIZATION_TOKEN", "", "Token for the container endpoint.";
        container_token_file: String = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "",
            "File with that token, read again for each renewal.";
        metadata_disabled: String = "AWS_EC2_METADATA_DISABLED", "", "`true`: never call the metadata service.";
        home: String = "HOME", "", "Home directory, with `.aws/config` and `.aws/credentials`.";
    }
}

/// Returns a file whose keys are all optional.
pub(crate) fn template() -> String {
    use Example::Optional;
    table().template(&[(
        GLOBAL,
        &[
            Optional(Global::region, "eu-west-1"),
            Optional(Global::cluster_id, "ID"),
            Optional(Global::vpc, "vpc-ID"),
            Optional(Global::subnet_id, "subnet-ID"),
            Optional(Global::role_arn, "arn:aws:iam::111122223333:role/NAME"),
            Optional(Global::route_table_id, "rtb-ID"),
            Optional(Global::nlb_security_group_mode, "Managed"),
            Optional(Global::node_ip_families, "ipv4"),
        ],
    )])
}

/// Returns the reference page.
pub(crate) fn reference() -> String {
    let table = table();
    HEAD.to_owned() + &table.syntax() + &table.reference()
}

const HEAD: &str = "\
# AWS: configuration

<!-- Generated by `cargo xtask generate` from providers/aws/src/config; edit that instead. -->

The file of `--cloud-config` with `--cloud-provider=aws`, which is optional. It is that of aws-cloud-controller-manager, with the same \
syntax. `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` apply as to every provider.

";
