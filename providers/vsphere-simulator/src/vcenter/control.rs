//! Methods with which a test changes and reads the vCenter without going through its API.

use bowline_simulator::{Fields, Record};

use super::inventory::{Access, Reference, escape_name};
use super::machine::Machine;
use super::options::Options;
use super::simulator::Vcenter;

impl Vcenter {
    /// Changes the options. The change applies to all later requests.
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.state().options);
    }

    /// Root folder.
    pub fn root(&self) -> Reference {
        self.state().root.clone()
    }

    /// First object of a kind with this name or ID.
    pub fn find(&self, kind: &str, name: &str) -> Option<Reference> {
        self.state().inventory.find(kind, name)
    }

    /// First object of a kind with this name below another one.
    pub fn find_below(&self, container: &Reference, kind: &str, name: &str) -> Option<Reference> {
        let state = self.state();
        let below = state.inventory.below(container, &[kind.to_owned()], true);
        below
            .into_iter()
            .find(|object| state.inventory.get(object).is_some_and(|record| record.text("name") == escape_name(name)))
    }

    /// Object above this one.
    pub fn parent(&self, of: &Reference) -> Option<Reference> {
        self.state().inventory.parent(of)
    }

    /// Properties of an object.
    pub fn properties(&self, of: &Reference) -> Option<Record> {
        self.state().inventory.get(of).cloned()
    }

    /// Changes the properties of an object; `false` if it does not exist. Those of a machine are replaced with its next change.
    pub fn edit(&self, object: &Reference, change: impl FnOnce(&mut Record)) -> bool {
        self.state().inventory.get_mut(object).map(change).is_some()
    }

    /// Sets what the user can do with an object and those below it. For a machine, use [`Machine::access`].
    pub fn set_access(&self, object: &Reference, access: Access) {
        self.state().inventory.set_access(object, access);
    }

    /// Sets whether the user must not read an object and those below it.
    pub fn hide(&self, object: &Reference, hidden: bool) {
        self.set_access(object, if hidden { Access::NoRead } else { Access::Full });
    }

    /// Removes an object that has no children.
    pub fn remove(&self, object: &Reference) -> bool {
        self.state().delete(object)
    }
}

// ---- containers

impl Vcenter {
    /// Adds a folder to a folder.
    pub fn add_folder(&self, parent: &Reference, name: &str) -> Reference {
        self.state().inventory.add("Folder", None, Some(parent), name)
    }

    /// Adds a datacenter to a folder.
    pub fn add_datacenter(&self, parent: &Reference, name: &str) -> Reference {
        self.state().add_datacenter(parent, name)
    }

    /// Adds a cluster with this number of hosts, which are called `NAME_H0`, `NAME_H1`, and so on.
    pub fn add_cluster(&self, datacenter: &Reference, name: &str, hosts: usize) -> Reference {
        self.state().add_cluster(datacenter, name, hosts)
    }

    /// Adds a resource pool to a pool.
    pub fn add_pool(&self, parent: &Reference, name: &str) -> Reference {
        self.state().add_pool("ResourcePool", parent, name)
    }

    /// Adds a vApp to a pool.
    pub fn add_vapp(&self, pool: &Reference, name: &str) -> Reference {
        self.state().add_pool("VirtualApp", pool, name)
    }
}

// ---- machines

impl Vcenter {
    /// Adds a virtual machine; `None` if its host, pool, folder or vApp does not exist.
    pub fn add_machine(&self, machine: Machine) -> Option<Reference> {
        self.state().add_machine(machine)
    }

    /// Virtual machine with this name or ID.
    pub fn machine(&self, name: &str) -> Option<Machine> {
        let state = self.state();
        let found = state.inventory.find("VirtualMachine", name)?;
        state.machines.get(&found.id).cloned()
    }

    /// Changes a virtual machine; `false` if there is none with this name or ID, or its new place does not exist.
    pub fn change_machine(&self, name: &str, change: impl FnOnce(&mut Machine)) -> bool {
        let state = &mut *self.state();
        let Some(found) = state.inventory.find("VirtualMachine", name) else { return false };
        let Some(mut machine) = state.machines.get(&found.id).cloned() else { return false };
        change(&mut machine);
        state.change_machine(&found, machine)
    }

    /// Deletes a virtual machine; `false` if there is none with this name or ID.
    pub fn delete_machine(&self, name: &str) -> bool {
        let state = &mut *self.state();
        state.inventory.find("VirtualMachine", name).is_some_and(|found| state.delete(&found))
    }
}

// ---- tags

impl Vcenter {
    /// Attaches a tag to an object and returns the ID of the tag. Creates the tag and its category if they do not exist.
    pub fn tag(&self, category: &str, name: &str, object: &Reference) -> String {
        let state = &mut *self.state();
        state.tags.attach(&mut state.ids, category, name, object)
    }

    /// Detaches a tag from an object.
    pub fn untag(&self, tag: &str, object: &Reference) {
        self.state().tags.detach(tag, object);
    }

    /// Deletes a tag.
    pub fn delete_tag(&self, tag: &str) {
        self.state().tags.delete(tag);
    }
}

// ---- sessions

impl Vcenter {
    /// Number of SOAP sessions and of REST sessions.
    pub fn sessions(&self) -> (usize, usize) {
        let state = self.state();
        (state.sessions.len(), state.rest_sessions.len())
    }

    /// Ends all sessions, as a restart of vCenter does.
    pub fn end_sessions(&self) {
        self.state().end_sessions();
    }

    /// Ends all sessions just before the next call of this method, such as `ContinueRetrievePropertiesEx`.
    pub fn end_sessions_before(&self, method: &str) {
        self.state().ends_sessions = Some(method.to_owned());
    }

    /// Creates a clone ticket.
    pub fn clone_ticket(&self) -> String {
        let state = &mut *self.state();
        let user = state.options.user.clone();
        state.new_ticket(&user)
    }

    /// Renames an object.
    pub fn rename(&self, of: &Reference, name: &str) -> bool {
        self.edit(of, |record| record.set("name", escape_name(name)))
    }
}
