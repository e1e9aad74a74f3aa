//! Configuration: a YAML file, which is optional.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_agent_client::{AGENT_DOC, AgentConfig, AgentKeys};
use bowline_cloud::BuildContext;
use bowline_config::table::{Checks, Example, Format, Key, Keys as _, Section, Table, UnknownKeys, View, keys};
use bowline_config::{ConfigErrors, Environment};
use ipnet::IpNet;

use crate::identity::normalized;
use crate::machine::{Override, Power, Rules, power};

keys! {
    /// The document.
    #[derive(Debug, Clone)]
    pub(crate) struct Keys {
        backend: String = "backend", "static",
            "Source of the machines: `static` (the fixed table of the demonstration), `vagrant`, `inventory` or `libvirt`.";
        vagrant_home: PathBuf = "vagrantHome" env "VAGRANT_HOME", "",
            "Vagrant's home, for `vagrant`. Default: `.vagrant.d` in the home directory of the user.";
        project: PathBuf = "project", "",
            "Folder of the Vagrantfile, as `vagrant global-status` prints it. Only machines of this project are used. Default: all projects.";
        provider: String = "provider", "",
            "Vagrant's provider of the machines, which is also their zone and region. `vagrant` supports `virtualbox` and `libvirt`. Default: \
             `virtualbox`; `libvirt` with the backend `libvirt`.";
        vboxmanage: String = "vboxmanageCommand", "VBoxManage", "VBoxManage: a name in `PATH`, or a path.";
        virsh: String = "virshCommand", "virsh", "virsh, for machines of libvirt: a name in `PATH`, or a path.";
        libvirt_uri: String = "libvirtUri", "qemu:///system", "URI of the libvirt daemon.";
        libvirt_address_source: String = "libvirtAddressSource", "lease",
            "Source of the addresses of libvirt's machines: `lease`, `agent` or `arp`.";
        cache_seconds: u64 = "cacheSeconds", "30",
            "Time for which a read of all machines is used. A machine is never reported as gone from an older read.";
        command_timeout: Duration = "commandTimeout", "20s", "Time after which a command is stopped.";
        node_network: String = "nodeNetwork", "",
            "CIDR that contains the addresses of the Nodes. Default: the first address of a host-only or bridged network.";
        inventory_file: PathBuf = "inventoryFile", "", "YAML file with the machines. Required for `inventory`.";
        load_balancer: String = "loadBalancer", "none",
            "Load balancers of Services: `none`, `agent` (the agents of the section `agent` hold the addresses and forward the traffic) or \
             `node` (for tests: the address is the `InternalIP` of the first Node).";
        routes: String = "routes", "none",
            "Routes to the pod CIDRs of Nodes: `none` or `agent` (the agents add them to the kernel of their hosts; each Node needs an \
             agent).";
    }
}

keys! {
    /// `instances.NAME`.
    #[derive(Debug, Clone)]
    pub(crate) struct InstanceKeys {
        id: String = "id", "", "ID, without `cloudlycke://`. Default: see [the guide](../guides/cloudlycke.md).";
        addresses: Vec<String> = "addresses", "", "IP addresses, in place of those that the hypervisor reports.";
        memory_mib: Option<u64> = "memoryMiB", "", "Memory in MiB, for the instance type.";
        cpus: Option<u64> = "cpus", "", "Number of CPUs, for the instance type.";
        state: String = "state", "",
            "State in place of the reported one, such as `running`. With a state, the machine exists even if the backend does not list it.";
    }
}

/// A source of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BackendKind {
    #[default]
    Static,
    Inventory,
    Libvirt,
    Vagrant,
}

/// Load balancers of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LoadBalancerMode {
    #[default]
    None,
    /// Those of agents.
    Agent,
    /// The address of a Node.
    Node,
}

/// Vagrant's name of libvirt.
pub(crate) const LIBVIRT: &str = "libvirt";

/// Vagrant's name of VirtualBox.
const VIRTUALBOX: &str = "virtualbox";

/// Configuration of the provider: the settings, and what follows from them.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub(crate) keys: Keys,
    pub(crate) backend: BackendKind,
    pub(crate) vagrant_home: PathBuf,
    pub(crate) rules: Rules,
    /// Time for which a read is used.
    pub(crate) cache: Duration,
    pub(crate) load_balancer: LoadBalancerMode,
    /// Agents, if load balancers or routes use them.
    pub(crate) agent: Option<AgentConfig>,
    /// Whether the agents have routes.
    pub(crate) agent_routes: bool,
}

impl BackendKind {
    const ALL: [BackendKind; 4] =
        [BackendKind::Static, BackendKind::Vagrant, BackendKind::Inventory, BackendKind::Libvirt];

