//! What initialising a Node changes on it (NODE-6 to NODE-18).

use std::collections::BTreeMap;
use std::fmt;

use crate::addresses::{self, AddressError};
use crate::node_annotations::{self, AnnotationValues};
use crate::well_known::{INSTANCE_TYPE, LABEL_PAIRS, REGION, UNINITIALIZED_TAINT, ZONE};
use crate::{FieldChange, Instance, Node, NodeName, Opaque, Plan, ProviderId, Step, Taint, Verb};

/// Everything that lands on the Node in one write: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// The Node, and the state of it that this was decided on.
    pub node: NodeName,
    /// Not another Node of the same name.
    pub uid: String,
    /// If the Node has moved on from here, the decision is made anew.
    pub resource_version: String,
    /// To be set; `None` if the Node has one.
    pub provider_id: Option<ProviderId>,
    /// To be set; only those that differ.
    pub labels: BTreeMap<String, String>,
    /// To be set; only those that differ.
    pub annotations: AnnotationValues,
    /// The whole new list: without the init taint, the others in their order.
    pub taints: Vec<Taint>,
    /// What was asked for and not done, and why: for the log.
    pub warnings: Vec<String>,
}

/// Why a Node cannot be initialised yet. Its taint stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitializeError {
    /// Neither the cloud nor the Node has a provider ID; later it could never be set (NODE-9).
    #[error("cloud provider does not set node provider ID for node {node}")]
    NoProviderId {
        /// The Node.
        node: NodeName,
    },
    /// The address that the kubelet was told to use is not among the cloud's (NODE-11).
    #[error(
        "failed to get node modifiers from cloud provider: provided node ip for node {:?} is not valid: {source}",
        .node.as_str()
    )]
    ProvidedNodeIp {
        /// The Node.
        node: NodeName,
        /// What is wrong.
        source: AddressError,
    },
}

/// What initialising `node` as `instance` changes.
pub fn decide(node: &Node, instance: &Instance) -> Result<NodeChange, InitializeError> {
    if node.provider_id.is_none() && instance.provider_id.is_none() {
        return Err(InitializeError::NoProviderId { node: node.name.clone() });
    }
    addresses::check(node, &instance.addresses)
        .map_err(|source| InitializeError::ProvidedNodeIp { node: node.name.clone(), source })?;
    let (labels, mut warnings) = labels(node, instance);
    let annotations =
        node_annotations::decide(node, instance.annotations.iter().map(|(key, value)| (key, Some(value))));
    warnings.extend(annotations.warnings);
    Ok(NodeChange {
        node: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        // An ID that the Node has is never changed, even if the cloud has another one (NODE-17).
        provider_id: if node.provider_id.is_none() { instance.provider_id.clone() } else { None },
        labels,
        annotations: annotations.values,
        taints: node.taints.iter().filter(|taint| taint.key != UNINITIALIZED_TAINT).cloned().collect(),
        warnings,
    })
}

/// The new-style labels that must be set because the old-style ones say something else (NODE-18); empty as a rule.
pub fn mirrored_labels(node: &Node) -> BTreeMap<String, String> {
    LABEL_PAIRS
        .iter()
        .filter_map(|pair| {
            let beta = node.labels.get(pair.beta)?;
            (node.labels.get(pair.ga) != Some(beta)).then(|| (pair.ga.to_owned(), beta.clone()))
        })
        .collect()
}

/// The labels for type, zone and region that differ from those of the machine as it is now. What the cloud does not say stays.
pub fn refreshed_labels(node: &Node, instance: &Instance) -> BTreeMap<String, String> {
    let mut labels = cloud_labels(instance);
    labels.retain(|key, value| node.labels.get(key) != Some(value));
    labels
}

