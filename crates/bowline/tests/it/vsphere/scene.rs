//! A cluster whose Nodes are virtual machines of two vCenters, and whose load balancers are those of an NSX manager.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use bowline_simulator::{Fields as _, Record};
use bowline_vsphere_simulator::nsx::{self, Simulator as Nsx};
use bowline_vsphere_simulator::vcenter::{Machine, Options, PASSWORD, USER, Vcenter};
use serde_json::{Value, json};

use crate::support::Program;
use crate::support::cluster::{Cluster, UNINITIALISED};
use crate::support::simulated::{QUICK, Served, output, program};

/// Datacenter of the Nodes in both vCenters.
const DATACENTER: &str = "DC0";

/// Collections of NSX that a Service may leave something in.
const COLLECTIONS: [&str; 5] =
    ["lb-monitor-profiles", "lb-pools", "lb-virtual-servers", "lb-services", "ip-allocations"];

pub(crate) struct Scene {
    pub(crate) one: Served<Vcenter>,
    pub(crate) two: Served<Vcenter>,
    pub(crate) nsx: Served<Nsx>,
    cluster: Cluster,
}

impl Deref for Scene {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Scene {
    /// Starts with a VM and its initialised Node in each vCenter: `node-1` in the first one, `node-2` in the second one.
    pub(crate) async fn new(test: &str) -> Scene {
        let scene = Scene::without_nodes(test).await;
        scene.node(&scene.one, "node-1", "10.10.1.11").await;
        scene.node(&scene.two, "node-2", "10.10.1.12").await;
        scene
    }

    pub(crate) async fn without_nodes(test: &str) -> Scene {
        let nsx = Nsx::new(nsx::Options::default());
        nsx.add_ip_pool("vips", "203.0.113.10-203.0.113.20");
        nsx.add_tier1("t1");
        let [one, two] = [1, 2].map(vcenter);
        let scene = Scene {
            one: Served::start_tls(one).await,
            two: Served::start_tls(two).await,
            nsx: Served::start_tls(nsx).await,
            cluster: Cluster::start(test).await,
        };
        scene.configure(&scene.settings());
        scene
    }

    // ---- configuration

    pub(crate) fn config(&self) -> PathBuf {
        self.server.scratch.path("vsphere.conf")
    }

    /// Settings of both vCenters, zones and NSX.
    pub(crate) fn settings(&self) -> Value {
        let certificates = [self.one.ca(), self.two.ca(), self.nsx.ca()].concat();
        let authorities = self.server.scratch.file("ca.pem", certificates).display().to_string();
        let entry = |vcenter: &Served<Vcenter>| {
            json!({
                "server": "127.0.0.1", "port": vcenter.address().port(), "user": USER, "password": PASSWORD,
                "datacenters": [DATACENTER],
            })
        };
        json!({
            "global": {"caFile": authorities},
            "vcenter": {"one": entry(&self.one), "two": entry(&self.two)},
            "labels": {"region": "k8s-region", "zone": "k8s-zone"},
            "nsxt": {
                "host": self.nsx.address().to_string(), "user": nsx::USER, "password": nsx::PASSWORD, "caFile": authorities,
            },
            "loadBalancer": {
                "size": "SMALL", "tier1GatewayPath": "/infra/tier-1s/t1", "ipPoolId": "vips",
                "tcpAppProfileName": "default-tcp-lb-app-profile", "udpAppProfileName": "default-udp-lb-app-profile",
            },
        })
    }

    /// Writes the configuration file atomically. JSON is YAML.
    pub(crate) fn configure(&self, settings: &Value) {
        let new = self.server.scratch.file("vsphere.conf.new", settings.to_string());
        std::fs::rename(new, self.config()).unwrap();
    }

    pub(crate) fn command(&self) -> Command {
        let is_cleared = |name: &str| ["VSPHERE_", "VCENTER_", "NSXT_"].iter().any(|prefix| name.starts_with(prefix));
        program(|name| is_cleared(name) || name == "SKIP_NODE_DELETION", &[], &[])
    }

    pub(crate) fn flags(&self) -> [String; 3] {
        [
            "--cloud-provider=vsphere".to_owned(),
            format!("--cloud-config={}", self.config().display()),
            format!("--kubeconfig={}", self.server.kubeconfig().display()),
        ]
    }

    pub(crate) fn manager(&self, test: &str) -> Program {
        self.manager_with(test, &[])
    }

    pub(crate) fn manager_with(&self, test: &str, flags: &[&str]) -> Program {
        Program::start_command(test, self.command().args(self.flags()).args(QUICK).args(flags))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        output(self.command().args(words).args(self.flags()))
    }