    pub(crate) fn name(self) -> &'static str {
        match self {
            BackendKind::Static => "static",
            BackendKind::Inventory => "inventory",
            BackendKind::Libvirt => LIBVIRT,
            BackendKind::Vagrant => "vagrant",
        }
    }
}

/// Settings of machines, in the section of this name.
const INSTANCES: &str = "instances";

const INSTANCES_DOC: &str = "Settings of single machines, by the name of the Node. They take precedence over what the backend reports. With \
    `static`, they are further machines, and replace one of the same name.";

/// Section of the agents.
const AGENT: &str = "agent";

fn table() -> Table {
    let mut sections = Section::document::<Keys>();
    sections.push(Section::of::<AgentKeys>(AGENT, AGENT_DOC));
    sections.push(Section { named: true, ..Section::of::<InstanceKeys>(INSTANCES, INSTANCES_DOC) });
    Table { format: Format::Yaml, unknown: UnknownKeys::Reject, sections }
}

/// Returns a commented example file.
pub(crate) fn template() -> String {
    use Example::{Optional, Set};
    table().template(&[(
        "",
        &[
            Set(Keys::backend, "static"),
            Optional(Keys::vagrant_home, "/home/me/.vagrant.d"),
            Optional(Keys::project, "/home/me/cluster"),
            Optional(Keys::node_network, "192.168.56.0/24"),
            Optional(Keys::inventory_file, "/etc/bowline/machines.yaml"),
        ],
    )])
}

/// Returns the reference page.
pub(crate) fn reference() -> String {
    HEAD.to_owned() + &table().reference() + INVENTORY
}

const HEAD: &str = "\
# Cloudlycke: configuration

<!-- Generated by `cargo xtask generate` from providers/cloudlycke/src/config.rs; edit that file instead. -->

With `--cloud-provider=cloudlycke`, `--cloud-config` names a YAML file. Without a file, the backend is `static`. See \
[the guide](../guides/cloudlycke.md) for an example.

";

const INVENTORY: &str = "
## Machines of `inventoryFile`

The file is read again when it changes. It has the key `machines`, a list with at least one machine.

| key | default | meaning |
|---|---|---|
| `name` | required | Name of the Node. |
| `id` | see [the guide](../guides/cloudlycke.md) | ID, without `cloudlycke://`. |
| `addresses` | | IP addresses: the one in `nodeNetwork`, or the first of each family, becomes `InternalIP`. Required while the machine is running. |
| `externalAddresses` | as `addresses` | IP addresses that become `ExternalIP`. |
| `cpus`, `memoryMiB` | | For the instance type. Set both or none. |
| `instanceType` | derived | Instance type. |
| `zone`, `region` | `provider` | Zone and region. |
| `labels` | | Further labels, set when the Node is initialised. |
| `state` | `running` | `running`, `poweroff` or another state of [the guide](../guides/cloudlycke.md). |
";

impl Config {
    /// Reads the file, and reports all errors at once.
    pub fn read(context: &BuildContext<'_>) -> Result<Config, ConfigErrors> {
        let (settings, errors) = table().check(context.config, context.environment)?;
        let (keys, mut errors) = (settings.section::<Keys>(""), errors);
        let overrides = settings.views(INSTANCES).into_iter();
        let overrides = overrides.map(|(name, view)| (name.to_owned(), to_override(&view, &mut errors))).collect();
        let agent = keys.agent(&settings.view(AGENT), &mut errors);
        let mut checks = settings.view("").checks(errors);
        let load_balancer = keys.load_balancer_mode(&mut checks);
        keys.check_agent(AgentConfig::is_present(&settings.view(AGENT)), &mut checks);
        let backend = keys.read_backend(&mut checks);
        let vagrant_home = keys.home(backend, context.environment, &mut checks);
        keys.check_inventory(backend, &mut checks);
        let node_network = keys.network(&mut checks);
        let location = keys.location(backend, &mut checks);
        keys.check_address_source(&mut checks);
        let type_word = if location == VIRTUALBOX { "vbox".to_owned() } else { location.clone() };
        let rules = Rules { type_word, location, node_network, overrides };
        let cache = Duration::from_secs(keys.cache_seconds);
        let agent_routes = keys.routes == AGENT;
        checks.finish(Config { keys, backend, vagrant_home, rules, cache, load_balancer, agent, agent_routes })
    }
}

impl Keys {
    fn read_backend(&self, checks: &mut Checks<'_>) -> BackendKind {
        let found = BackendKind::ALL.into_iter().find(|kind| kind.name() == self.backend);
        found.unwrap_or_else(|| {
            let all = BackendKind::ALL.map(BackendKind::name).join(", ");
            checks.error(&Keys::backend, format!("{:?} is not a backend", self.backend), &format!("expected {all}"));
            BackendKind::default()
        })
    }

