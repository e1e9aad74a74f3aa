//! Virtual machines: their description in tests, and their properties.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bowline_simulator::{Ids, Record, object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::inventory::{Access, Key, Reference, escape_name};

/// A virtual machine. In JSON, the names are those of [`Machine::default`] in camel case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Name in the inventory.
    pub name: String,
    /// BIOS UUID.
    pub uuid: String,
    /// Instance UUID.
    pub instance_uuid: String,
    /// Host name that VMware Tools report; empty if they do not run.
    pub host_name: String,
    /// Network interfaces that VMware Tools report.
    pub nics: Vec<Nic>,
    /// `poweredOn`, `poweredOff` or `suspended`. A machine that is off reports no addresses.
    pub power: String,
    /// `connected`, `disconnected`, `orphaned`, `inaccessible` or `invalid`. The last two have no configuration.
    pub connection: String,
    /// Whether the machine is a template.
    pub template: bool,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory in MB.
    pub memory_mb: u32,
    /// Operating system, such as `ubuntu64Guest`.
    pub os: String,
    /// Whether the UUIDs of its disks are visible in it (`disk.EnableUUID`).
    pub disk_uuids: bool,
    /// Settings, such as `guestinfo.metadata`.
    pub extra_config: BTreeMap<String, String>,
    /// Name or ID of the host.
    pub host: String,
    /// ID of the resource pool. Default: the root pool of the cluster.
    pub pool: Option<String>,
    /// ID of the folder. Default: the VM folder of the datacenter.
    pub folder: Option<String>,
    /// ID of the vApp, which takes the place of the folder.
    pub vapp: Option<String>,
    /// What the user can do with the machine.
    pub access: Access,
    /// Whether the search index knows the machine. vCenter updates it with a delay.
    pub indexed: bool,
}

/// A network interface that VMware Tools report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Nic {
    /// Name of the network.
    pub network: String,
    /// Addresses, as reported.
    pub addresses: Vec<String>,
    /// Key of the virtual device; -1 for an interface without one.
    pub device: i32,
}

impl Default for Nic {
    fn default() -> Nic {
        Nic { network: "VM Network".to_owned(), addresses: Vec::new(), device: 4000 }
    }
}

impl Nic {
    /// Network interface with these addresses.
    pub fn with(addresses: &[&str]) -> Nic {
        Nic { addresses: addresses.iter().map(|address| (*address).to_owned()).collect(), ..Nic::default() }
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            name: String::new(),
            uuid: String::new(),
            instance_uuid: String::new(),
            host_name: String::new(),
            nics: Vec::new(),
            power: "poweredOn".to_owned(),
            connection: "connected".to_owned(),
            template: false,
            cpus: 2,
            memory_mb: 4096,
            os: "ubuntu64Guest".to_owned(),
            disk_uuids: true,
            extra_config: BTreeMap::new(),
            host: "DC0_C0_H0".to_owned(),
            pool: None,
            folder: None,
            vapp: None,
            access: Access::Full,
            indexed: true,
        }
    }
}

impl Machine {
    /// Machine with this name, which is also its host name, and this address.
    pub fn named(name: &str, address: &str) -> Machine {
        let nics = vec![Nic::with(&[address])];
        Machine { name: name.to_owned(), host_name: name.to_owned(), nics, ..Machine::default() }
    }

    /// Adds the UUIDs that are not given.
    pub(super) fn complete(&mut self, ids: &mut Ids) {
        for uuid in [&mut self.uuid, &mut self.instance_uuid] {
            if uuid.is_empty() {
                *uuid = ids.uuid();
            }
        }
    }

    /// Keys in the search index.
    pub(super) fn keys(&self) -> Vec<Key> {
        if !self.indexed || self.lacks_configuration() {
            return Vec::new();
        }
        let uuids = [Key::Uuid(self.uuid.to_lowercase()), Key::InstanceUuid(self.instance_uuid.to_lowercase())];
        let name = Some(Key::HostName(self.host_name.to_lowercase())).filter(|_| !self.host_name.is_empty());
        let addresses = self.reported().flat_map(|nic| &nic.addresses).filter_map(|text| text.parse::<IpAddr>().ok());
        uuids.into_iter().chain(name).chain(addresses.map(Key::Address)).collect()
    }

