//! Networks and subnets of VIP, members and floating IP.
//!
//! ```text
//!  VIP network, VIP subnet:  annotation > class > cloud.conf; for a new external load balancer, the class comes first
//!  members:                  `member-subnet-id` of annotation > class > cloud.conf; then `subnet-id` of cloud.conf, then the VIP subnet
//!  neither VIP network nor VIP subnet: VIP and members are in the subnet of the first node
//!  floating network:         class > annotation > cloud.conf > the first suitable external network
//! ```

use bowline_cloud::Result;
use bowline_core::annotations::{Annotation, OrNone, Reader, Text};

use super::super::annotations as known;
use super::super::observation::Placement;
use super::{Settings, invalid_config};
use crate::Config;
use crate::api::key_manager::Stored;
use crate::config::{Class, FloatingSubnet, LoadBalancer};

/// Networks and subnets of VIP and members. An empty text is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PlacementSettings {
    /// Existing port for the VIP; then VIP network and subnet are not sent.
    pub(crate) vip_port_id: String,
    vip_network_id: String,
    vip_subnet_id: String,
    member_subnet_id: String,
    /// VIP and members are in the subnet of the first node.
    pub(crate) detect: bool,
}

/// Network and subnets of the floating IP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FloatingIpSettings {
    /// The external network; empty if it is to be detected.
    pub(crate) network_id: String,
    /// Its subnets; an ID excludes name and tags.
    pub(crate) subnet: FloatingSubnet,
    /// It is never deleted.
    pub(crate) keep: bool,
}

/// Returns the class of the Service.
pub(super) fn class<'a>(reader: &Reader<'_>, config: &'a Config) -> Result<Option<&'a Class>> {
    let Some(name) = reader.get(&known::CLASS) else { return Ok(None) };
    config.classes.get(name).map(Some).ok_or_else(|| {
        let known: Vec<_> = config.classes.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("known: {}", known.join(", ")) };
        let key = known::CLASS.key;
        invalid_config(format!(
            "{key}: cloud.conf has no [LoadBalancerClass {name:?}] ({known}; names are case-sensitive)"
        ))
    })
}

impl PlacementSettings {
    pub(super) fn of(reader: &Reader<'_>, class: Option<&Class>, cfg: &LoadBalancer, internal: bool) -> Self {
        let own = &cfg.placement;
        let first = |annotation: Annotation<OrNone<Text>>, field: fn(&Class) -> &String| {
            let annotated = reader.get(&annotation);
            let all = [annotated, class.map(|class| field(class).as_str()), Some(field(own).as_str())];
            all.into_iter().flatten().find(|id| !id.is_empty()).unwrap_or_default()
        };
        let network = first(known::NETWORK_ID, |class| &class.network_id);
        let subnet = first(known::SUBNET_ID, |class| &class.subnet_id);
        let members = first(known::MEMBER_SUBNET_ID, |class| &class.member_subnet_id);
        // upstream: the class wins over annotations, but only for the VIP of an external load balancer.
        let of_class = |field: fn(&Class) -> &String, fallback: &str| {
            let of_class = class.filter(|_| !internal).map(field).filter(|id| !id.is_empty());
            of_class.map_or_else(|| fallback.to_owned(), String::clone)
        };
        PlacementSettings {
            vip_port_id: reader.get(&known::PORT_ID).unwrap_or_default().to_owned(),
            vip_network_id: of_class(|class| &class.network_id, network),
            vip_subnet_id: of_class(|class| &class.subnet_id, subnet),
            // upstream: the configured VIP subnet wins over that of annotation and class here.
            member_subnet_id: [members, own.subnet_id.as_str(), subnet]
                .into_iter()
                .find(|id| !id.is_empty())
                .unwrap_or_default()
                .to_owned(),
            detect: network.is_empty() && subnet.is_empty(),
        }
    }

    /// Adds the subnet of the first node, if it was to be detected.
    pub(crate) fn with(&self, detected: Option<&str>) -> Placement {
        let or_detected = |id: &String| match detected {
            Some(detected) if self.detect && id.is_empty() => detected.to_owned(),
            _ => id.clone(),
        };
        Placement {
            vip_network_id: self.vip_network_id.clone(),
            vip_subnet_id: or_detected(&self.vip_subnet_id),
            member_subnet_id: or_detected(&self.member_subnet_id),
            vip_holder: None,
        }
    }
}

impl FloatingIpSettings {
    pub(super) fn of(reader: &Reader<'_>, class: Option<&Class>, cfg: &LoadBalancer) -> Self {
        let own = &cfg.placement;
        let of_class = class.map(|class| class.floating_network_id.as_str()).filter(|id| !id.is_empty());
        let network = of_class.or(reader.get(&known::FLOATING_NETWORK_ID)).unwrap_or(&own.floating_network_id);
        let text = |annotation: Annotation<Text>| reader.get(&annotation).unwrap_or_default().to_owned();
        let annotated = FloatingSubnet {
            id: text(known::FLOATING_SUBNET_ID),
            name: text(known::FLOATING_SUBNET),
            tags: text(known::FLOATING_SUBNET_TAGS),
        };
        let groups =
            [class.map(|class| class.floating_subnet.clone()), Some(annotated), Some(own.floating_subnet.clone())];
        let group = groups.into_iter().flatten().find(|group| *group != FloatingSubnet::default());
        FloatingIpSettings {
            network_id: network.to_owned(),
            subnet: group.map(id_alone).unwrap_or_default(),
            keep: reader.get(&known::KEEP_FLOATING_IP).unwrap_or_default(),
        }
    }
}

/// An ID excludes name and tags.
fn id_alone(subnet: FloatingSubnet) -> FloatingSubnet {
    if subnet.id.is_empty() { subnet } else { FloatingSubnet { id: subnet.id, ..FloatingSubnet::default() } }
}

impl Settings {
    /// Returns the certificate that must exist; `None` if there is none, or it is not in Barbican.
    pub(crate) fn tls_secret(&self, config: &Config) -> Result<Option<Stored<'_>>> {
        let reference = &self.tls_container_ref;
        if reference.is_empty() || !config.load_balancer.uses_barbican() {
            return Ok(None);
        }
        Stored::parse(reference).map(Some).ok_or_else(|| {
            let form = "https://…/v1/containers/ID or https://…/v1/secrets/ID";
            let key = known::TLS_CONTAINER_REF.key;
            invalid_config(format!("{key}: {reference:?} is neither a container nor a secret; expected {form}"))
        })
    }
}
