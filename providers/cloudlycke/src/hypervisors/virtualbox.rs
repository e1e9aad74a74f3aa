//! VirtualBox, through `VBoxManage` (CL-24 to CL-31).
//!
//! | command | for |
//! |---|---|
//! | `list vms`, `list runningvms` | roster |
//! | `showvminfo UUID --machinereadable` | state, memory, CPUs, network adapters |
//! | `guestproperty enumerate UUID` | addresses that the guest additions report, by adapter |

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use bowline_cloud::{ErrorKind, Result};

use super::{Hypervisor, Listed, Roster};
use crate::commands::Tool;
use crate::identity::is_uuid;
use crate::machine::{Candidate, Details, failure};

/// Name of a machine whose files are missing.
const INACCESSIBLE: &str = "<inaccessible>";

/// Prefix of the properties of network interfaces.
const NET: &str = "/VirtualBox/GuestInfo/Net/";

/// VirtualBox on this host.
pub(crate) struct VirtualBox {
    tool: Tool,
}

impl VirtualBox {
    pub(crate) fn new(tool: Tool) -> VirtualBox {
        VirtualBox { tool: tool.classify(kind) }
    }
}

/// Returns the kind of an error by the code that VirtualBox prints.
fn kind(errors: &str) -> Option<ErrorKind> {
    let has = |text: &str| errors.contains(text);
    if has("VBOX_E_OBJECT_NOT_FOUND") || has("Could not find a registered machine") {
        return Some(ErrorKind::NotFound);
    }
    has("E_ACCESSDENIED").then_some(ErrorKind::PermissionDenied)
}

#[async_trait]
impl Hypervisor for VirtualBox {
    fn is_id(&self, text: &str) -> bool {
        is_uuid(text)
    }

    async fn roster(&self) -> Result<Roster> {
        let all = vms(&self.tool.read("list_vms", &["list", "vms"]).await?)?;
        let running = vms(&self.tool.read("list_running_vms", &["list", "runningvms"]).await?)?;
        let listed = |(id, name): (String, String)| {
            let running = running.contains_key(&id);
            (id, Listed { name, running })
        };
        Ok(Roster { machines: all.into_iter().map(listed).collect() })
    }

    async fn describe(&self, id: &str, addresses: bool) -> Result<Option<Details>> {
        let text = match self.tool.read("show_vm_info", &["showvminfo", id, "--machinereadable"]).await {
            Err(error) if error.is_not_found() => return Ok(None),
            text => text?,
        };
        let info = Info::parse(id, &text)?;
        let properties = match addresses && matches!(info.state(), Some("running" | "paused")) {
            true => self.tool.read("enumerate_guest_properties", &["guestproperty", "enumerate", id]).await?,
            false => String::new(),
        };
        info.details(&properties).map(Some)
    }

    async fn version(&self) -> Result<String> {
        Ok(format!("VirtualBox {}", self.tool.read("version", &["--version"]).await?.trim()))
    }
}

/// Parses lines of the form `"NAME" {UUID}`. A name may contain anything but a line break.
fn vms(text: &str) -> Result<BTreeMap<String, String>> {
    text.lines().filter(|line| !line.trim().is_empty()).map(vm).collect()
}

fn vm(line: &str) -> Result<(String, String)> {
    let parts = line.trim().strip_suffix('}').and_then(|line| line.rsplit_once(" {"));
    let named = parts.and_then(|(name, id)| Some((name.strip_prefix('"')?.strip_suffix('"')?, id)));
    match named {
        Some((name, id)) if is_uuid(id) => Ok((id.to_ascii_lowercase(), name.to_owned())),
        _ => {
            let message = format!("VBoxManage list: the line {:?} is not \"NAME\" {{UUID}}", shortened(line));
            Err(failure(ErrorKind::Unexpected, message))
        }
    }
}

fn shortened(line: &str) -> String {
    line.chars().take(80).collect()
}