    fn lacks_configuration(&self) -> bool {
        ["inaccessible", "invalid"].contains(&self.connection.as_str())
    }

    /// Network interfaces, which VMware Tools report only while the machine runs.
    fn reported(&self) -> impl Iterator<Item = &Nic> {
        self.nics.iter().filter(|_| self.power != "poweredOff")
    }

    /// Properties in the wire format, other than the placement in folders and pools.
    pub(super) fn properties(&self, this: &Reference, host: &Reference) -> Record {
        let runtime = json!({
            "host": host.to_value(), "connectionState": self.connection, "powerState": self.power,
            "toolsInstallerMounted": false, "numMksConnections": 0, "consolidationNeeded": false,
        });
        let summary = json!({
            "vm": this.to_value(), "runtime": runtime, "guest": self.tools_summary(), "config": self.config_summary(),
            "overallStatus": "green",
        });
        let config = if self.lacks_configuration() { Value::Null } else { self.config() };
        let all = json!({"name": escape_name(&self.name), "runtime": runtime, "summary": summary, "guest": self.tools(), "config": config});
        set_only(all)
    }

    fn config_summary(&self) -> Value {
        let path = format!("[datastore1] {0}/{0}.vmx", self.name);
        if self.lacks_configuration() {
            return json!({"name": self.name, "template": self.template, "vmPathName": path});
        }
        json!({
            "name": self.name, "template": self.template, "vmPathName": path, "memorySizeMB": self.memory_mb,
            "numCpu": self.cpus, "numEthernetCards": self.nics.len(), "numVirtualDisks": 1, "uuid": self.uuid,
            "instanceUuid": self.instance_uuid, "guestId": self.os, "annotation": "",
        })
    }

    fn config(&self) -> Value {
        let settings = self.extra_config.iter().map(|(key, value)| json!({"key": key, "value": value}));
        json!({
            "changeVersion": "1", "modified": "1970-01-01T00:00:00Z", "name": self.name, "version": "vmx-19", "uuid": self.uuid,
            "instanceUuid": self.instance_uuid, "template": self.template, "guestId": self.os, "annotation": "",
            "hardware": {"numCPU": self.cpus, "numCoresPerSocket": 1, "memoryMB": self.memory_mb},
            "flags": {"diskUuidEnabled": self.disk_uuids}, "extraConfig": settings.collect::<Vec<_>>(), "firmware": "efi",
        })
    }

    fn tools(&self) -> Value {
        let nics: Vec<_> = self.reported().map(nic).collect();
        let mut tools = self.tools_summary();
        tools["net"] = nics.into();
        tools["guestState"] = json!(if self.power == "poweredOn" { "running" } else { "notRunning" });
        tools
    }

    fn tools_summary(&self) -> Value {
        let is_running = self.power == "poweredOn" && (!self.host_name.is_empty() || !self.nics.is_empty());
        let (status, running) =
            if is_running { ("toolsOk", "guestToolsRunning") } else { ("toolsNotRunning", "guestToolsNotRunning") };
        let address = self.reported().filter(|nic| nic.device != -1).find_map(|nic| nic.addresses.first());
        let name = Some(&self.host_name).filter(|name| !name.is_empty());
        let all = json!({"toolsStatus": status, "toolsRunningStatus": running, "hostName": name, "ipAddress": address});
        set_only(all).into()
    }
}

fn nic(nic: &Nic) -> Value {
    let addresses = nic.addresses.iter().map(|address| {
        let prefix = if address.contains(':') { 64 } else { 24 };
        json!({"ipAddress": address, "prefixLength": prefix, "state": "preferred"})
    });
    json!({
        "network": nic.network, "ipAddress": nic.addresses, "macAddress": "00:50:56:00:00:01", "connected": true,
        "deviceConfigId": nic.device, "ipConfig": {"ipAddress": addresses.collect::<Vec<_>>()},
    })
}

/// Fields that are not null.
fn set_only(all: Value) -> Record {
    object(all).into_iter().filter(|(_, value)| !value.is_null()).collect()
}
