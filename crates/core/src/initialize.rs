//! Initialisation of Nodes: provider ID, labels, annotations and taints (NODE-6 to NODE-18).

use std::collections::BTreeMap;
use std::fmt;

use crate::addresses::{self, AddressError};
use crate::node_annotations::{self, AnnotationValues};
use crate::well_known::{INSTANCE_TYPE, LABEL_PAIRS, REGION, UNINITIALIZED_TAINT, ZONE};
use crate::{FieldChange, Instance, Node, NodeName, Opaque, Plan, ProviderId, Step, Taint, Verb};

/// Changes that initialise a Node, applied in a single write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// Name of the Node.
    pub node: NodeName,
    /// UID of the Node, which rules out another Node of the same name.
    pub uid: String,
    /// Resource version that the decision is based on. If the Node has changed since, the decision is repeated.
    pub resource_version: String,
    /// Provider ID to set; `None` if the Node has one already.
    pub provider_id: Option<ProviderId>,
    /// Labels to set, limited to those that differ.
    pub labels: BTreeMap<String, String>,
    /// Annotations to set, limited to those that differ.
    pub annotations: AnnotationValues,
    /// New list of taints: the existing ones in their order, without the uninitialized taint.
    pub taints: Vec<Taint>,
    /// One message for each rejected label or annotation, for the log.
    pub warnings: Vec<String>,
}

/// Reason why a Node cannot be initialised yet. The Node keeps its taint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitializeError {
    /// Neither the cloud nor the Node has a provider ID, and it could not be set later (NODE-9).
    #[error("cloud provider does not set node provider ID for node {node}")]
    NoProviderId {
        /// Name of the Node.
        node: NodeName,
    },
    /// The kubelet's `--node-ip` is not an address of the machine in the cloud (NODE-11).
    #[error(
        "failed to get node modifiers from cloud provider: provided node ip for node {:?} is not valid: {source}",
        .node.as_str()
    )]
    ProvidedNodeIp {
        /// Name of the Node.
        node: NodeName,
        /// Cause.
        source: AddressError,
    },
}

/// Decides the changes that initialise `node` as `instance`.
pub fn decide(node: &Node, instance: &Instance) -> Result<NodeChange, InitializeError> {
    if node.provider_id.is_none() && instance.provider_id.is_none() {
        return Err(InitializeError::NoProviderId { node: node.name.clone() });
    }
    addresses::check_node_ip(node, &instance.addresses)
        .map_err(|source| InitializeError::ProvidedNodeIp { node: node.name.clone(), source })?;
    let (labels, mut warnings) = labels(node, instance);
    let annotations =
        node_annotations::decide(node, instance.annotations.iter().map(|(key, value)| (key, Some(value))));
    warnings.extend(annotations.warnings);
    Ok(NodeChange {
        node: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        // An existing provider ID is never changed, even if the cloud reports another one (NODE-17).
        provider_id: if node.provider_id.is_none() { instance.provider_id.clone() } else { None },
        labels,
        annotations: annotations.values,
        taints: node.taints.iter().filter(|taint| taint.key != UNINITIALIZED_TAINT).cloned().collect(),
        warnings,
    })
}

/// Returns the GA labels to set because they differ from their beta labels (NODE-18); usually none.
pub fn mirrored_labels(node: &Node) -> BTreeMap<String, String> {
    LABEL_PAIRS
        .iter()
        .filter_map(|pair| {
            let beta = node.labels.get(pair.beta)?;
            (node.labels.get(pair.ga) != Some(beta)).then(|| (pair.ga.to_owned(), beta.clone()))
        })
        .collect()
}

/// Returns the labels for instance type, zone and region that differ from the current values in the cloud. Labels whose value the
/// cloud does not report are kept.
pub fn refreshed_labels(node: &Node, instance: &Instance) -> BTreeMap<String, String> {
    let mut labels = cloud_labels(instance);
    labels.retain(|key, value| node.labels.get(key) != Some(value));
    labels
}

/// Returns the labels to set, and a message for each label that is rejected.
fn labels(node: &Node, instance: &Instance) -> (BTreeMap<String, String>, Vec<String>) {
    let mut labels = cloud_labels(instance);
    let mut warnings = Vec::new();
    for (key, value) in &instance.labels {
        let existing = labels.get(key).or_else(|| node.labels.get(key));
        match check_label(key, value, existing) {
            LabelDecision::Set => {
                labels.insert(key.clone(), value.clone());
            }
            LabelDecision::Unchanged => {}
            LabelDecision::Reject(why) => {
                warnings.push(format!("label {key}={value} is not set on node {}: {why}", node.name))
            }
        }
    }
    labels.retain(|key, value| node.labels.get(key) != Some(value));
    (labels, warnings)
}