/// Output of `showvminfo --machinereadable`.
struct Info<'a> {
    id: &'a str,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Info<'a> {
    fn parse(id: &'a str, text: &'a str) -> Result<Info<'a>> {
        let unquoted = |text: &'a str| {
            let text = text.trim();
            text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
        };
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let info = Info { id, values: pairs.map(|(key, value)| (unquoted(key), unquoted(value))).collect() };
        let is_it = info.get("UUID").is_some_and(|uuid| uuid.eq_ignore_ascii_case(id));
        // The UUID of an inaccessible machine may be missing.
        if is_it || info.get("name") == Some(INACCESSIBLE) { Ok(info) } else { Err(info.error("UUID")) }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).copied()
    }

    fn number(&self, key: &str) -> Result<u64> {
        self.get(key).and_then(|number| number.parse().ok()).ok_or_else(|| self.error(key))
    }

    fn error(&self, key: &str) -> bowline_cloud::Error {
        let message = format!("VBoxManage showvminfo {}: the output has no valid {key}", self.id);
        failure(ErrorKind::Unexpected, message)
    }

    fn state(&self) -> Option<&'a str> {
        if self.get("name") == Some(INACCESSIBLE) { Some("inaccessible") } else { self.get("VMState") }
    }

    fn details(&self, properties: &str) -> Result<Details> {
        let state = self.state().ok_or_else(|| self.error("VMState"))?.to_owned();
        if state == "inaccessible" {
            return Ok(Details { state, ..Details::default() });
        }
        let (memory_mib, cpus) = (Some(self.number("memory")?), Some(self.number("cpus")?));
        let addresses = interfaces(properties).into_iter().filter_map(|interface| self.candidate(&interface)).collect();
        Ok(Details { state, memory_mib, cpus, addresses, ..Details::default() })
    }

    /// Returns the address of a reported interface, with the kind of the adapter that has its MAC. An interface without an adapter, such
    /// as a bridge of the cluster's network plugin, is none of the machine's own.
    fn candidate(&self, interface: &Interface) -> Option<Candidate> {
        let is_same = |key: &&str| self.get(key).is_some_and(|mac| mac.eq_ignore_ascii_case(&interface.mac));
        let adapter = self.values.keys().copied().filter(|key| key.starts_with("macaddress")).find(is_same)?;
        let kind = self.get(&adapter.replace("macaddress", "nic"))?;
        // VirtualBox's own DHCP server reports its address, which ends in 1, for an interface that has none.
        let is_artefact = interface.address.octets()[3] == 1;
        let is_default = matches!(kind, "hostonly" | "bridged" | "hostonlynetwork");
        let is_usable = kind != "nat" && !is_artefact;
        is_usable.then_some(Candidate { address: IpAddr::V4(interface.address), is_default })
    }
}

/// A network interface that the guest additions report.
struct Interface {
    mac: String,
    address: Ipv4Addr,
}

