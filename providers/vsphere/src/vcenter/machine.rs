//! Machines: the properties of a virtual machine that a Node needs.

use std::fmt;

use bowline_cloud::KnownState;

use crate::soap::properties::{ObjectContent, PropertySet};
use crate::soap::{Element, ManagedObject};

/// Everything that a Node needs.
pub(super) const DETAILS: PropertySet<'_> = PropertySet {
    kind: MACHINE,
    paths: &[
        "name",
        "parent",
        "parentVApp",
        "resourcePool",
        UUID,
        "summary.config.guestId",
        "summary.config.numCpu",
        "summary.config.memorySizeMB",
        TEMPLATE,
        "summary.runtime.powerState",
        "summary.runtime.connectionState",
        "summary.runtime.host",
        HOST_NAME,
        "guest.net",
        METADATA,
        ENCODING,
    ],
};

/// Everything that identifies a machine.
pub(super) const BRIEF: PropertySet<'_> =
    PropertySet { kind: MACHINE, paths: &["name", "parent", "parentVApp", UUID, TEMPLATE, HOST_NAME] };

/// All settings, for a vCenter that does not know the keyed form.
pub(super) const ALL_SETTINGS: PropertySet<'_> = PropertySet { kind: MACHINE, paths: &[SETTINGS] };

/// The property for `disk.EnableUUID`.
pub(super) const DISK_UUIDS: &str = "config.flags.diskUuidEnabled";

/// Type of machines.
pub(crate) const MACHINE: &str = "VirtualMachine";

const UUID: &str = "summary.config.uuid";
const TEMPLATE: &str = "summary.config.template";
const HOST_NAME: &str = "guest.hostName";
const SETTINGS: &str = "config.extraConfig";

/// Settings that cloud-init reads. Only these two are requested of what may be a long list.
const METADATA: &str = "config.extraConfig[\"guestinfo.metadata\"]";
const ENCODING: &str = "config.extraConfig[\"guestinfo.metadata.encoding\"]";

/// What identifies a machine, from a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Brief {
    pub object: ManagedObject,
    /// Name in the inventory, for messages.
    pub name: String,
    /// In lower case; empty if vCenter cannot read the machine.
    pub uuid: String,
    pub host_name: String,
    pub is_template: bool,
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub object: ManagedObject,
    /// Name in the inventory, for messages.
    pub name: String,
    /// UUID as vCenter shows it, in lower case; empty if vCenter cannot read the machine's configuration.
    pub uuid: String,
    /// Host name that VMware Tools report; empty without them.
    pub host_name: String,
    /// Operating system, such as `ubuntu64Guest`.
    pub os_id: String,
    pub cpus: u64,
    pub memory_mb: u64,
    pub is_template: bool,
    pub power: Power,
    /// State of the connection, such as `connected`, `orphaned` or `inaccessible`.
    pub connection: String,
    pub host: Option<ManagedObject>,
    pub pool: Option<ManagedObject>,
    pub nics: Vec<Nic>,
    /// Metadata of cloud-init, and its encoding.
    pub metadata: Option<String>,
    pub metadata_encoding: String,
    /// Whether the vCenter does not know the keyed form of settings.
    pub lacks_settings: bool,
}

/// Power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    Off,
    Suspended,
}

/// A network interface, as VMware Tools report it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Nic {
    pub network: String,
    /// Key of the virtual device; -1 for interfaces that are no virtual device, such as bridges.
    pub device: i64,
    pub addresses: Vec<String>,
}

impl Machine {
    /// Reads a machine, or returns the reason why it cannot be read.
    pub(super) fn of(content: &ObjectContent) -> Result<Machine, String> {
        if let Some((path, fault)) = content.unreadable() {
            return Err(format!("the property {path} of {} cannot be read: {fault}", content.object));
        }
        let number = |path| content.text(path).parse().unwrap_or_default();
        let power = match content.text("summary.runtime.powerState") {
            "poweredOn" => Power::On,
            "poweredOff" => Power::Off,
            "suspended" => Power::Suspended,
            other => return Err(format!("{} has the unknown power state {other:?}", content.object)),
        };
        let text = |path| content.text(path).to_owned();
        Ok(Machine {
            object: content.object.clone(),
            name: super::datacenters::decoded(content.text("name")),
            uuid: uuid(content),
            host_name: text(HOST_NAME),
            os_id: text("summary.config.guestId"),
            cpus: number("summary.config.numCpu"),
            memory_mb: number("summary.config.memorySizeMB"),
            is_template: content.text(TEMPLATE) == "true",
            power,
            connection: text("summary.runtime.connectionState"),
            host: content.reference("summary.runtime.host"),
            pool: content.reference("resourcePool"),
            nics: content.get("guest.net").map(nics).unwrap_or_default(),
            metadata: keyed(content, METADATA),
            metadata_encoding: keyed(content, ENCODING).unwrap_or_default(),
            lacks_settings: content.missing().any(|(path, _)| path == METADATA),
        })
    }

    /// Takes the metadata over from all settings.
    pub(super) fn read_settings(&mut self, content: &ObjectContent) {
        self.metadata = listed(content, "guestinfo.metadata");
        self.metadata_encoding = listed(content, "guestinfo.metadata.encoding").unwrap_or_default();
    }

    /// Returns the state for errors: the machine exists.
    pub(crate) fn known_state(&self) -> KnownState {
        match self.power {
            Power::On => KnownState::Running,
            Power::Off | Power::Suspended => KnownState::Stopped,
        }
    }
}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{} ", self.name)?;
        }
        write!(f, "({})", self.object)
    }
}

impl Brief {
    pub(super) fn of(content: &ObjectContent) -> Brief {
        Brief {
            object: content.object.clone(),
            name: super::datacenters::decoded(content.text("name")),
            uuid: uuid(content),
            host_name: content.text(HOST_NAME).to_owned(),
            is_template: content.text(TEMPLATE) == "true",
        }
    }
}

fn uuid(content: &ObjectContent) -> String {
    content.text(UUID).trim().to_lowercase()
}

/// Returns the value of a setting that was requested by its key.
fn keyed(content: &ObjectContent, path: &str) -> Option<String> {
    content.get(path)?.child_text("value").map(str::to_owned)
}

/// Returns the value of a setting in the list of all.
fn listed(content: &ObjectContent, key: &str) -> Option<String> {
    let mut options = content.get(SETTINGS)?.children("OptionValue");
    options.find(|option| option.child_text("key") == Some(key))?.child_text("value").map(str::to_owned)
}

fn nics(list: &Element) -> Vec<Nic> {
    let nics = list.children("GuestNicInfo").map(|nic| Nic {
        network: nic.child_text("network").unwrap_or_default().to_owned(),
        device: nic.child_text("deviceConfigId").and_then(|id| id.parse().ok()).unwrap_or(-1),
        addresses: nic.children("ipAddress").map(|address| address.text().to_owned()).collect(),
    });
    nics.collect()
}