    fn home(&self, backend: BackendKind, environment: &Environment, checks: &mut Checks<'_>) -> PathBuf {
        if !self.vagrant_home.as_os_str().is_empty() || backend != BackendKind::Vagrant {
            return self.vagrant_home.clone();
        }
        match environment.get("HOME") {
            Some(home) => PathBuf::from(home).join(".vagrant.d"),
            None => {
                checks.error(&Keys::vagrant_home, "the variable HOME is not set", "set vagrantHome");
                PathBuf::new()
            }
        }
    }

    /// Returns the provider of the machines.
    fn location(&self, backend: BackendKind, checks: &mut Checks<'_>) -> String {
        let is_supported = match backend {
            BackendKind::Vagrant => ["", VIRTUALBOX, LIBVIRT].contains(&self.provider.as_str()),
            BackendKind::Libvirt => ["", LIBVIRT].contains(&self.provider.as_str()),
            BackendKind::Static | BackendKind::Inventory => true,
        };
        if !is_supported {
            let message = format!("{:?} cannot be read with the backend {}", self.provider, backend.name());
            checks.error(&Keys::provider, message, "set virtualbox or libvirt, or use the backend inventory");
        }
        match self.provider.as_str() {
            "" if backend == BackendKind::Libvirt => LIBVIRT.to_owned(),
            "" => VIRTUALBOX.to_owned(),
            provider => provider.to_owned(),
        }
    }

    fn check_address_source(&self, checks: &mut Checks<'_>) {
        if !["lease", "agent", "arp"].contains(&self.libvirt_address_source.as_str()) {
            let message = format!("{:?} is not a source of addresses", self.libvirt_address_source);
            checks.error(&Keys::libvirt_address_source, message, "write lease, agent or arp");
        }
    }

    fn load_balancer_mode(&self, checks: &mut Checks<'_>) -> LoadBalancerMode {
        match self.load_balancer.as_str() {
            "none" => LoadBalancerMode::None,
            AGENT => LoadBalancerMode::Agent,
            "node" => LoadBalancerMode::Node,
            other => {
                let message = format!("{other:?} is not a kind of load balancers");
                checks.error(&Keys::load_balancer, message, "write none, agent or node");
                LoadBalancerMode::None
            }
        }
    }

    fn uses_agent(&self) -> bool {
        self.load_balancer == AGENT || self.routes == AGENT
    }

    /// Reads the section of the agents, if it is used, and adds its errors.
    fn agent(&self, view: &View<'_>, errors: &mut ConfigErrors) -> Option<AgentConfig> {
        if !self.uses_agent() {
            return None;
        }
        AgentConfig::read(*view, ConfigErrors::new()).map_err(|found| errors.extend(found)).ok()
    }

    fn check_agent(&self, is_present: bool, checks: &mut Checks<'_>) {
        if !["none", AGENT].contains(&self.routes.as_str()) {
            checks.error(&Keys::routes, format!("{:?} is not a kind of routes", self.routes), "write none or agent");
        }
        if is_present && !self.uses_agent() {
            let hint = "set loadBalancer: agent, or routes: agent, or remove the section";
            checks.error(&Keys::load_balancer, "nothing uses the section agent", hint);
        }
    }

    fn check_inventory(&self, backend: BackendKind, checks: &mut Checks<'_>) {
        if backend == BackendKind::Inventory && self.inventory_file.as_os_str().is_empty() {
            checks.error(&Keys::inventory_file, "the file is missing", "name a YAML file with the machines");
        }
    }

    fn network(&self, checks: &mut Checks<'_>) -> Option<IpNet> {
        if self.node_network.is_empty() {
            return None;
        }
        let network = self.node_network.parse().ok();
        if network.is_none() {
            let message = format!("{:?} is not a CIDR", self.node_network);
            checks.error(&Keys::node_network, message, "write a CIDR such as 192.168.56.0/24");
        }
        network
    }
}

/// Reads the settings of a machine, and adds their errors.
fn to_override(view: &View<'_>, errors: &mut ConfigErrors) -> Override {
    let own = InstanceKeys::read(view);
    let mut error = |key: &Key, message: String, hint: &str| errors.push(view.error(key, message).hint(hint));
    if !own.id.is_empty() && normalized(&own.id).as_ref() != Some(&own.id) {
        let message = format!("{:?} is not an ID", own.id);
        error(&InstanceKeys::id, message, "leave out cloudlycke:// and blanks, in lower case");
    }
    if !own.state.is_empty() && power(&own.state) == Power::Unknown {
        error(&InstanceKeys::state, format!("{:?} is not a known state", own.state), "write running or poweroff");
    }
    if let Some(text) = own.addresses.iter().find(|text| text.parse::<IpAddr>().is_err()) {
        let message = format!("{text:?} is not an IP address");
        error(&InstanceKeys::addresses, message, "write addresses without a prefix length");
    }
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let addresses = own.addresses.iter().filter_map(|text| text.parse().ok()).collect();
    Override { id: text(own.id), addresses, memory_mib: own.memory_mib, cpus: own.cpus, state: text(own.state) }
}