/// Returns instance type, zone and region under their beta and GA names, if the cloud reports them. They replace existing values
/// (NODE-12).
fn cloud_labels(instance: &Instance) -> BTreeMap<String, String> {
    [(INSTANCE_TYPE, &instance.instance_type), (ZONE, &instance.zone), (REGION, &instance.region)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .flat_map(|(pair, value)| [(pair.beta.to_owned(), value.clone()), (pair.ga.to_owned(), value.clone())])
        .collect()
}

/// Decision about an additional label.
enum LabelDecision {
    Set,
    Unchanged,
    /// Rejected for this reason.
    Reject(String),
}

/// Rejects additional labels in the namespaces of Kubernetes and those that would replace an existing value (NODE-13).
fn check_label(key: &str, value: &str, existing: Option<&String>) -> LabelDecision {
    match existing {
        _ if is_kubernetes_namespace(key) => {
            LabelDecision::Reject("keys under kubernetes.io and k8s.io are reserved".to_owned())
        }
        None => LabelDecision::Set,
        Some(existing) if existing == value => LabelDecision::Unchanged,
        Some(existing) => LabelDecision::Reject(format!("the node already has the value {existing:?}")),
    }
}

/// Returns whether `(^|\.)(kubernetes|k8s)\.io/` matches anywhere in the key.
pub(crate) fn is_kubernetes_namespace(key: &str) -> bool {
    const DOMAINS: [(&str, &str); 2] = [("kubernetes.io/", ".kubernetes.io/"), ("k8s.io/", ".k8s.io/")];
    DOMAINS.iter().any(|(domain, below)| key.starts_with(domain) || key.contains(below))
}

// ---- dry run

impl NodeChange {
    /// Returns the change as a plan for a dry run. It has one step, because the change is one write.
    pub fn plan(&self) -> Plan {
        let set = |field: String, to: &str| FieldChange { field, from: None, to: Some(to.to_owned()) };
        let provider_id = self.provider_id.iter().map(|id| set("spec.providerID".to_owned(), id.as_str()));
        let labels = self.labels.iter().map(|(key, value)| set(format!("label {key}"), value));
        let taint = FieldChange { field: "taint".to_owned(), from: Some(UNINITIALIZED_TAINT.to_owned()), to: None };
        let annotations = self.annotations.iter().map(|(key, value)| FieldChange {
            field: format!("annotation {key}"),
            from: None,
            to: value.clone(),
        });
        let changes = provider_id.chain(labels).chain(annotations).chain([taint]).collect();
        Plan::of(vec![Step::new(Verb::Update, "Node", self.node.to_string(), changes, Opaque::default())])
    }
}

impl fmt::Display for NodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addresses as list, node, taint};
    use crate::well_known::{NO_SCHEDULE, PROVIDED_NODE_IP};

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Returns a Node with the uninitialized taint, as a kubelet registers it.
    fn fresh() -> Node {
        Node { taints: vec![taint(UNINITIALIZED_TAINT, NO_SCHEDULE)], ..node("node0") }
    }

    fn annotated(value: &str) -> Node {
        Node { annotations: map(&[(PROVIDED_NODE_IP, value)]), ..fresh() }
    }

    fn machine() -> Instance {
        Instance { provider_id: ProviderId::new("fake://12345"), ..Instance::default() }
    }

    #[test]
    fn a_node_gets_its_provider_id_and_loses_its_taint_in_one_change() {
        let change = decide(&fresh(), &machine()).unwrap();
        let expected = NodeChange {
            node: "node0".into(),
            uid: "uid-of-node0".to_owned(),
            resource_version: "1".to_owned(),
            provider_id: ProviderId::new("fake://12345"),
            labels: BTreeMap::new(),
            annotations: AnnotationValues::new(),
            taints: Vec::new(),
            warnings: Vec::new(),
        };
        assert_eq!(change, expected, "N1, N3 (unknown instance type: no type labels), M1, M3");
    }

    #[test]
    fn refreshed_labels_are_those_that_differ_from_the_cloud() {
        let labels = [("beta.kubernetes.io/instance-type", "small"), ("node.kubernetes.io/instance-type", "small")];
        let zone = [("failure-domain.beta.kubernetes.io/zone", "a"), ("topology.kubernetes.io/zone", "a")];
        let node = Node { labels: map(&[&labels[..], &zone].concat()), ..node("node0") };
        let sized = |size: &str| Instance { instance_type: size.to_owned(), zone: "a".to_owned(), ..machine() };
        assert_eq!(refreshed_labels(&node, &sized("small")), map(&[]));
        assert_eq!(refreshed_labels(&node, &sized("")), map(&[]), "the cloud reports no type");
        let large = [("beta.kubernetes.io/instance-type", "large"), ("node.kubernetes.io/instance-type", "large")];
        assert_eq!(refreshed_labels(&node, &sized("large")), map(&large));
    }

    #[test]
    fn addresses_after_initialisation() {
        let three = "Hnode0.cloud.internal I10.0.0.1 E132.143.154.163";
        let two = "I10.0.0.1 E132.143.154.163";
        let two_and_name = "I10.0.0.1 E132.143.154.163 Hnodeoverriden";
        let four = "I10.0.0.1 I10.0.0.2 Hh E132.143.154.163";
        let cases = [
            ("N1", fresh(), three, three),
            ("N2", fresh(), two, two_and_name),
            ("N8", annotated("10.0.0.1"), two, two_and_name),
            ("N17", fresh(), four, four),
        ];
        for (case, node, cloud, expected) in cases {
            let node = Node { addresses: list("Hnodeoverriden"), ..node };
            let instance = Instance { addresses: list(cloud), ..machine() };
            assert!(decide(&node, &instance).unwrap().taints.is_empty(), "{case}");
            assert_eq!(addresses::decide(&node, &instance.addresses), Ok(Some(list(expected))), "{case}");
        }
    }

    #[test]
    fn n05_zone_and_region_are_set_under_both_names() {
        let instance = Instance { zone: "us-west-1a".to_owned(), region: "us-west".to_owned(), ..machine() };
        let expected = map(&[
            ("failure-domain.beta.kubernetes.io/region", "us-west"),
            ("failure-domain.beta.kubernetes.io/zone", "us-west-1a"),
            ("topology.kubernetes.io/region", "us-west"),
            ("topology.kubernetes.io/zone", "us-west-1a"),
        ]);
        assert_eq!(decide(&fresh(), &instance).unwrap().labels, expected);
    }

    #[test]
    fn n23_the_instance_type_of_the_cloud_replaces_the_label_of_the_node() {
        let mut node = fresh();
        node.labels = map(&[("node.kubernetes.io/instance-type", "x")]);
        let instance = Instance { instance_type: "y".to_owned(), ..machine() };
        let both = map(&[("beta.kubernetes.io/instance-type", "y"), ("node.kubernetes.io/instance-type", "y")]);
        assert_eq!(decide(&node, &instance).unwrap().labels, both);

        node.labels = both;
        assert_eq!(decide(&node, &instance).unwrap().labels, BTreeMap::new(), "correct labels are not written again");
    }

    #[test]
    fn all_uninitialized_taints_are_removed_and_other_taints_keep_their_order() {
        let other = |key: &str| taint(key, NO_SCHEDULE);
        let init = |effect| taint(UNINITIALIZED_TAINT, effect);
        let cases = [
            ("N6", vec![other("ImproveCoverageTaint"), init(NO_SCHEDULE)], vec![other("ImproveCoverageTaint")]),
            ("N21", vec![init(NO_SCHEDULE), init("NoExecute")], vec![]),
            (
                "order",
                vec![other("z"), init(NO_SCHEDULE), other("a"), init("NoExecute"), other("m")],
                vec![other("z"), other("a"), other("m")],
            ),
        ];
        for (case, taints, expected) in cases {
            assert_eq!(decide(&Node { taints, ..fresh() }, &machine()).unwrap().taints, expected, "{case}");
        }
    }

    #[test]
    fn n09_an_invalid_node_ip_keeps_the_node_tainted() {
        let error = decide(&annotated("invalid-ip"), &machine()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to get node modifiers from cloud provider: provided node ip for node \"node0\" is not valid: \
             failed to parse node IP \"invalid-ip\": could not parse \"invalid-ip\""
        );
    }

    #[test]
    fn n22_a_node_ip_without_any_address_from_the_cloud_keeps_the_node_tainted() {
        let error = decide(&annotated("10.0.0.1"), &machine()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to get node modifiers from cloud provider: provided node ip for node \"node0\" is not valid: \
             failed to get node address from cloud provider that matches ip: 10.0.0.1"
        );
    }

    #[test]
    fn an_existing_provider_id_is_never_changed() {
        let node = Node { provider_id: ProviderId::new("test-provider-id"), ..fresh() };
        let silent = Instance { provider_id: None, ..machine() };
        for (case, instance) in [("N10, NODE-8", silent), ("NODE-17", machine())] {
            let change = decide(&node, &instance).unwrap();
            assert_eq!(change.provider_id, None, "{case}");
            assert_eq!(change.taints, vec![], "{case}");
            assert_eq!(change.warnings, Vec::<String>::new(), "{case}");
        }
    }

    /// N11 and M2 initialise such a Node without an ID, for clouds with the obsolete `Instances` interface. Bowline, as in M4, does
    /// not, because the ID could not be set later.
    #[test]
    fn m04_without_any_provider_id_the_node_stays_tainted() {
        let error = decide(&fresh(), &Instance { provider_id: None, ..machine() }).unwrap_err();
        assert_eq!(error.to_string(), "cloud provider does not set node provider ID for node node0");
    }

    #[test]
    fn n13_additional_labels_are_set_along_with_zone_and_region() {
        let custom = [("my.custom.label/foo", "bar"), ("topology.k8s.cp/zone-id", "az1")];
        let instance = Instance { region: "r".to_owned(), labels: map(&custom), ..machine() };
        let change = decide(&fresh(), &instance).unwrap();
        let mut expected = map(&custom);
        expected.extend(map(&[(REGION.beta, "r"), (REGION.ga, "r")]));
        assert_eq!((change.labels, change.warnings), (expected, vec![]));
    }

    #[test]
    fn n14_additional_labels_in_the_namespaces_of_kubernetes_are_rejected() {
        let forbidden =
            ["topology.kubernetes.io/region", "topology.k8s.io/region", "kubernetes.io/region", "k8s.io/region"];
        let labels = map(&forbidden.map(|key| (key, "other")));
        let change = decide(&fresh(), &Instance { region: "r".to_owned(), labels, ..machine() }).unwrap();
        assert_eq!(change.labels, map(&[(REGION.beta, "r"), (REGION.ga, "r")]));
        assert_eq!(change.warnings.len(), 4, "{:?}", change.warnings);
    }

    #[test]
    fn the_namespaces_of_kubernetes_are_recognised() {
        for key in ["kubernetes.io/x", "a.kubernetes.io/x", "k8s.io/x", "a.b.k8s.io/x", "a/b.k8s.io/x"] {
            assert!(is_kubernetes_namespace(key), "{key}");
        }
        for key in
            ["mykubernetes.io/x", "kubernetes.io", "k8s.io.example/x", "topology.k8s.cp/x", "akubernetes.iox/", ""]
        {
            assert!(!is_kubernetes_namespace(key), "{key}");
        }
    }

    #[test]
    fn n15_an_existing_label_is_kept_and_a_conflict_gives_a_warning() {
        let instance = Instance { labels: map(&[("my.custom.label/foo", "bar")]), ..machine() };
        let with = |value| Node { labels: map(&[("my.custom.label/foo", value)]), ..fresh() };

        let conflict = decide(&with("fizz"), &instance).unwrap();
        assert_eq!(conflict.labels, BTreeMap::new());
        let warning = "label my.custom.label/foo=bar is not set on node node0: the node already has the value \"fizz\"";
        assert_eq!(conflict.warnings, vec![warning.to_owned()]);

        let agreed = decide(&with("bar"), &instance).unwrap();
        assert_eq!((agreed.labels, agreed.warnings), (BTreeMap::new(), vec![]));
    }

    #[test]
    fn beta_labels_are_mirrored_to_ga_labels() {
        let beta = [(ZONE.beta, "foo"), (REGION.beta, "bar"), (INSTANCE_TYPE.beta, "the-best-type")];
        let ga = [(ZONE.ga, "foo"), (REGION.ga, "bar"), (INSTANCE_TYPE.ga, "the-best-type")];
        let differing = [(ZONE.ga, "a"), (REGION.ga, "b"), (INSTANCE_TYPE.ga, "c")];
        let cases = [
            ("L1", map(&beta), map(&ga)),
            ("L2", map(&[beta, differing].concat()), map(&ga)),
            ("L3", map(&ga), map(&[])),
            ("equal", map(&[beta, ga].concat()), map(&[])),
            (
                "one differs",
                map(&[(ZONE.beta, "foo"), (REGION.beta, "bar"), (REGION.ga, "bar")]),
                map(&[(ZONE.ga, "foo")]),
            ),
            ("no labels", map(&[]), map(&[])),
        ];
        for (case, labels, expected) in cases {
            assert_eq!(mirrored_labels(&Node { labels, ..node("n") }), expected, "{case}");
        }
    }

    #[test]
    fn a_dry_run_prints_the_changes() {
        let annotations = map(&[("a.example/rack", "r1"), ("kubernetes.io/rack", "rejected")]);
        let instance = Instance { region: "r".to_owned(), annotations, ..machine() };
        let text = decide(&fresh(), &instance).unwrap().to_string();
        let expected = "update Node node0
    spec.providerID: fake://12345
    label failure-domain.beta.kubernetes.io/region: r
    label topology.kubernetes.io/region: r
    annotation a.example/rack: r1
    taint: node.cloudprovider.kubernetes.io/uninitialized (removed)";
        assert_eq!(text, expected);
    }
}
