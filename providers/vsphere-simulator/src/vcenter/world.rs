//! The default inventory: two datacenters, one of them in a folder, with two clusters of two hosts each.
//!
//! ```text
//!  Datacenters ─┬─ DC0 ─── host: DC0_C0 (DC0_C0_H0, DC0_C0_H1), DC0_C1 …     vm: nodes
//!               └─ F0 ─── DC1 ─── host: DC1_C0 (DC1_C0_H0, DC1_C0_H1), …     vm: nodes
//! ```
//!
//! Each cluster has the root resource pool `Resources`, with the pool `workers` below it.

use bowline_simulator::object;
use serde_json::json;

use super::inventory::Reference;
use super::simulator::State;

pub(super) fn populate(state: &mut State) {
    let root = state.root.clone();
    let folder = state.inventory.add("Folder", None, Some(&root), "F0");
    for (parent, name) in [(root, "DC0"), (folder, "DC1")] {
        let datacenter = state.add_datacenter(&parent, name);
        for number in 0..2 {
            let cluster = state.add_cluster(&datacenter, &format!("{name}_C{number}"), 2);
            let pool = state.inventory.references(&cluster, "resourcePool");
            pool.first().into_iter().for_each(|pool| drop(state.add_pool("ResourcePool", pool, "workers")));
        }
        let vms = state.inventory.references(&datacenter, "vmFolder");
        vms.first().into_iter().for_each(|vms| drop(state.inventory.add("Folder", None, Some(vms), "nodes")));
    }
}

impl State {
    /// Adds a datacenter with its folders.
    pub(super) fn add_datacenter(&mut self, parent: &Reference, name: &str) -> Reference {
        let datacenter = self.inventory.add("Datacenter", None, Some(parent), name);
        for (property, name) in
            [("vmFolder", "vm"), ("hostFolder", "host"), ("datastoreFolder", "datastore"), ("networkFolder", "network")]
        {
            let folder = self.inventory.add("Folder", None, Some(&datacenter), name);
            self.inventory.set(&datacenter, object(json!({property: folder.to_value()})));
        }
        self.inventory.get_mut(&datacenter).into_iter().for_each(|record| drop(record.remove("childEntity")));
        datacenter
    }

    /// Adds a cluster with its root resource pool and hosts.
    pub(super) fn add_cluster(&mut self, datacenter: &Reference, name: &str, hosts: usize) -> Reference {
        let folder = self.inventory.references(datacenter, "hostFolder").into_iter().next();
        let cluster = self.inventory.add("ClusterComputeResource", None, folder.as_ref(), name);
        self.add_pool("ResourcePool", &cluster, "Resources");
        for number in 0..hosts {
            self.add_host(&cluster, &format!("{name}_H{number}"));
        }
        cluster
    }

    /// Adds a resource pool or a vApp.
    pub(super) fn add_pool(&mut self, kind: &str, parent: &Reference, name: &str) -> Reference {
        let pool = self.inventory.add(kind, None, Some(parent), name);
        if let Some(owner) = self.inventory.ancestor(parent, "ComputeResource") {
            self.inventory.set(&pool, object(json!({"owner": owner.to_value()})));
        }
        pool
    }

    /// Adds a host to a cluster.
    pub(super) fn add_host(&mut self, cluster: &Reference, name: &str) -> Reference {
        let host = self.inventory.add("HostSystem", None, Some(cluster), name);
        let runtime = json!({"connectionState": "connected", "powerState": "poweredOn", "inMaintenanceMode": false});
        let config = json!({"name": name, "port": 443, "vmotionEnabled": true});
        let summary = json!({
            "host": host.to_value(), "runtime": runtime, "config": config, "overallStatus": "green", "rebootRequired": false,
            "hardware": {
                "vendor": "VMware, Inc.", "model": "VMware Virtual Platform", "uuid": self.ids.uuid(), "memorySize": 68_719_476_736_u64,
                "cpuModel": "CPU", "cpuMhz": 2400, "numCpuPkgs": 2, "numCpuCores": 16, "numCpuThreads": 32, "numNics": 2, "numHBAs": 1,
            },
        });
        self.inventory.set(&host, object(json!({"runtime": runtime, "summary": summary})));
        host
    }
}
