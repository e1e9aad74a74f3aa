//! Places of machines in the inventory: host, resource pool, and folder or vApp.

use super::inventory::{Access, Reference};
use super::machine::Machine;
use super::simulator::State;

/// Place of a machine.
struct Placement {
    host: Reference,
    /// Resource pool. A template has none.
    pool: Option<Reference>,
    /// Folder or vApp.
    folder: Reference,
}

impl State {
    /// Adds a machine; `None` if its host, pool, folder or vApp does not exist.
    pub(super) fn add_machine(&mut self, mut machine: Machine) -> Option<Reference> {
        self.placement(&machine)?;
        machine.complete(&mut self.ids);
        let reference = self.inventory.add("VirtualMachine", None, None, &machine.name);
        self.change_machine(&reference, machine).then_some(reference)
    }

    /// Replaces a machine; `false` if its host, pool, folder or vApp does not exist.
    pub(super) fn change_machine(&mut self, this: &Reference, machine: Machine) -> bool {
        let Some(place) = self.placement(&machine) else { return false };
        self.leave(this);
        let mut properties = machine.properties(this, &place.host);
        let folder = if machine.vapp.is_some() { "parentVApp" } else { "parent" };
        for (name, holder) in [("resourcePool", place.pool.as_ref()), (folder, Some(&place.folder))] {
            properties.extend(holder.map(|holder| (name.to_owned(), holder.to_value())));
        }
        if let Some(record) = self.inventory.get_mut(this) {
            record.retain(|name, _| ["id", "overallStatus", "configStatus"].contains(&name.as_str()));
            record.extend(properties);
        }
        for holder in [Some(place.host), place.pool, Some(place.folder)].into_iter().flatten() {
            self.inventory.attach(&holder, this);
        }
        self.inventory.index(&this.id, machine.keys());
        self.inventory.set_access(this, machine.access);
        self.machines.insert(this.id.clone(), machine);
        true
    }

    /// Deletes a machine, or another object that has no children; `false` if it does not exist.
    pub(super) fn delete(&mut self, this: &Reference) -> bool {
        self.leave(this);
        self.machines.remove(&this.id);
        self.inventory.set_access(this, Access::Full);
        self.inventory.remove(this).is_some()
    }

    /// Removes a machine from its host, pool and folder.
    fn leave(&mut self, this: &Reference) {
        let properties = ["parent", "parentVApp", "resourcePool"].into_iter();
        let mut holders: Vec<_> = properties.flat_map(|name| self.inventory.references(this, name)).collect();
        let host = self.inventory.get(this).and_then(|record| record.get("runtime")?.get("host"));
        holders.extend(host.map(Reference::all_in).unwrap_or_default());
        holders.iter().for_each(|holder| self.inventory.detach(holder, this));
    }

    fn placement(&self, machine: &Machine) -> Option<Placement> {
        let host = self.inventory.find("HostSystem", &machine.host)?;
        let folder = self.folder(machine, &host)?;
        let pool = if machine.template { None } else { Some(self.pool(machine, &host)?) };
        Some(Placement { host, pool, folder })
    }

    fn pool(&self, machine: &Machine, host: &Reference) -> Option<Reference> {
        let find = |id| self.inventory.find("VirtualApp", id).or_else(|| self.inventory.find("ResourcePool", id));
        let default = || self.inventory.references(&self.inventory.parent(host)?, "resourcePool").into_iter().next();
        machine.vapp.as_deref().or(machine.pool.as_deref()).map_or_else(default, find)
    }

    fn folder(&self, machine: &Machine, host: &Reference) -> Option<Reference> {
        let default = || {
            let datacenter = self.inventory.ancestor(host, "Datacenter")?;
            self.inventory.references(&datacenter, "vmFolder").into_iter().next()
        };
        match (&machine.vapp, &machine.folder) {
            (Some(vapp), _) => self.inventory.find("VirtualApp", vapp),
            (None, Some(folder)) => self.inventory.find("Folder", folder),
            (None, None) => default(),
        }
    }
}
