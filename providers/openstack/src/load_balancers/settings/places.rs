//! Where balancer, members and floating IP are.
//!
//! ```text
//!  VIP network, VIP subnet:  annotation > class > cloud.conf; for a new balancer that is not internal, the class goes first
//!  members:                  annotation > class > cloud.conf, each `member-subnet-id`; else `subnet-id` of cloud.conf, else VIP subnet
//!  neither VIP network nor VIP subnet: both VIP and members are where the first node is
//!  floating network:         class > annotation > cloud.conf > whatever external network there is
//! ```

use bowline_cloud::Result;
use bowline_core::annotations::{Annotation, OrNone, Reader, Text};

use super::super::annotations as known;
use super::super::observation::Places;
use super::{Settings, wrong};
use crate::Config;
use crate::api::key_manager::Stored;
use crate::config::{Class, FloatingSubnet, LoadBalancer};

/// Where balancer and members are. An empty text is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PlacesWish {
    /// The port that the balancer gets; then the other two are not sent.
    pub(crate) vip_port_id: String,
    vip_network_id: String,
    vip_subnet_id: String,
    member_subnet_id: String,
    /// Both are where the first node is.
    pub(crate) detect: bool,
}

/// Where the floating IP is from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FloatingWish {
    /// The external network; empty if it must be searched for.
    pub(crate) network_id: String,
    /// Which subnets of it; an ID excludes all else.
    pub(crate) subnet: FloatingSubnet,
    /// It is never deleted.
    pub(crate) keep: bool,
}

/// The class that the Service names.
pub(super) fn class<'a>(reader: &Reader<'_>, config: &'a Config) -> Result<Option<&'a Class>> {
    let Some(name) = reader.get(&known::CLASS) else { return Ok(None) };
    config.classes.get(name).map(Some).ok_or_else(|| {
        let known: Vec<_> = config.classes.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { format!("known: {}", known.join(", ")) };
        let key = known::CLASS.key;
        wrong(format!("{key}: cloud.conf has no [LoadBalancerClass {name:?}] ({known}; upper and lower case differ)"))
    })
}

impl PlacesWish {
    pub(super) fn of(reader: &Reader<'_>, class: Option<&Class>, cfg: &LoadBalancer, internal: bool) -> PlacesWish {
        let own = &cfg.places;
        let first = |annotation: Annotation<OrNone<Text>>, field: fn(&Class) -> &String| {
            let annotated = reader.get(&annotation);
            let all = [annotated, class.map(|class| field(class).as_str()), Some(field(own).as_str())];
            all.into_iter().flatten().find(|id| !id.is_empty()).unwrap_or_default()
        };
        let network = first(known::NETWORK_ID, |class| &class.network_id);
        let subnet = first(known::SUBNET_ID, |class| &class.subnet_id);
        let members = first(known::MEMBER_SUBNET_ID, |class| &class.member_subnet_id);
        // upstream: the class beats the annotations, but only where a floating IP is wanted and for the VIP alone.
        let of_class = |field: fn(&Class) -> &String, else_this: &str| {
            let of_class = class.filter(|_| !internal).map(field).filter(|id| !id.is_empty());
            of_class.map_or_else(|| else_this.to_owned(), String::clone)
        };
        PlacesWish {
            vip_port_id: reader.get(&known::PORT_ID).unwrap_or_default().to_owned(),
            vip_network_id: of_class(|class| &class.network_id, network),
            vip_subnet_id: of_class(|class| &class.subnet_id, subnet),
            // upstream: the configured subnet of balancers beats that of annotation and class here.
            member_subnet_id: [members, own.subnet_id.as_str(), subnet]
                .into_iter()
                .find(|id| !id.is_empty())
                .unwrap_or_default()
                .to_owned(),
            detect: network.is_empty() && subnet.is_empty(),
        }
    }

    /// With the subnet of the first node, if that was to be found.
    pub(crate) fn with(&self, detected: Option<&str>) -> Places {
        let or_detected = |id: &String| match detected {
            Some(detected) if self.detect && id.is_empty() => detected.to_owned(),
            _ => id.clone(),
        };
        Places {
            vip_network_id: self.vip_network_id.clone(),
            vip_subnet_id: or_detected(&self.vip_subnet_id),
            member_subnet_id: or_detected(&self.member_subnet_id),
            vip_holder: None,
        }
    }
}

impl FloatingWish {
    pub(super) fn of(reader: &Reader<'_>, class: Option<&Class>, cfg: &LoadBalancer) -> FloatingWish {
        let own = &cfg.places;
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
        FloatingWish {
            network_id: network.to_owned(),
            subnet: group.map(alone).unwrap_or_default(),
            keep: reader.get(&known::KEEP_FLOATING_IP).unwrap_or_default(),
        }
    }
}

/// An ID excludes name and tags.
fn alone(subnet: FloatingSubnet) -> FloatingSubnet {
    if subnet.id.is_empty() { subnet } else { FloatingSubnet { id: subnet.id, ..FloatingSubnet::default() } }
}

impl Settings {
    /// The certificate that has to be there; `None` if there is none, or nobody to ask.
    pub(crate) fn tls_secret(&self, config: &Config) -> Result<Option<Stored<'_>>> {
        let reference = &self.tls_container_ref;
        if reference.is_empty() || !config.load_balancer.asks_barbican() {
            return Ok(None);
        }
        Stored::parse(reference).map(Some).ok_or_else(|| {
            let form = "https://…/v1/containers/ID or https://…/v1/secrets/ID";
            let key = known::TLS_CONTAINER_REF.key;
            wrong(format!("{key}: {reference:?} is neither a container nor a secret; expected {form}"))
        })
    }
}
