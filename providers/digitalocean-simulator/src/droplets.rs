//! Droplets.

use std::net::{IpAddr, Ipv4Addr};

use bowline_simulator::{Call, Fields, Record, object};
use serde_json::{Value, json};

use crate::fixture::toggle;
use crate::simulator::{Simulator, State};
use crate::tags;
use crate::wire::{Outcome, error, filter, not_found, sent};

/// Parameters of a new Droplet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewDroplet {
    /// Name.
    pub name: String,
    /// ID of the VPC; the default VPC if empty.
    pub vpc: String,
    /// Size slug; `s-2vcpu-4gb` if empty. Droplets with a `gpu-` size are only listed with `type=gpus`.
    pub size: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Private addresses. Without any private or public address, the Droplet gets one of each, both IPv4.
    pub private: Vec<Ipv4Addr>,
    /// Public addresses.
    pub public: Vec<IpAddr>,
}

impl NewDroplet {
    /// Droplet with this name in the default VPC.
    pub fn named(name: &str) -> NewDroplet {
        NewDroplet { name: name.to_owned(), ..NewDroplet::default() }
    }
}

impl Simulator {
    /// Creates an active Droplet and returns its ID.
    pub fn add_droplet(&self, mut new: NewDroplet) -> u64 {
        let state = &mut *self.state();
        let or = |given: String, default: String| if given.is_empty() { default } else { given };
        state.count += 1;
        let count = state.count;
        let vpc = or(new.vpc, state.default_vpc(&state.options.region));
        let size = or(new.size, "s-2vcpu-4gb".to_owned());
        if new.private.is_empty() && new.public.is_empty() {
            let range = state.range(&vpc).map(|net| net.network()).unwrap_or(Ipv4Addr::new(10, 108, 0, 0));
            new.private.push(Ipv4Addr::from_bits(range.to_bits().wrapping_add(count + 1)));
            new.public.push(Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits().wrapping_add(count)).into());
        }
        let id = 3_164_400 + u64::from(count);
        let given =
            object(json!({"id": id.to_string(), "name": new.name, "region": state.region(&state.options.region),
            "tags": new.tags, "vpc_uuid": vpc, "size_slug": size, "networks": networks(&new.private, &new.public)}));
        tags::create_all(state, &given);
        state.put("droplets", given);
        id
    }

    /// Sets a field of a Droplet, such as `name` or `status` (`new`, `active`, `off` or `archive`).
    pub fn set_droplet(&self, id: u64, field: &str, value: impl Into<Value>) {
        self.edit("droplets", &id.to_string(), |droplet| droplet.set(field, value));
    }

    /// Deletes a Droplet, which removes it from load balancers and firewalls.
    pub fn delete_droplet(&self, id: u64) {
        let records = &mut self.state().records;
        records.of_mut("droplets").remove(&id.to_string());
        for kind in ["load_balancers", "firewalls"] {
            for row in records.of_mut(kind).iter_mut() {
                toggle(&mut row.record, "droplet_ids", &json!(id), false);
            }
        }
    }
}

fn networks(private: &[Ipv4Addr], public: &[IpAddr]) -> Value {
    let entry = |ip: IpAddr, kind: &str| {
        let v4 = (json!("255.255.240.0"), "10.108.0.1");
        let (netmask, gateway) = if ip.is_ipv4() { v4 } else { (json!(64), "2604:a880:0:1010::1") };
        json!({"ip_address": ip, "netmask": netmask, "gateway": gateway, "type": kind})
    };
    let private = private.iter().map(|ip| entry((*ip).into(), "private"));
    let public = |is_v4: bool| public.iter().filter(move |ip| ip.is_ipv4() == is_v4).map(|ip| entry(*ip, "public"));
    json!({"v4": private.chain(public(true)).collect::<Vec<_>>(), "v6": public(false).collect::<Vec<_>>()})
}

/// Whether a Droplet matches the filters of a list request.
pub(crate) fn matches(call: &Call, droplet: &Record) -> bool {
    let is_gpu = droplet.text("size_slug").starts_with("gpu-");
    let has_tag = |tag: &str| droplet.texts("tags").iter().any(|held| held.eq_ignore_ascii_case(tag));
    filter(call, "name").is_none_or(|name| droplet.text("name").eq_ignore_ascii_case(name))
        && filter(call, "tag_name").is_none_or(has_tag)
        && is_gpu == (call.value("type") == Some("gpus"))
}

/// Powers a Droplet on or off.
pub(crate) fn act(state: &mut State, call: &Call, id: &str) -> Outcome {
    let body = sent(call)?;
    let status = match body.text("type") {
        "power_off" | "shutdown" => "off",
        "power_on" | "power_cycle" | "reboot" => "active",
        _ => return Err(error(422, "type is invalid")),
    };
    let droplet = state.records.get_mut("droplets", id).ok_or_else(|| not_found("droplets"))?;
    droplet.set("status", status);
    let region = droplet.get("region").cloned().unwrap_or_default();
    let number = 36_804_600 + state.records.of("actions").len();
    let action = state.put(
        "actions",
        object(json!({"id": number.to_string(), "type": body.text("type"),
        "resource_id": id.parse::<u64>().unwrap_or_default(), "region_slug": region["slug"], "region": region})),
    );
    state.show(201, "actions", &action)
}
