//! A provider on simulated vCenters.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{BuildInputs, Error, Instances as _, Result};
use bowline_config::ConfigFile;
use bowline_core::{ClusterName, Instance, InstanceRef, InstanceState, ProviderId};
use bowline_http::{Client, Handler, RequestError};
use bowline_vsphere::{Config, Vsphere};
use bowline_vsphere_simulator::vcenter::{Machine, Options, PASSWORD, USER, Vcenter};
use bytes::Bytes;
use http::{Request, Response};

/// Timeout of the HTTP client, longer than any time limit of the provider.
const TIMEOUT: Duration = Duration::from_secs(60);

/// UUID of `node-1` as vCenter shows it, and as the kubelet reports it.
pub(crate) const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
pub(crate) const SYSTEM_UUID: &str = "56492e42-22ad-3911-6d72-59cc8f26bc90";

/// Simulated vCenters `vc-1`, `vc-2` and so on, and a provider.
pub(crate) struct World {
    pub(crate) vcenters: Vec<Vcenter>,
    pub(crate) provider: Vsphere,
}

/// Sends each request to the vCenter of its host, or to the agent.
struct ByHost(Vec<Client>, Option<Client>);

#[async_trait]
impl Handler for ByHost {
    async fn handle(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, RequestError> {
        let number = request.uri().host().and_then(|host| host.strip_prefix("vc-")?.parse::<usize>().ok());
        let agent = self.1.as_ref().filter(|_| request.uri().host() == Some("agent"));
        let client = number.and_then(|number| self.0.get(number.checked_sub(1)?)).or(agent);
        client.ok_or_else(|| RequestError::Connect("unknown host".to_owned()))?.send(request).await
    }
}

impl World {
    /// One vCenter with `node-1` and `node-2`.
    pub(crate) fn new() -> World {
        World::with("")
    }

    /// The same, with more lines for the configuration.
    pub(crate) fn with(config: &str) -> World {
        World::of(1, config)
    }

    /// Several vCenters. The first has `node-1` and `node-2`, the second `node-3`; each but the first has a VM
    /// that is no Node.
    pub(crate) fn of(count: usize, config: &str) -> World {
        let vcenters: Vec<_> = (0..count).map(|_| Vcenter::new(Options::default())).collect();
        let node_1 = Machine { uuid: UUID.to_owned(), ..Machine::named("node-1", "10.10.1.11") };
        vcenters[0].add_machine(node_1).unwrap();
        vcenters[0].add_machine(Machine::named("node-2", "10.10.1.12")).unwrap();
        if let Some(second) = vcenters.get(1) {
            let uuid = "00000000-0000-0000-0000-00000000000b".to_owned();
            second.add_machine(Machine { uuid, ..Machine::named("node-3", "10.10.1.13") }).unwrap();
        }
        for (number, vcenter) in vcenters.iter().enumerate().skip(1) {
            let uuid = format!("00000000-0000-0000-0001-{number:012}");
            vcenter.add_machine(Machine { uuid, ..Machine::named("other", "10.10.1.200") }).unwrap();
        }
        let provider = provider(&vcenters, config);
        World { vcenters, provider }
    }

    pub(crate) fn vcenter(&self) -> &Vcenter {
        &self.vcenters[0]
    }

    /// A provider with the same configuration, as after a restart.
    pub(crate) fn restarted(&self, config: &str) -> Vsphere {
        provider(&self.vcenters, config)
    }

    pub(crate) async fn find(&self, machine: &InstanceRef) -> Result<InstanceState> {
        self.provider.find(std::slice::from_ref(machine)).await.remove(0)
    }

    /// The machine, which must exist.
    pub(crate) async fn found(&self, machine: &InstanceRef) -> Arc<Instance> {
        self.find(machine).await.unwrap().instance().unwrap().clone()
    }

    /// The error of a lookup, which must fail.
    pub(crate) async fn error(&self, machine: &InstanceRef) -> Error {
        self.find(machine).await.unwrap_err()
    }

    /// The reference of a machine by its provider ID.
    pub(crate) fn id_of(&self, name: &str) -> InstanceRef {
        let machine = self.vcenters.iter().find_map(|vcenter| vcenter.machine(name)).unwrap();
        by_id(&format!("vsphere://{}", machine.uuid))
    }
}

/// A provider on these vCenters. `config` is appended to the section of the last one.
pub(crate) fn provider(vcenters: &[Vcenter], config: &str) -> Vsphere {
    configured(vcenters, text(vcenters) + config)
}

fn text(vcenters: &[Vcenter]) -> String {
    let entries: String = (1..=vcenters.len()).map(|number| format!("[VirtualCenter \"vc-{number}\"]\n")).collect();
    format!("[Global]\nuser = {USER}\npassword = \"{PASSWORD}\"\n{entries}")
}

/// A provider on these vCenters with these environment variables.
pub(crate) fn with_variables(vcenters: &[Vcenter], variables: &[(&str, &str)]) -> Vsphere {
    let inputs = BuildInputs { environment: variables.iter().copied().collect(), ..BuildInputs::default() };
    over(vcenters, None, read(text(vcenters), &inputs))
}

/// A provider on these vCenters with this configuration.
pub(crate) fn configured(vcenters: &[Vcenter], text: String) -> Vsphere {
    over(vcenters, None, read(text, &BuildInputs::default()))
}

/// A provider on these vCenters with this configuration and an agent.
pub(crate) fn with_agent(vcenters: &[Vcenter], config: &str, agent: Client) -> Vsphere {
    over(vcenters, Some(agent), read(text(vcenters) + config, &BuildInputs::default()))
}

fn over(vcenters: &[Vcenter], agent: Option<Client>, config: Config) -> Vsphere {
    let clients = vcenters.iter().map(|vcenter| vcenter.client(TIMEOUT)).collect();
    let client = Client::in_process(Arc::new(ByHost(clients, agent)), TIMEOUT);
    Vsphere::over(config, client, &ClusterName::from("kubernetes")).ok().unwrap()
}

fn read(text: String, inputs: &BuildInputs) -> Config {
    let file = ConfigFile::from_text("vsphere.conf", text);
    let read = Config::read(&inputs.context(Some(&file), &ClusterName::from("kubernetes")));
    read.map_err(|errors| errors.to_string()).unwrap()
}

pub(crate) fn by_id(id: &str) -> InstanceRef {
    InstanceRef { node: "node".into(), provider_id: ProviderId::new(id), system_uuid: None }
}

pub(crate) fn by_name(name: &str) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: None, system_uuid: None }
}

pub(crate) fn by_uuid(name: &str, system_uuid: &str) -> InstanceRef {
    InstanceRef { system_uuid: Some(system_uuid.to_owned()), ..by_name(name) }
}

/// Addresses of a machine, as one line.
pub(crate) fn addresses(instance: &Instance) -> String {
    instance.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