    pub(crate) fn stop(&self, manager: &mut Program) {
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
        assert!(!manager.output().contains(PASSWORD), "{}", manager.output());
        for vcenter in [&self.one, &self.two] {
            assert_eq!(vcenter.sessions(), (0, 0), "the manager logs out: {}", manager.output());
        }
    }
}

/// A vCenter with the region of its datacenter and the zones of its clusters. It has a VM that is no Node: an empty vCenter would prove
/// nothing about missing VMs.
fn vcenter(number: usize) -> Vcenter {
    let instance_uuid = format!("00000000-0000-4000-8000-00000000000{number}");
    let vcenter = Vcenter::new(Options { instance_uuid, ..Options::default() });
    vcenter.tag("k8s-region", &format!("region-{number}"), &vcenter.find("Datacenter", DATACENTER).unwrap());
    for cluster in ["DC0_C0", "DC0_C1"] {
        vcenter.tag("k8s-zone", &format!("zone-{cluster}"), &vcenter.find("ClusterComputeResource", cluster).unwrap());
    }
    add(&vcenter, machine("database", "10.10.1.250"));
    vcenter
}

// ---- Nodes

impl Scene {
    /// Creates a VM and its initialised Node; returns the UUID of the VM.
    pub(crate) async fn node(&self, vcenter: &Vcenter, name: &str, address: &str) -> String {
        let uuid = add(vcenter, machine(name, address));
        let addresses = [("Hostname", name), ("InternalIP", address), ("ExternalIP", address)];
        let addresses = addresses.map(|(kind, address)| json!({"type": kind, "address": address}));
        let ready = json!({"type": "Ready", "status": "True"});
        self.create_node(json!({
            "metadata": {"name": name},
            "spec": {"providerID": format!("vsphere://{uuid}")},
            "status": {"addresses": addresses, "conditions": [ready]},
        }))
        .await;
        uuid
    }

    /// Creates the uninitialised Node of a VM, whose kubelet reads the UUID in the byte order of the firmware.
    pub(crate) async fn register_vm(&self, name: &str, uuid: &str) {
        let taint = json!({"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"});
        let ready = json!({"type": "Ready", "status": "True"});
        let info = json!({
            "systemUUID": firmware_uuid(uuid), "machineID": "m", "bootID": "b", "kernelVersion": "6.1", "osImage": "Linux",
            "containerRuntimeVersion": "containerd://2", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        });
        self.create_node(json!({
            "metadata": {"name": name},
            "spec": {"taints": [taint]},
            "status": {"conditions": [ready], "nodeInfo": info},
        }))
        .await;
    }

    /// Type and address of each address of a Node.
    pub(crate) async fn node_addresses(&self, name: &str) -> Vec<(String, String)> {
        let status = self.nodes().get(name).await.unwrap().status.unwrap();
        status.addresses.into_iter().flatten().map(|address| (address.type_, address.address)).collect()
    }
}

/// A VM in the first cluster, with a UUID that no other VM has in any vCenter.
pub(crate) fn machine(name: &str, address: &str) -> Machine {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let uuid = format!("4222f3a0-1b2c-4d5e-8000-{:012x}", COUNT.fetch_add(1, Ordering::Relaxed));
    Machine { uuid, ..Machine::named(name, address) }
}

/// Adds a VM and returns its UUID.
pub(crate) fn add(vcenter: &Vcenter, machine: Machine) -> String {
    let name = machine.name.clone();
    vcenter.add_machine(machine).unwrap();
    vcenter.machine(&name).unwrap().uuid
}

/// The UUID in the byte order in which firmware shows it: the bytes of the first three groups are reversed.
fn firmware_uuid(uuid: &str) -> String {
    let reverse = |group: &str| {
        let pairs: Vec<_> =
            group.as_bytes().chunks(2).rev().map(|pair| String::from_utf8_lossy(pair).into_owned()).collect();
        pairs.concat()
    };
    let groups = uuid.split('-').enumerate();
    groups.map(|(index, group)| if index < 3 { reverse(group) } else { group.to_owned() }).collect::<Vec<_>>().join("-")
}

// ---- NSX

impl Scene {
    /// Objects of all collections that a Service may leave something in.
    pub(crate) fn nsx_objects(&self) -> Vec<String> {
        let objects = COLLECTIONS.into_iter().flat_map(|collection| self.nsx.objects(collection));
        objects.map(|object| object.text("path").to_owned()).collect()
    }

    /// The only pool.
    pub(crate) fn pool(&self) -> Record {
        let mut pools = self.nsx.objects("lb-pools");
        assert_eq!(pools.len(), 1, "{pools:#?}");
        pools.remove(0)
    }

    /// Addresses of the only pool's members, sorted.
    pub(crate) fn members(&self) -> Vec<String> {
        let pool = self.pool();
        let members = pool["members"].as_array().cloned().unwrap_or_default();
        let mut members: Vec<_> = members.iter().map(|member| text(&member["ip_address"])).collect();
        members.sort();
        members
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