#[cfg(test)]
mod tests {
    use bowline_cloud::BuildInputs;
    use bowline_config::ConfigFile;

    use super::*;

    fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let environment = Environment::from_iter(variables.iter().copied());
        let inputs = BuildInputs { environment, ..BuildInputs::default() };
        let (file, cluster) = (ConfigFile::from_text("c.yaml", text), "kubernetes".into());
        Config::read(&inputs.context(Some(&file), &cluster)).map_err(|errors| errors.to_string())
    }

    // CL-35
    #[test]
    fn without_a_file_the_backend_is_static() {
        let (inputs, cluster) = (BuildInputs::default(), "kubernetes".into());
        let config = Config::read(&inputs.context(None, &cluster)).unwrap();
        assert_eq!((config.backend, config.cache), (BackendKind::Static, Duration::from_secs(30)));
        assert_eq!((config.rules.location.as_str(), config.rules.type_word.as_str()), ("virtualbox", "vbox"));
    }

    // CL-1
    #[test]
    fn the_vagrant_home_is_a_key_a_variable_or_a_default() {
        let home = |text: &str, variables| read(text, variables).unwrap().vagrant_home;
        let (own, both) = ([("HOME", "/home/me")], [("HOME", "/home/me"), ("VAGRANT_HOME", "/v")]);
        assert_eq!(home("backend: vagrant\n", &own), PathBuf::from("/home/me/.vagrant.d"));
        assert_eq!(home("backend: vagrant\n", &both), PathBuf::from("/v"));
        assert_eq!(home("backend: vagrant\nvagrantHome: /x\n", &own), PathBuf::from("/x"));
        assert!(read("backend: vagrant\n", &[]).unwrap_err().contains("HOME is not set"));
    }

    #[test]
    fn every_error_names_its_key() {
        let cases = [
            (
                "backend: vagrnt\n",
                "c.yaml:1: backend: \"vagrnt\" is not a backend; expected static, vagrant, inventory, libvirt",
            ),
            ("backend: inventory\n", "inventoryFile: the file is missing"),
            ("backend: libvirt\nprovider: docker\n", "provider: \"docker\" cannot be read with the backend libvirt"),
            ("libvirtAddressSource: dns\n", "is not a source of addresses; write lease, agent or arp"),
            ("nodeNetwork: 192.168.56.0\n", "nodeNetwork: \"192.168.56.0\" is not a CIDR"),
            ("cacheSeconds: -1\n", "cacheSeconds: "),
            (
                "loadBalancer: nodes\n",
                "loadBalancer: \"nodes\" is not a kind of load balancers; write none, agent or node",
            ),
            ("routes: node\n", "routes: \"node\" is not a kind of routes; write none or agent"),
            ("loadBalancer: agent\n", "agent.endpoints: is required"),
            (
                "routes: agent\nagent: {endpoints: [\"http://a\"]}\n",
                "c.yaml:2: agent.endpoints: \"http://a\" does not start",
            ),
            (
                "agent: {endpoints: [\"unix:/x\"]}\n",
                "loadBalancer: nothing uses the section agent; set loadBalancer: agent",
            ),
            ("vagranthome: /x\n", "vagranthome: unknown key; did you mean vagrantHome?"),
            ("instances: {a: {id: \"cloudlycke://x\"}}\n", "instances.a.id: \"cloudlycke://x\" is not an ID"),
            ("instances: {a: {state: on}}\n", "instances.a.state: \"on\" is not a known state"),
            (
                "instances: {a: {addresses: [10.0.0.0/8]}}\n",
                "instances.a.addresses: \"10.0.0.0/8\" is not an IP address",
            ),
        ];
        for (text, expected) in cases {
            let error = read(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn load_balancers_and_routes_of_agents_are_independent() {
        let config = |text: &str| {
            let config = read(&format!("{text}agent: {{endpoints: [\"unix:/run/agent.sock\"]}}\n"), &[]).unwrap();
            (config.load_balancer, config.agent_routes, config.agent.is_some())
        };
        assert_eq!(config("loadBalancer: agent\n"), (LoadBalancerMode::Agent, false, true));
        assert_eq!(config("routes: agent\n"), (LoadBalancerMode::None, true, true));
        assert_eq!(config("loadBalancer: node\nroutes: agent\n"), (LoadBalancerMode::Node, true, true));
        assert!(read("loadBalancer: node\n", &[]).unwrap().agent.is_none());
    }

    #[test]
    fn the_template_is_valid() {
        assert_eq!(read(&template(), &[]).unwrap().backend, BackendKind::Static);
    }
}
