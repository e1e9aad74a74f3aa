//! Everything that a check can find, each with what it means and what helps. The guide lists the same, and a test compares.

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// The manager, or a part of what it is for, would not work.
    Error,
    /// Something is not as it should be, and a person should look.
    Warning,
    /// As it should be, or good to know.
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
    ($($kind:ident, $severity:ident, $id:literal: $why:literal, $cure:literal;)*) => {
        /// What was found.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kind { $($kind),* }

        impl Kind {
            /// All of them, in the order in which they are told.
            #[cfg(test)]
            pub(super) const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Its name, which stays the same.
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

            /// What helps; empty if nothing need be done.
            pub(super) fn cure(self) -> &'static str {
                match self { $(Kind::$kind => $cure),* }
            }
        }
    };
}

kinds! {
    Configuration, Error, "configuration":
        "the manager does not start with these flags and files",
        "correct them; each message says what would be right";
    ApiName, Error, "api-name":
        "the name of the API server does not resolve from here",
        "correct the address in the kubeconfig or --master; in a pod on the host's network, the cluster's DNS is not there yet, so give an IP address or a name that the machine itself can resolve";
    ApiConnection, Error, "api-connection":
        "nobody accepts a connection at the address of the API server",
        "see that the API server runs, that the port is right, and that no firewall is in between";
    ApiConversation, Error, "api-conversation":
        "there is a connection, but TLS or HTTP fails: usually the certificate is not signed by the CA of the kubeconfig, or is for another name",
        "put the cluster's CA into the kubeconfig (certificate-authority), reach the server under a name in its certificate, and write https:// for a port that speaks TLS";
    ApiCredentials, Error, "api-credentials":
        "the API server does not accept the token or certificate",
        "renew the credentials: they have expired, or belong to another cluster";
    ApiAnonymous, Error, "api-anonymous":
        "the API server takes the manager for nobody: the kubeconfig has no credentials",
        "add a token or a client certificate to the kubeconfig; --master alone brings none";
    ApiUnwell, Error, "api-unwell":
        "the API server answers, but with an error",
        "look at its log, and at /readyz?verbose";
    ApiReached, Info, "api-reached":
        "the API server answers", "";
    RightMissing, Error, "right-missing":
        "what the manager would ask of the API server is forbidden",
        "apply the roles that `bowline manifests` prints for these flags, and bind them to the account that the manager runs as";
    RightDispensable, Warning, "right-dispensable":
        "what the manager would ask of the API server is forbidden, and it does without",
        "nothing, if what is said of it is no loss; else apply the roles that `bowline manifests` prints for these flags";
    RightUnknown, Warning, "right-unknown":
        "whether this is allowed could not be found out",
        "ask again as somebody who may create subjectaccessreviews";
    RightsComplete, Info, "rights-complete":
        "everything that the manager would ask for is allowed", "";
    ServerOld, Warning, "server-old":
        "the API server is older than those that this version is tried with",
        "update the cluster, or expect surprises";
    ServerNew, Info, "server-new":
        "the API server is newer than those that this version is tried with", "";
    InTreeClouds, Warning, "in-tree-clouds":
        "a kube-controller-manager of this version has cloud controllers of its own, which a look from outside cannot see",
        "start kube-controller-manager and the kubelets with --cloud-provider=external";
    KubeletSkew, Warning, "kubelet-skew":
        "a kubelet must not be newer than the API server, nor more than three minor versions older",
        "update the cluster in order: API server first, then kubelets";
    CloudCredentials, Error, "cloud-credentials":
        "the cloud does not accept the credentials",
        "renew the credentials in the file of --cloud-config";
    CloudRights, Error, "cloud-rights":
        "the cloud knows the credentials, but does not allow what is needed",
        "give their owner the rights that the provider's page lists";
    CloudUnreachable, Error, "cloud-unreachable":
        "the cloud does not answer, or not as it should",
        "see that its address in --cloud-config is right and can be reached from here";
    CloudConfiguration, Error, "cloud-configuration":
        "what the cloud's configuration names is not there, or not what it should be",
        "correct it in the file of --cloud-config; the message says what was found instead";
    CloudLacks, Warning, "cloud-lacks":
        "the cloud does not have all that may be asked of it; what needs it would fail",
        "nothing, if nobody asks for it; else have it installed in the cloud";
    CloudReached, Info, "cloud-reached":
        "the cloud answers, accepts the credentials and has what its configuration names", "";
    QuotaExhausted, Error, "quota-exhausted":
        "the cloud allows no more of this",
        "ask the cloud for a larger quota, or remove what is not needed (`bowline orphans` shows what this cluster has left behind)";
    QuotaLow, Warning, "quota-low":
        "four fifths of what the cloud allows are used",
        "ask the cloud for a larger quota before it is used up";
    KubeletNotExternal, Error, "kubelet-not-external":
        "a machine of the cloud has a Node without provider ID that does not wait for a manager: its kubelet was started without --cloud-provider=external, so the Node is never initialised",
        "start the kubelet with --cloud-provider=external, delete the Node and let the kubelet register again";
    NodeNameUnknown, Error, "node-name-unknown":
        "the Node waits to be initialised, and no cloud has a machine of its name: it waits for ever",
        "name the Node as the cloud names its machine (the kubelet's --hostname-override), or give it its ID (the kubelet's --provider-id)";
    ProviderIdMissing, Warning, "provider-id-missing":
        "the Node was initialised by somebody, but has no provider ID, so that its machine is looked for by name in every cloud",
        "delete the Node and let its kubelet register again, or patch spec.providerID";
    NodeOfNoCloud, Warning, "node-of-no-cloud":
        "no cloud here knows a machine for the Node; it is left alone",
        "nothing, if it is none of these clouds' business; else add its cloud to --cloud-provider";
    ProviderIdForeign, Warning, "provider-id-foreign":
        "the provider ID of the Node belongs to none of these clouds; it is left alone",
        "nothing, if another manager sees to it; else add its cloud to --cloud-provider";
    MachineGone, Warning, "machine-gone":
        "the cloud has no machine for the Node any more: once the Node is not ready, it is deleted",
        "nothing, if the machine is gone; else correct credentials or region, as the cloud that answers is another one";
    NodeNameMismatch, Warning, "node-name-mismatch":
        "the machine is called otherwise than its Node; what goes by names, such as routes of some clouds, does not find it",
        "give both the same name, with the kubelet's --hostname-override or in the cloud";
    MachineUnknown, Warning, "machine-unknown":
        "the cloud could not tell about the machine of the Node",
        "see the message; the manager would ask again";
    NodesWaiting, Info, "nodes-waiting":
        "Nodes wait to be initialised, and their machines are known", "";
    NodesKnown, Info, "nodes-known":
        "Nodes whose machines are known", "";
    ElectionOff, Error, "election-off":
        "somebody holds the lease, and with --leader-elect=false the manager would work beside it",
        "leave --leader-elect on, or stop the other one first";
    LeaseOfAnother, Warning, "lease-of-another":
        "another program holds the lease: this manager waits until it is given back",
        "nothing while you change over: remove the other manager when this one is ready";
    LeaseHeld, Info, "lease-held":
        "a manager of this kind runs already; this one would stand by", "";
    SecondManager, Error, "second-manager":
        "a cloud controller manager leads under another lease, so that both would work at once and undo each other's changes",
        "stop one of them, or give both the same --leader-elect-resource-name and --leader-elect-resource-namespace";
    ServiceFoughtOver, Error, "service-fought-over":
        "this manager and another one both write the load balancer of the Service",
        "stop the other one, or tell them apart with spec.loadBalancerClass";
    ServiceOfAnother, Info, "service-of-another":
        "the load balancer of the Service was made by another manager; this one takes it over", "";
    ReadError, Warning, "unseen":
        "this could not be looked at, so what is wrong there is not told",
        "run the check once more as somebody who may read it";
}

/// Something that was found, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// What it is about, each with what is to be said of it alone.
    pub(super) about: Vec<(String, String)>,
}

impl Finding {
    pub(super) fn new(kind: Kind, about: impl Into<String>, detail: impl Into<String>) -> Finding {
        Finding { kind, about: vec![(about.into(), detail.into())] }
    }
}