/// The labels to set, and what is to be said about those that are not.
fn labels(node: &Node, instance: &Instance) -> (BTreeMap<String, String>, Vec<String>) {
    let mut labels = cloud_labels(instance);
    let mut warnings = Vec::new();
    for (key, value) in &instance.labels {
        let existing = labels.get(key).or_else(|| node.labels.get(key));
        match judge(key, value, existing) {
            Judgement::Set => {
                labels.insert(key.clone(), value.clone());
            }
            Judgement::Drop => {}
            Judgement::Warn(why) => {
                warnings.push(format!("label {key}={value} is not put on node {}: {why}", node.name))
            }
        }
    }
    labels.retain(|key, value| node.labels.get(key) != Some(value));
    (labels, warnings)
}

/// Type, zone and region under both of their names, as far as the cloud says them. These overwrite (NODE-12).
fn cloud_labels(instance: &Instance) -> BTreeMap<String, String> {
    [(INSTANCE_TYPE, &instance.instance_type), (ZONE, &instance.zone), (REGION, &instance.region)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .flat_map(|(pair, value)| [(pair.beta.to_owned(), value.clone()), (pair.ga.to_owned(), value.clone())])
        .collect()
}

/// What becomes of an additional label.
enum Judgement {
    Set,
    Drop,
    Warn(String),
}

/// Additional labels neither enter Kubernetes' own namespaces nor replace anything (NODE-13).
fn judge(key: &str, value: &str, existing: Option<&String>) -> Judgement {
    match existing {
        _ if is_kubernetes_namespace(key) => {
            Judgement::Warn("keys under kubernetes.io and k8s.io are not for clouds to set".to_owned())
        }
        None => Judgement::Set,
        Some(existing) if existing == value => Judgement::Drop,
        Some(existing) => Judgement::Warn(format!("the node has the value {existing:?} already")),
    }
}

/// `(^|\.)(kubernetes|k8s)\.io/`, anywhere in the key.
pub(crate) fn is_kubernetes_namespace(key: &str) -> bool {
    const DOMAINS: [(&str, &str); 2] = [("kubernetes.io/", ".kubernetes.io/"), ("k8s.io/", ".k8s.io/")];
    DOMAINS.iter().any(|(domain, below)| key.starts_with(domain) || key.contains(below))
}

// ---- what people read

impl NodeChange {
    /// The change as a plan, for a dry run: one step, because it is one write.
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

    /// A Node with the init taint, as a kubelet registers it.
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
    fn a_node_gets_its_id_and_loses_its_taint_in_one_change_of_the_state_it_was_decided_on() {
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
        assert_eq!(change, expected, "N1, N3 (no type is known: no type labels), M1, M3");
    }

    #[test]
    fn labels_that_follow_the_machine_are_those_that_differ() {
        let labels = [("beta.kubernetes.io/instance-type", "small"), ("node.kubernetes.io/instance-type", "small")];
        let zone = [("failure-domain.beta.kubernetes.io/zone", "a"), ("topology.kubernetes.io/zone", "a")];
        let node = Node { labels: map(&[&labels[..], &zone].concat()), ..node("node0") };
        let sized = |size: &str| Instance { instance_type: size.to_owned(), zone: "a".to_owned(), ..machine() };
        assert_eq!(refreshed_labels(&node, &sized("small")), map(&[]));
        assert_eq!(refreshed_labels(&node, &sized("")), map(&[]), "the cloud does not say");
        let large = [("beta.kubernetes.io/instance-type", "large"), ("node.kubernetes.io/instance-type", "large")];
        assert_eq!(refreshed_labels(&node, &sized("large")), map(&large));
    }

    #[test]
    fn the_addresses_that_follow_the_initialisation() {
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
    fn n23_a_type_that_the_cloud_knows_replaces_the_one_on_the_node() {
        let mut node = fresh();
        node.labels = map(&[("node.kubernetes.io/instance-type", "x")]);
        let instance = Instance { instance_type: "y".to_owned(), ..machine() };
        let both = map(&[("beta.kubernetes.io/instance-type", "y"), ("node.kubernetes.io/instance-type", "y")]);
        assert_eq!(decide(&node, &instance).unwrap().labels, both);

        node.labels = both;
        assert_eq!(decide(&node, &instance).unwrap().labels, BTreeMap::new(), "what is right already is not written");
    }

    #[test]
    fn all_taints_with_the_init_key_go_and_the_others_keep_their_order() {
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
    fn n09_a_node_ip_that_is_none_keeps_the_node_tainted() {
        let error = decide(&annotated("invalid-ip"), &machine()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to get node modifiers from cloud provider: provided node ip for node \"node0\" is not valid: \
             failed to parse node IP \"invalid-ip\": could not parse \"invalid-ip\""
        );
    }

    #[test]
    fn n22_a_node_ip_without_any_cloud_address_keeps_the_node_tainted() {
        let error = decide(&annotated("10.0.0.1"), &machine()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to get node modifiers from cloud provider: provided node ip for node \"node0\" is not valid: \
             failed to get node address from cloud provider that matches ip: 10.0.0.1"
        );
    }

    #[test]
    fn an_id_that_the_node_has_stays_whatever_the_cloud_says() {
        let node = Node { provider_id: ProviderId::new("test-provider-id"), ..fresh() };
        let silent = Instance { provider_id: None, ..machine() };
        for (case, instance) in [("N10, NODE-8", silent), ("NODE-17", machine())] {
            let change = decide(&node, &instance).unwrap();
            assert_eq!(change.provider_id, None, "{case}");
            assert_eq!(change.taints, vec![], "{case}");
            assert_eq!(change.warnings, Vec::<String>::new(), "{case}");
        }
    }

    /// N11 and M2 initialise such a node without an ID for clouds of the retired first interface; ours, as M4, does not,
    /// because the ID could never be set later.
    #[test]
    fn m04_without_an_id_from_either_side_the_node_stays_tainted() {
        let error = decide(&fresh(), &Instance { provider_id: None, ..machine() }).unwrap_err();
        assert_eq!(error.to_string(), "cloud provider does not set node provider ID for node node0");
    }

    #[test]
    fn n13_additional_labels_are_put_beside_zone_and_region() {
        let custom = [("my.custom.label/foo", "bar"), ("topology.k8s.cp/zone-id", "az1")];
        let instance = Instance { region: "r".to_owned(), labels: map(&custom), ..machine() };
        let change = decide(&fresh(), &instance).unwrap();
        let mut expected = map(&custom);
        expected.extend(map(&[(REGION.beta, "r"), (REGION.ga, "r")]));
        assert_eq!((change.labels, change.warnings), (expected, vec![]));
    }

    #[test]
    fn n14_additional_labels_do_not_enter_the_namespaces_of_kubernetes() {
        let forbidden =
            ["topology.kubernetes.io/region", "topology.k8s.io/region", "kubernetes.io/region", "k8s.io/region"];
        let labels = map(&forbidden.map(|key| (key, "other")));
        let change = decide(&fresh(), &Instance { region: "r".to_owned(), labels, ..machine() }).unwrap();
        assert_eq!(change.labels, map(&[(REGION.beta, "r"), (REGION.ga, "r")]));
        assert_eq!(change.warnings.len(), 4, "{:?}", change.warnings);
    }

    #[test]
    fn the_namespaces_of_kubernetes_are_told_from_those_that_look_like_them() {
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
    fn n15_a_label_that_the_node_has_stays_and_only_a_conflict_is_worth_a_warning() {
        let instance = Instance { labels: map(&[("my.custom.label/foo", "bar")]), ..machine() };
        let with = |value| Node { labels: map(&[("my.custom.label/foo", value)]), ..fresh() };

        let conflict = decide(&with("fizz"), &instance).unwrap();
        assert_eq!(conflict.labels, BTreeMap::new());
        let warning = "label my.custom.label/foo=bar is not put on node node0: the node has the value \"fizz\" already";
        assert_eq!(conflict.warnings, vec![warning.to_owned()]);

        let agreed = decide(&with("bar"), &instance).unwrap();
        assert_eq!((agreed.labels, agreed.warnings), (BTreeMap::new(), vec![]));
    }

    #[test]
    fn the_old_style_labels_are_mirrored_to_the_new_style() {
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
    fn a_dry_run_prints_what_would_be_written() {
        let annotations = map(&[("a.example/rack", "r1"), ("kubernetes.io/rack", "refused")]);
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
