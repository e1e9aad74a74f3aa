//! libvirt, through `virsh` (CL-51 to CL-53).
//!
//! | command | for |
//! |---|---|
//! | `list --all --uuid --name`, `list --uuid` | roster: all domains, and those that are active |
//! | `dominfo UUID` | state, memory, CPUs |
//! | `domifaddr UUID --source SOURCE` | addresses |

use std::collections::BTreeMap;
use std::net::IpAddr;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result};

use super::{Hypervisor, Listed, Roster};
use crate::commands::Tool;
use crate::identity::is_uuid;
use crate::machine::{Candidate, Details, failure};

/// A libvirt daemon.
pub(crate) struct Libvirt {
    tool: Tool,
    /// Source of addresses: `lease`, `agent` or `arp`.
    source: String,
}

impl Libvirt {
    pub(crate) fn new(tool: Tool, uri: &str, source: &str) -> Libvirt {
        let leading = ["-q", "-c", uri].map(str::to_owned).to_vec();
        Libvirt { tool: tool.leading(leading).classify(kind), source: source.to_owned() }
    }
}

/// Returns the kind of an error by its text in English: `virsh` has no codes. A domain is not found only if `virsh` reports nothing
/// else, such as a lost connection.
fn kind(errors: &str) -> Option<ErrorKind> {
    let is_absence = |line: &str| line.contains("failed to get domain '") || line.contains("Domain not found:");
    let mut lines = errors.lines().filter(|line| !line.trim().is_empty()).peekable();
    if lines.peek().is_some() && lines.all(is_absence) {
        return Some(ErrorKind::NotFound);
    }
    let has = |text: &str| errors.contains(text);
    match () {
        () if has("authentication failed") || has("authentication unavailable") => Some(ErrorKind::Unauthenticated),
        () if has("Permission denied") || has("access denied") => Some(ErrorKind::PermissionDenied),
        () => None,
    }
}

#[async_trait]
impl Hypervisor for Libvirt {
    fn is_id(&self, text: &str) -> bool {
        is_uuid(text)
    }

    async fn roster(&self) -> Result<Roster> {
        let all = domains(&self.tool.read("list_domains", &["list", "--all", "--uuid", "--name"]).await?)?;
        let active = domains(&self.tool.read("list_active_domains", &["list", "--uuid"]).await?)?;
        let listed = |(id, name): (String, String)| {
            let running = active.contains_key(&id);
            (id, Listed { name, running })
        };
        Ok(Roster { machines: all.into_iter().map(listed).collect() })
    }

    async fn describe(&self, id: &str, addresses: bool) -> Result<Option<Details>> {
        let info = match self.tool.read("domain_info", &["dominfo", id]).await {
            Err(error) if error.is_not_found() => return Ok(None),
            info => info?,
        };
        let details = details(id, &info)?;
        if !addresses || details.state != "running" {
            return Ok(Some(details));
        }
        let rows = self.tool.read("domain_addresses", &["domifaddr", id, "--source", &self.source]).await?;
        Ok(Some(Details { addresses: candidates(&rows), ..details }))
    }

    async fn version(&self) -> Result<String> {
        Ok(format!("libvirt {}", self.tool.read("version", &["--version"]).await?.trim()))
    }
}

/// Parses lines of the form `UUID NAME`, or `UUID`.
fn domains(text: &str) -> Result<BTreeMap<String, String>> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(domain).collect()
}

fn domain(line: &str) -> Result<(String, String)> {
    let (id, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if is_uuid(id) {
        return Ok((id.to_ascii_lowercase(), name.trim().to_owned()));
    }
    let shortened: String = line.chars().take(80).collect();
    Err(failure(ErrorKind::Unexpected, format!("virsh list: the line {shortened:?} does not begin with a UUID")))
}

fn details(id: &str, text: &str) -> Result<Details> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let values: BTreeMap<_, _> = pairs.map(|(key, value)| (key.trim(), value.trim())).collect();
    let get = |key: &str| values.get(key).copied().ok_or_else(|| invalid(id, key));
    let number = |key: &str| {
        let digits = get(key)?.split_whitespace().next().unwrap_or_default();
        digits.parse::<u64>().map_err(|_| invalid(id, key))
    };
    if !get("UUID")?.eq_ignore_ascii_case(id) {
        return Err(invalid(id, "UUID"));
    }
    let (memory_mib, cpus) = (Some(number("Max memory")? / 1024), Some(number("CPU(s)")?));
    Ok(Details { state: state(get("State")?), memory_mib, cpus, ..Details::default() })
}

