//! The names Go has for texts with a meaning, as error messages show them: `v1.ServiceType`.

/// Each named type with the fields that have it, or lists of it.
const NAMED: &[(&str, &[&str])] = &[
    ("types.UID", &["ObjectMeta.uid", "ObjectReference.uid", "OwnerReference.uid", "ConfigMapNodeConfigSource.uid"]),
    ("v1.AddressType", &["EndpointSlice.addressType"]),
    ("v1.AppArmorProfileType", &["AppArmorProfile.type"]),
    ("v1.AzureDataDiskCachingMode", &["AzureDiskVolumeSource.cachingMode"]),
    ("v1.AzureDataDiskKind", &["AzureDiskVolumeSource.kind"]),
    ("v1.Capability", &["Capabilities.add", "Capabilities.drop"]),
    (
        "v1.ConditionStatus",
        &[
            "NamespaceCondition.status",
            "NodeCondition.status",
            "Condition.status",
            "PodCondition.status",
            "DeploymentCondition.status",
            "DaemonSetCondition.status",
        ],
    ),
    ("v1.ContainerRestartPolicy", &["Container.restartPolicy", "EphemeralContainer.restartPolicy"]),
    ("v1.ContainerRestartRuleAction", &["ContainerRestartRule.action"]),
    ("v1.ContainerRestartRuleOnExitCodesOperator", &["ContainerRestartRuleOnExitCodes.operator"]),
    ("v1.CoordinatedLeaseStrategy", &["LeaseSpec.strategy"]),
    ("v1.DNSPolicy", &["PodSpec.dnsPolicy"]),
    ("v1.DaemonSetConditionType", &["DaemonSetCondition.type"]),
    ("v1.DaemonSetUpdateStrategyType", &["DaemonSetUpdateStrategy.type"]),
    ("v1.DeploymentConditionType", &["DeploymentCondition.type"]),
    ("v1.DeploymentStrategyType", &["DeploymentStrategy.type"]),
    ("v1.FinalizerName", &["NamespaceSpec.finalizers"]),
    ("v1.GRPCProbeMode", &["GRPCAction.mode"]),
    ("v1.HTTPProtocol", &["HTTPGetAction.protocol"]),
    ("v1.HostPathType", &["HostPathVolumeSource.type"]),
    ("v1.IPFamily", &["ServiceSpec.ipFamilies"]),
    ("v1.IPFamilyPolicy", &["ServiceSpec.ipFamilyPolicy"]),
    ("v1.LabelSelectorOperator", &["LabelSelectorRequirement.operator"]),
    ("v1.LoadBalancerIPMode", &["LoadBalancerIngress.ipMode"]),
    ("v1.ManagedFieldsOperationType", &["ManagedFieldsEntry.operation"]),
    ("v1.MountPropagationMode", &["VolumeMount.mountPropagation"]),
    ("v1.NamespaceConditionType", &["NamespaceCondition.type"]),
    ("v1.NamespacePhase", &["NamespaceStatus.phase"]),
    ("v1.NodeAddressType", &["NodeAddress.type"]),
    ("v1.NodeConditionType", &["NodeCondition.type"]),
    (
        "v1.NodeInclusionPolicy",
        &["TopologySpreadConstraint.nodeAffinityPolicy", "TopologySpreadConstraint.nodeTaintsPolicy"],
    ),
    ("v1.NodePhase", &["NodeStatus.phase"]),
    ("v1.NodeSelectorOperator", &["NodeSelectorRequirement.operator"]),
    ("v1.OSName", &["PodOS.name"]),
    ("v1.PersistentVolumeAccessMode", &["PersistentVolumeClaimSpec.accessModes"]),
    ("v1.PersistentVolumeMode", &["PersistentVolumeClaimSpec.volumeMode"]),
    ("v1.PodConditionType", &["PodReadinessGate.conditionType", "PodCondition.type"]),
    ("v1.PodFSGroupChangePolicy", &["PodSecurityContext.fsGroupChangePolicy"]),
    ("v1.PodPhase", &["PodStatus.phase"]),
    ("v1.PodQOSClass", &["PodStatus.qosClass"]),
    ("v1.PodResizeStatus", &["PodStatus.resize"]),
    ("v1.PodSELinuxChangePolicy", &["PodSecurityContext.seLinuxChangePolicy"]),
    ("v1.PreemptionPolicy", &["PodSpec.preemptionPolicy"]),
    ("v1.ProcMountType", &["SecurityContext.procMount"]),
    (
        "v1.Protocol",
        &["EndpointPort.protocol", "ServicePort.protocol", "ContainerPort.protocol", "PortStatus.protocol"],
    ),
    (
        "v1.PullPolicy",
        &["Container.imagePullPolicy", "EphemeralContainer.imagePullPolicy", "ImageVolumeSource.pullPolicy"],
    ),
    ("v1.RecursiveReadOnlyMode", &["VolumeMount.recursiveReadOnly", "VolumeMountStatus.recursiveReadOnly"]),
    ("v1.ResourceHealthStatus", &["ResourceHealth.health"]),
    ("v1.ResourceID", &["ResourceHealth.resourceID"]),
    (
        "v1.ResourceName",
        &[
            "ContainerResizePolicy.resourceName",
            "ResourceStatus.name",
            "NodeAllocatableMappedResources.name",
            "NodeAllocatableOverheadResources.name",
        ],
    ),
    ("v1.ResourceResizeRestartPolicy", &["ContainerResizePolicy.restartPolicy"]),
    ("v1.RestartPolicy", &["PodSpec.restartPolicy"]),
    ("v1.SeccompProfileType", &["SeccompProfile.type"]),
    ("v1.SecretType", &["Secret.type"]),
    ("v1.ServiceAffinity", &["ServiceSpec.sessionAffinity"]),
    ("v1.ServiceExternalTrafficPolicy", &["ServiceSpec.externalTrafficPolicy"]),
    ("v1.ServiceInternalTrafficPolicy", &["ServiceSpec.internalTrafficPolicy"]),
    ("v1.ServiceType", &["ServiceSpec.type"]),
    ("v1.Signal", &["ContainerStatus.stopSignal", "Lifecycle.stopSignal"]),
    ("v1.StorageMedium", &["EmptyDirVolumeSource.medium"]),
    ("v1.SupplementalGroupsPolicy", &["PodSecurityContext.supplementalGroupsPolicy"]),
    ("v1.TaintEffect", &["Taint.effect", "Toleration.effect"]),
    (
        "v1.TerminationMessagePolicy",
        &["Container.terminationMessagePolicy", "EphemeralContainer.terminationMessagePolicy"],
    ),
    ("v1.TolerationOperator", &["Toleration.operator"]),
    ("v1.URIScheme", &["HTTPGetAction.scheme"]),
    ("v1.UniqueVolumeName", &["NodeStatus.volumesInUse", "AttachedVolume.name"]),
    ("v1.UnsatisfiableConstraintAction", &["TopologySpreadConstraint.whenUnsatisfiable"]),
    ("v1.VolumeHealthStatusType", &["VolumeHealthCondition.status"]),
];

/// The Go type of a text field (or of the texts in a list field), given as `Struct.field`.
pub(crate) fn text_type(owner: &str, field: &str) -> &'static str {
    let is_it = |place: &str| place.split_once('.') == Some((owner, field));
    NAMED.iter().find(|(_, places)| places.iter().any(|p| is_it(p))).map_or("string", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Ty, schema};

    #[test]
    fn texts_have_the_names_go_gives_them() {
        assert_eq!(text_type("ServiceSpec", "type"), "v1.ServiceType");
        assert_eq!(text_type("ObjectMeta", "uid"), "types.UID");
        assert_eq!(text_type("ObjectMeta", "name"), "string");
    }

    #[test]
    fn every_place_is_a_text_of_the_schema() {
        let is_text = |ty: &Ty| *ty == Ty::String || *ty == Ty::List(Box::new(Ty::String));
        for place in NAMED.iter().flat_map(|(_, places)| *places) {
            let (owner, field) = place.split_once('.').unwrap();
            let mut fields = schema().structs().filter(|s| s.short_name() == owner).filter_map(|s| s.field(field));
            assert!(fields.any(|f| is_text(&f.ty)), "{place}");
        }
    }
}
