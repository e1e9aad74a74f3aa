//! From the details of a machine to the state that Bowline reports. Pure (CL-23 to CL-34).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, KnownState, Result, Retry};
use bowline_core::{Address, AddressType, Instance, InstanceState, ProviderId};
use ipnet::IpNet;

use crate::NAME;
use crate::identity::Names;

/// Details of a machine, as far as its backend knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// State, in the words of the hypervisor.
    pub(crate) state: String,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) cpus: Option<u64>,
    pub(crate) addresses: Vec<Candidate>,
    /// External addresses; empty if they are the same as the internal ones.
    pub(crate) external: Vec<IpAddr>,
    /// Zone, region and type, where they are not derived.
    pub(crate) zone: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) instance_type: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// An address of a machine that may become that of its Node. Addresses of NAT interfaces are never candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) address: IpAddr,
    /// Whether the address is used without `nodeNetwork`, too: one of a host-only or bridged network.
    pub(crate) is_default: bool,
}

/// Settings of the configuration for one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) id: Option<String>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) cpus: Option<u64>,
    pub(crate) state: Option<String>,
}

/// Rules that apply to all machines of a backend.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// First word of instance types: `vbox`.
    pub(crate) type_word: String,
    /// Zone and region.
    pub(crate) location: String,
    pub(crate) node_network: Option<IpNet>,
    pub(crate) overrides: BTreeMap<String, Override>,
}

/// Meaning of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    Off,
    /// The files of the machine are missing at the moment. It exists.
    Inaccessible,
    Unknown,
}

/// Returns the meaning of a state of VirtualBox, libvirt, LXC or Docker.
pub(crate) fn power(state: &str) -> Power {
    match state {
        "running" | "paused" | "starting" | "stopping" | "restoring" => Power::On,
        "poweroff" | "aborted" | "saved" | "gurumeditation" | "shutoff" | "stopped" => Power::Off,
        "inaccessible" => Power::Inaccessible,
        _ => Power::Unknown,
    }
}

/// Returns whether the state ends by itself, or is unknown, so that it is read again each time.
pub(crate) fn is_transitional(state: &str) -> bool {
    !matches!(power(state), Power::On | Power::Off) || matches!(state, "starting" | "stopping" | "restoring")
}

/// Returns the instance type: `vbox.vm.1g.2cpu`.
pub(crate) fn instance_type(word: &str, memory_mib: u64, cpus: u64) -> String {
    let memory = match memory_mib {
        gib if gib >= 1024 && gib.is_multiple_of(1024) => format!("{}g", gib / 1024),
        mib => format!("{mib}mb"),
    };
    format!("{word}.vm.{memory}.{cpus}cpu")
}

impl Rules {
    /// Returns the settings of the configuration for a machine.
    pub(crate) fn of(&self, name: &str) -> Override {
        self.overrides.get(name).cloned().unwrap_or_default()
    }

    /// Returns the state of a machine.
    pub(crate) fn state(&self, names: &Names, details: &Details) -> Result<InstanceState> {
        let own = self.of(&names.name);
        let state = own.state.as_deref().unwrap_or(&details.state);
        let power = power(state);
        if power == Power::Unknown {
            let message = format!("{}: the state {state:?} is neither known as on nor as off", named(names));
            return Err(failure(ErrorKind::Unexpected, message).with_known_state(KnownState::Running));
        }
        let addresses = self.addresses(&own, details);
        if addresses.is_empty() && state == "running" {
            return Err(failure(ErrorKind::Unavailable, self.no_address(names)).with_known_state(KnownState::Running));
        }
        let instance = Arc::new(self.instance(names, &own, details, &addresses));
        Ok(if power == Power::Off { InstanceState::Stopped(instance) } else { InstanceState::Running(instance) })
    }