/// Returns the interfaces with a MAC and an IPv4 address, in the order of their numbers.
fn interfaces(properties: &str) -> Vec<Interface> {
    let (mut macs, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in properties.lines().filter_map(property) {
        let Some((number, name)) = name.strip_prefix(NET).and_then(|name| name.split_once('/')) else { continue };
        let Ok(number) = number.parse::<u32>() else { continue };
        match name {
            "MAC" => drop(macs.insert(number, value.to_owned())),
            "V4/IP" => drop(value.parse::<Ipv4Addr>().map(|address| addresses.insert(number, address))),
            _ => {}
        }
    }
    let interface = |(number, address)| macs.remove(&number).map(|mac| Interface { mac, address });
    addresses.into_iter().filter_map(interface).collect()
}

/// Parses `Name: NAME, value: VALUE, timestamp: …` of VirtualBox up to 7.0, or `NAME = 'VALUE' @ …` of later versions.
fn property(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("Name: ") {
        let (name, rest) = rest.split_once(", value: ")?;
        return Some((name, rest.split_once(", timestamp:").map_or(rest, |(value, _)| value).trim()));
    }
    let (name, rest) = line.split_once('=')?;
    let value = rest.trim().strip_prefix('\'')?;
    Some((name.trim(), value.split_once('\'')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "8f2c1e07-0a4b-4a3e-9d1c-6b5a4f3e2d1c";

    const INFO: &str = r#"name="proj_node-c2-1_1_2"
UUID="8f2c1e07-0a4b-4a3e-9d1c-6b5a4f3e2d1c"
memory=1024
cpus=2
VMState="running"
nic1="nat"
macaddress1="080027000001"
Forwarding(0)="ssh,tcp,127.0.0.1,2222,,22"
nic2="hostonly"
hostonlyadapter2="vboxnet0"
macaddress2="080027AABBCC"
nic3="intnet"
macaddress3="080027000003"
"GuestMemoryBalloon"=0
"#;

    fn old(number: u32, name: &str, value: &str) -> String {
        format!("Name: /VirtualBox/GuestInfo/Net/{number}/{name}, value: {value}, timestamp: 1700, flags: TRANSIENT\n")
    }

    fn new(number: u32, name: &str, value: &str) -> String {
        format!("/VirtualBox/GuestInfo/Net/{number}/{name}   = '{value}'   @ 2026-01-01T00:00:00.000Z\n")
    }

    fn addresses(properties: &str) -> Vec<(String, bool)> {
        let details = Info::parse(UUID, INFO).unwrap().details(properties).unwrap();
        details.addresses.iter().map(|one| (one.address.to_string(), one.is_default)).collect()
    }

    fn interface(line: fn(u32, &str, &str) -> String, number: u32, mac: &str, ip: &str) -> String {
        line(number, "MAC", mac) + &line(number, "V4/IP", ip)
    }

    // CL-25 to CL-28: the NAT address is never used, adapters are matched by MAC, and .1 is an artefact.
    #[test]
    fn addresses_are_matched_to_adapters_by_mac() {
        for line in [old as fn(u32, &str, &str) -> String, new] {
            let all = interface(line, 0, "080027000001", "10.0.2.15")
                + &interface(line, 10, "080027aabbcc", "192.168.20.11")
                + &interface(line, 2, "080027000003", "10.9.0.5")
                + &interface(line, 3, "0242AC110001", "172.17.0.2");
            let expected = [("10.9.0.5".to_owned(), false), ("192.168.20.11".to_owned(), true)];
            assert_eq!(addresses(&all), expected);
            assert_eq!(addresses(&interface(line, 1, "080027AABBCC", "192.168.20.1")), []);
            assert_eq!(addresses(&line(1, "V4/IP", "192.168.20.11")), [], "an interface without MAC");
            assert_eq!(addresses(&interface(line, 1, "080027AABBCC", "No value set!")), []);
        }
        assert_eq!(addresses(""), []);
    }

    #[test]
    fn the_roster_has_uuids_in_lower_case() {
        let text = format!(
            "\"a \"b\" {{c}}\" {{{}}}\n\n\"<inaccessible>\" {{00000000-0000-4000-8000-000000000002}}\n",
            UUID.to_uppercase()
        );
        let all = vms(&text).unwrap();
        let expected = [("00000000-0000-4000-8000-000000000002", "<inaccessible>"), (UUID, "a \"b\" {c}")];
        assert_eq!(all.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect::<Vec<_>>(), expected);
        for bad in [
            "<html>",
            "\"a\" {x}",
            "a {8f2c1e07-0a4b-4a3e-9d1c-6b5a4f3e2d1c}",
            "WARNING: The vboxdrv kernel module is not loaded.",
        ] {
            assert_eq!(vms(bad).unwrap_err().kind(), ErrorKind::Unexpected, "{bad}");
        }
    }

    #[test]
    fn incomplete_output_is_an_error() {
        let without = |key: &str| {
            let lines: Vec<_> = INFO.lines().filter(|line| !line.starts_with(key)).collect();
            lines.join("\n")
        };
        assert!(Info::parse(UUID, "").is_err() && Info::parse(UUID, "<html>").is_err());
        assert!(Info::parse("00000000-0000-4000-8000-000000000002", INFO).is_err(), "another machine");
        for key in ["memory", "cpus", "VMState"] {
            assert!(Info::parse(UUID, &without(key)).unwrap().details("").is_err(), "{key}");
        }
    }

    // CL-34
    #[test]
    fn an_inaccessible_machine_has_a_state_and_nothing_else() {
        let details = Info::parse(UUID, "name=\"<inaccessible>\"\n").unwrap().details("").unwrap();
        assert_eq!(details, Details { state: "inaccessible".to_owned(), ..Details::default() });
    }

    #[test]
    fn codes_of_virtualbox_have_kinds() {
        let cases = [
            ("error: Could not find a registered machine named 'x'", Some(ErrorKind::NotFound)),
            ("Details: code VBOX_E_OBJECT_NOT_FOUND (0x80bb0001)", Some(ErrorKind::NotFound)),
            ("code E_ACCESSDENIED (0x80070005)", Some(ErrorKind::PermissionDenied)),
            ("Failed to create the VirtualBox object!", None),
        ];
        for (text, expected) in cases {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}
