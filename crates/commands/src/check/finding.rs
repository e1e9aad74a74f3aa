//! All findings of a check, each with its reason and its fix. `docs/guides/check.md` has the same table, and a test compares them.

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// The manager, or one of its controllers, would not work.
    Error,
    /// An operator should look into it.
    Warning,
    /// As expected, or for information.
    Info,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "ok",
        }
    }
}

macro_rules! kinds {
    ($($kind:ident, $severity:ident, $id:literal: $why:literal, $fix:literal;)*) => {
        /// Kind of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kind { $($kind),* }

        impl Kind {
            /// All kinds, in the order of the report.
            #[cfg(test)]
            pub(super) const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Stable ID, part of the JSON output.
            pub(super) fn id(self) -> &'static str {
                match self { $(Kind::$kind => $id),* }
            }

            pub(super) fn severity(self) -> Severity {
                match self { $(Kind::$kind => Severity::$severity),* }
            }

            /// Why it matters.
            pub(super) fn why(self) -> &'static str {
                match self { $(Kind::$kind => $why),* }
            }

            /// How to fix it; empty if there is nothing to do.
            pub(super) fn fix(self) -> &'static str {
                match self { $(Kind::$kind => $fix),* }
            }
        }
    };
}

kinds! {
    Configuration, Error, "configuration":
        "the manager does not start with these flags and files",
        "correct the flags and files named in the messages";
    ApiDns, Error, "api-name":
        "the host name of the API server does not resolve",
        "correct the address in the kubeconfig or --master; a Pod on the host network starts before the cluster's DNS, so use an IP address or a name that the host can resolve";
    ApiConnection, Error, "api-connection":
        "connecting to the API server fails",
        "make sure that the API server is running, that address and port are correct, and that no firewall blocks the connection";
    ApiHandshake, Error, "api-conversation":
        "the TLS handshake or the HTTP request fails: usually the server certificate is not signed by the CA in the kubeconfig, or is for another name",
        "put the cluster's CA into the kubeconfig (certificate-authority), use a server name that is in the certificate, and use https:// for a TLS port";
    ApiCredentials, Error, "api-credentials":
        "the API server rejects the token or client certificate",
        "renew the credentials: they have expired, or belong to another cluster";
    ApiAnonymous, Error, "api-anonymous":
        "the API server treats the manager as an anonymous user: the kubeconfig has no credentials",
        "add a token or a client certificate to the kubeconfig; --master alone has no credentials";
    ApiUnhealthy, Error, "api-unwell":
        "the API server responds with an error",
        "check its log and /readyz?verbose";
    ApiReached, Info, "api-reached":
        "the API server responds", "";
    PermissionMissing, Error, "right-missing":
        "the API server denies a permission that the manager needs",
        "apply the roles that `bowline manifests` prints for these flags, and bind them to the manager's service account";
    PermissionOptional, Warning, "right-dispensable":
        "the API server denies an optional permission",
        "none if the stated effect is acceptable; otherwise apply the roles that `bowline manifests` prints for these flags";
    PermissionUnknown, Warning, "right-unknown":
        "the permission could not be reviewed",
        "run the check with permission to create subjectaccessreviews";
    PermissionsComplete, Info, "rights-complete":
        "the manager has all permissions it needs", "";
    ServerOld, Warning, "server-old":
        "the API server is older than the versions that this release is tested with",
        "upgrade the cluster";
    ServerNew, Info, "server-new":
        "the API server is newer than the versions that this release is tested with", "";
    InTreeClouds, Warning, "in-tree-clouds":
        "kube-controller-manager of this version has its own cloud controllers, which cannot be detected from outside",
        "start kube-controller-manager and the kubelets with --cloud-provider=external";
    KubeletSkew, Warning, "kubelet-skew":
        "a kubelet must not be newer than the API server, nor more than three minor versions older",
        "upgrade the API server first, then the kubelets";
    CloudCredentials, Error, "cloud-credentials":
        "the cloud rejects the credentials",
        "renew the credentials where they come from: the file of --cloud-config, the environment, or the cloud";
    CloudPermissions, Error, "cloud-rights":
        "the cloud accepts the credentials, but denies a permission that the manager needs",
        "grant the permissions listed on the provider's page";
    CloudUnreachable, Error, "cloud-unreachable":
        "the cloud does not respond, or responds with an error",
        "make sure that the cloud's address in --cloud-config is correct and reachable";
    CloudConfiguration, Error, "cloud-configuration":
        "a resource named in the cloud's configuration does not exist or is not usable",
        "correct it in the file of --cloud-config; the message says what was found";
    CloudUnsupported, Warning, "cloud-lacks":
        "the cloud does not support a feature; Services or Nodes that need it would fail",
        "none if the feature is not used; otherwise have it installed in the cloud";
    CloudReached, Info, "cloud-reached":
        "the cloud responds, accepts the credentials and has the resources named in its configuration", "";
    QuotaExhausted, Error, "quota-exhausted":
        "the cloud's quota is used up",
        "request a larger quota, or delete unused resources (`bowline orphans` lists resources that this cluster no longer needs)";
    QuotaLow, Warning, "quota-low":
        "at least 80 % of the cloud's quota is used",
        "request a larger quota before it is used up";
    KubeletNotExternal, Error, "kubelet-not-external":
        "the Node has a machine in the cloud, but no provider ID, and does not wait for initialisation: its kubelet was started without --cloud-provider=external, so the Node is never initialised",
        "start the kubelet with --cloud-provider=external, delete the Node and let the kubelet register it again";
    NodeNameUnknown, Error, "node-name-unknown":
        "the Node waits for initialisation, but no cloud has a machine with its name",
        "use the machine's name for the Node (kubelet flag --hostname-override), or set its provider ID (kubelet flag --provider-id)";
    ProviderIdMissing, Warning, "provider-id-missing":
        "the Node was initialised, but has no provider ID: the manager looks up its machine by name in every cloud",
        "delete the Node and let its kubelet register it again, or patch spec.providerID";
    NodeOfNoCloud, Warning, "node-of-no-cloud":
        "no configured cloud has a machine for the Node; the manager ignores it",
        "none if the Node belongs to another cloud or to none; otherwise add its cloud to --cloud-provider";
    ProviderIdForeign, Warning, "provider-id-foreign":
        "the Node's provider ID belongs to no configured cloud; the manager ignores it",
        "none if another manager is responsible for the Node; otherwise add its cloud to --cloud-provider";
    MachineGone, Warning, "machine-gone":
        "the Node's machine no longer exists in the cloud: the manager deletes the Node once it is not ready",
        "none if the machine was deleted; otherwise correct the credentials or the region, which select another project";
    NodeNameMismatch, Warning, "node-name-mismatch":
        "machine and Node have different names; features that look up machines by name, such as routes of some clouds, do not find it",
        "use the same name for both, with the kubelet flag --hostname-override or in the cloud";
    MachineUnknown, Warning, "machine-unknown":
        "reading the Node's machine from the cloud failed",
        "see the message; the manager would retry";
    NodesWaiting, Info, "nodes-waiting":
        "Nodes wait for initialisation, and their machines exist", "";
    NodesKnown, Info, "nodes-known":
        "Nodes have machines in a configured cloud", "";
    ElectionOff, Error, "election-off":
        "another manager holds the lease, and with --leader-elect=false this one would run at the same time",
        "leave --leader-elect on, or stop the other manager first";
    LeaseOfAnother, Warning, "lease-of-another":
        "another program holds the lease: this manager waits until the lease is released",
        "none during a migration: remove the other manager once this one is ready";
    LeaseHeld, Info, "lease-held":
        "a Bowline manager is already running; this one would be a standby", "";
    SecondManager, Error, "second-manager":
        "a cloud controller manager holds another lease: both would run at the same time and undo each other's changes",
        "stop one of them, or use the same --leader-elect-resource-name and --leader-elect-resource-namespace for both";
    ServiceConflict, Error, "service-fought-over":
        "this manager and another one both write the load balancer of the Service",
        "stop the other manager, or assign each its Services with spec.loadBalancerClass";
    ServiceOfAnother, Info, "service-of-another":
        "another manager created the load balancer of the Service; this one takes it over", "";
    ReadError, Warning, "unseen":
        "the state could not be read, so it was not checked",
        "run the check again with permission to read it";
}

/// A finding and the objects it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// Each object, with its details.
    pub(super) about: Vec<(String, String)>,
}

impl Finding {
    pub(super) fn new(kind: Kind, about: impl Into<String>, detail: impl Into<String>) -> Finding {
        Finding { kind, about: vec![(about.into(), detail.into())] }
    }
}