    fn instance(&self, names: &Names, own: &Override, details: &Details, addresses: &[IpAddr]) -> Instance {
        let id = names.id();
        let location = |own: &Option<String>| own.clone().unwrap_or_else(|| self.location.clone());
        let size = own.memory_mib.or(details.memory_mib).zip(own.cpus.or(details.cpus));
        let derived = size.map(|(memory, cpus)| instance_type(&self.type_word, memory, cpus));
        Instance {
            provider_id: Some(ProviderId::of(NAME, &id)),
            id,
            name: names.name.clone(),
            instance_type: details.instance_type.clone().or(derived).unwrap_or_default(),
            zone: location(&details.zone),
            region: location(&details.region),
            addresses: node_addresses(&names.name, addresses, &details.external),
            labels: details.labels.clone(),
            ..Instance::default()
        }
    }

    /// Returns the addresses of the Node: those of the configuration, the one in `nodeNetwork`, or the first of each family.
    fn addresses(&self, own: &Override, details: &Details) -> Vec<IpAddr> {
        if !own.addresses.is_empty() {
            return own.addresses.clone();
        }
        let mut all = details.addresses.iter();
        if let Some(network) = self.node_network {
            return all.find(|one| network.contains(&one.address)).map(|one| one.address).into_iter().collect();
        }
        let mut default = all.filter(|one| one.is_default).map(|one| one.address);
        let Some(first) = default.next() else { return Vec::new() };
        [first].into_iter().chain(default.find(|address| address.is_ipv4() != first.is_ipv4())).collect()
    }

    fn no_address(&self, names: &Names) -> String {
        let (machine, name) = (named(names), &names.name);
        match self.node_network {
            Some(network) => format!("{machine} has no address in {network}; fix: check nodeNetwork and its networks"),
            None => format!(
                "{machine} reports no address of a host-only or bridged network; fix: install the guest additions, wait \
                 until it has booted, or set instances.{name}.addresses"
            ),
        }
    }
}

/// Returns internal addresses, external addresses and the host name, in this order. Without addresses, the Node keeps its own.
fn node_addresses(name: &str, internal: &[IpAddr], external: &[IpAddr]) -> Vec<Address> {
    if internal.is_empty() {
        return Vec::new();
    }
    let external = if external.is_empty() { internal } else { external };
    let of = |kind, ips: &[IpAddr]| ips.iter().map(|ip| Address::new(kind, ip.to_string())).collect::<Vec<_>>();
    let hostname = vec![Address::new(AddressType::Hostname, name)];
    [of(AddressType::InternalIP, internal), of(AddressType::ExternalIP, external), hostname].concat()
}

/// Describes a machine for messages: its name and its ID, which differ.
pub(crate) fn named(names: &Names) -> String {
    let own = names.key.as_ref().or(names.own.as_ref()).or(names.configured.as_ref()).filter(|own| **own != names.name);
    own.map_or_else(|| format!("machine {}", names.name), |own| format!("machine {} ({own})", names.name))
}