fn invalid(id: &str, key: &str) -> Error {
    failure(ErrorKind::Unexpected, format!("virsh dominfo {id}: the output has no valid {key}"))
}

/// Returns the state in the words of Vagrant.
fn state(text: &str) -> String {
    match text {
        "shut off" => "shutoff".to_owned(),
        "in shutdown" => "stopping".to_owned(),
        other => other.to_owned(),
    }
}

/// Parses rows of the form `NAME MAC PROTOCOL ADDRESS/PREFIX`. Addresses that no other machine can reach are left out.
fn candidates(text: &str) -> Vec<Candidate> {
    let addresses = text.lines().filter_map(|line| line.split_whitespace().nth(3)?.split('/').next()?.parse().ok());
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    addresses.filter(is_usable).map(|address| Candidate { address, is_default: true }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "6695eb01-f6a4-8304-79aa-97f2502e193f";

    const INFO: &str = "Id:             1\nName:           test\nUUID:           6695eb01-f6a4-8304-79aa-97f2502e193f\nState:          shut off\n\
        CPU(s):         2\nCPU time:       1795094585.3s\nMax memory:     8388608 KiB\nUsed memory:    2097152 KiB\n";

    // CL-52
    #[test]
    fn the_details_are_those_of_dominfo() {
        let found = details(UUID, INFO).unwrap();
        assert_eq!((found.state.as_str(), found.memory_mib, found.cpus), ("shutoff", Some(8192), Some(2)));
        for text in [
            "",
            "<html>",
            &INFO.replace("8388608 KiB", "much"),
            &INFO.replace("6695", "6696"),
            &INFO.replace("State:", "Mood:"),
        ] {
            assert_eq!(details(UUID, text).unwrap_err().kind(), ErrorKind::Unexpected, "{text}");
        }
        assert_eq!(["running", "in shutdown", "paused"].map(state), ["running", "stopping", "paused"]);
    }

    // CL-53
    #[test]
    fn addresses_are_those_that_other_machines_can_reach() {
        let rows = " lo         00:00:00:00:00:00    ipv4         127.0.0.1/8\n eth0       52:54:00:aa:bb:cc    ipv4         192.168.121.7/24\n \
                    -          -                    ipv6         fe80::1/64\n -          -                    ipv6         fd00::7/64\n";
        let found: Vec<_> = candidates(rows).iter().map(|one| one.address.to_string()).collect();
        assert_eq!(found, ["192.168.121.7", "fd00::7"]);
        assert_eq!(candidates("\n"), []);
    }

    #[test]
    fn the_roster_needs_uuids() {
        let all = domains(&format!("{} my domain\n\n", UUID.to_uppercase())).unwrap();
        assert_eq!(all, BTreeMap::from([(UUID.to_owned(), "my domain".to_owned())]));
        assert_eq!(domains("error: failed").unwrap_err().kind(), ErrorKind::Unexpected);
    }

    #[test]
    fn errors_of_virsh_have_kinds() {
        let cases = [
            ("error: failed to get domain 'x'\n", Some(ErrorKind::NotFound)),
            (
                "error: failed to get domain 'x'\nerror: Domain not found: no domain with matching name 'x'\n",
                Some(ErrorKind::NotFound),
            ),
            ("error: failed to get domain 'x'\nerror: Cannot recv data: Connection reset by peer\n", None),
            ("\n", None),
            ("error: authentication unavailable: no polkit agent", Some(ErrorKind::Unauthenticated)),
            (
                "error: Failed to connect socket to '/run/libvirt/sock': Permission denied",
                Some(ErrorKind::PermissionDenied),
            ),
            ("error: Failed to connect socket to '/run/libvirt/sock': No such file or directory", None),
        ];
        for (text, expected) in cases {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}