/// Creates an error about a machine. It is retried, because the host does not report changes.
pub(crate) fn failure(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, "find machine", message).retry(Retry::Backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> Names {
        Names { name: name.to_owned(), ..Names::default() }
    }

    fn candidate(address: &str, is_default: bool) -> Candidate {
        Candidate { address: address.parse().unwrap(), is_default }
    }

    fn rules(network: Option<&str>) -> Rules {
        let node_network = network.map(|network| network.parse().unwrap());
        Rules { type_word: "vbox".to_owned(), location: "virtualbox".to_owned(), node_network, ..Rules::default() }
    }

    fn details(state: &str, addresses: &[Candidate]) -> Details {
        let addresses = addresses.to_vec();
        Details { state: state.to_owned(), memory_mib: Some(1024), cpus: Some(2), addresses, ..Details::default() }
    }

    fn texts(state: &InstanceState) -> Vec<String> {
        state.instance().unwrap().addresses.iter().map(|one| format!("{:?} {}", one.kind, one.address)).collect()
    }

    // CL-23
    #[test]
    fn an_instance_type_has_memory_and_cpus() {
        let cases = [(512, 1, "512mb.1cpu"), (1024, 2, "1g.2cpu"), (1536, 2, "1536mb.2cpu"), (4096, 4, "4g.4cpu")];
        for (memory, cpus, expected) in cases {
            assert_eq!(instance_type("vbox", memory, cpus), format!("vbox.vm.{expected}"));
        }
        assert_eq!(instance_type("libvirt", 0, 1), "libvirt.vm.0mb.1cpu");
    }

    // CL-32, CL-33
    #[test]
    fn every_state_is_on_off_or_an_error() {
        let on = ["running", "paused", "starting", "stopping", "restoring", "inaccessible"];
        let off = ["poweroff", "aborted", "saved", "gurumeditation", "shutoff", "stopped"];
        let unknown = ["aborted-saved", "saving", "teleporting", "Running", "not_created", "", "livesnapshotting"];
        let state = |state: &str| rules(None).state(&names("a"), &details(state, &[candidate("192.168.20.11", true)]));
        for text in on {
            assert!(matches!(state(text), Ok(InstanceState::Running(_))), "{text}");
        }
        for text in off {
            assert!(matches!(state(text), Ok(InstanceState::Stopped(_))), "{text}");
        }
        for text in unknown {
            assert_eq!(state(text).unwrap_err().known_state(), Some(KnownState::Running), "{text}");
            assert!(is_transitional(text), "{text}");
        }
        assert!(["starting", "inaccessible"].iter().all(|text| is_transitional(text)));
        assert!(!["running", "paused", "poweroff", "saved"].iter().any(|text| is_transitional(text)));
    }

    // CL-25, CL-26, CL-29
    #[test]
    fn the_node_gets_the_first_usable_address_or_the_one_in_the_network() {
        let all = [candidate("10.9.0.5", false), candidate("192.168.20.11", true), candidate("172.16.0.4", true)];
        let running = details("running", &all);
        let cases = [(None, "192.168.20.11"), (Some("172.16.0.0/16"), "172.16.0.4"), (Some("10.9.0.0/24"), "10.9.0.5")];
        for (network, ip) in cases {
            let state = rules(network).state(&names("web"), &running).unwrap();
            assert_eq!(
                texts(&state),
                [format!("InternalIP {ip}"), format!("ExternalIP {ip}"), "Hostname web".to_owned()]
            );
        }
        let error = rules(Some("192.0.2.0/24")).state(&names("web"), &running).unwrap_err();
        assert_eq!((error.kind(), error.known_state()), (ErrorKind::Unavailable, Some(KnownState::Running)));
        assert!(error.to_string().contains("no address in 192.0.2.0/24"), "{error}");
        let error = rules(None).state(&names("web"), &details("running", &[])).unwrap_err();
        assert!(error.to_string().contains("set instances.web.addresses"), "{error}");
    }

    // CL-30: a stopped machine needs no address.
    #[test]
    fn a_stopped_machine_has_no_addresses_and_its_node_keeps_them() {
        let state = rules(None).state(&names("web"), &details("saved", &[])).unwrap();
        assert!(matches!(&state, InstanceState::Stopped(instance) if instance.addresses.is_empty()));
    }

    // CL-14, CL-31: settings of the configuration take precedence, and both families are reported.
    #[test]
    fn overrides_replace_what_the_hypervisor_reports() {
        let own = Override {
            addresses: vec!["10.1.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            memory_mib: Some(2048),
            cpus: Some(1),
            ..Override::default()
        };
        let rules = Rules { overrides: [("web".to_owned(), own)].into(), ..rules(None) };
        let state = rules.state(&names("web"), &details("running", &[])).unwrap();
        let all =
            ["InternalIP 10.1.0.1", "InternalIP fd00::1", "ExternalIP 10.1.0.1", "ExternalIP fd00::1", "Hostname web"];
        assert_eq!(texts(&state), all);
        let instance = state.instance().unwrap();
        assert_eq!(instance.instance_type, "vbox.vm.2g.1cpu");
        assert_eq!((instance.zone.as_str(), instance.region.as_str()), ("virtualbox", "virtualbox"));
        assert_eq!(instance.provider_id, ProviderId::new("cloudlycke://web"));
    }
}
