//! A host with Vagrant and VirtualBox: a Vagrant home, a project, and a stand-in for `VBoxManage`, in a temporary folder.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bowline_cloud::{BuildInputs, Calls, CloudProvider, Instances, Result};
use bowline_cloudlycke::{Cloudlycke, Config};
use bowline_config::{ConfigFile, Environment};
use bowline_core::{InstanceRef, InstanceState, ProviderId};
use serde_json::{Value, json};

/// The stand-in for `VBoxManage`.
const STAND_IN: &str = include_str!("VBoxManage");

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A temporary folder, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("bowline-cloudlycke-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A machine of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vm {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) uuid: String,
    pub(crate) ip: String,
    pub(crate) project: PathBuf,
    pub(crate) provider: &'static str,
}

/// A host. Machines are entries of the index, `id` files and files of the stand-in.
pub(crate) struct Host {
    pub(crate) folder: Folder,
    machines: Mutex<Vec<Vm>>,
}

impl Host {
    pub(crate) fn new() -> Host {
        let folder = Folder::new();
        for below in ["home/data/machine-index", "project", "bin/vms", "bin/props"] {
            fs::create_dir_all(folder.0.join(below)).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(stand_in(), folder.0.join("bin/VBoxManage")).unwrap();
        Host { folder, machines: Mutex::default() }
    }

    pub(crate) fn with(names: &[&str]) -> Host {
        let host = Host::new();
        names.iter().for_each(|name| drop(host.add(name)));
        host
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.0.join(below)
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.path("home/data/machine-index/index")
    }

    /// Creates a running machine with a host-only address.
    pub(crate) fn add(&self, name: &str) -> Vm {
        self.add_in(name, &self.path("project"), "virtualbox")
    }

    pub(crate) fn add_in(&self, name: &str, project: &Path, provider: &'static str) -> Vm {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let [.., third, fourth] = u32::try_from(number).unwrap().to_be_bytes();
        let vm = Vm {
            name: name.to_owned(),
            key: format!("{number:07x}{:025x}", number * 7919),
            uuid: format!("{number:08x}-1111-4222-8333-0123456789ab"),
            ip: format!("192.168.{}.{}", 56 + third, fourth.max(2)),
            project: project.to_owned(),
            provider,
        };
        self.machines.lock().unwrap().push(vm.clone());
        self.write_info(&vm, "running", 1024, 2);
        self.write_address(&vm, &vm.ip);
        fs::create_dir_all(self.id_path(&vm).parent().unwrap()).unwrap();
        fs::write(self.id_path(&vm), &vm.uuid).unwrap();
        self.write_index();
        vm
    }

    /// Returns the machine of this name.
    pub(crate) fn vm(&self, name: &str) -> Vm {
        self.machines.lock().unwrap().iter().find(|vm| vm.name == name).unwrap().clone()
    }

    /// Returns the machine with this index key.
    pub(crate) fn by_key(&self, key: &str) -> Vm {
        self.machines.lock().unwrap().iter().find(|vm| vm.key == key).unwrap().clone()
    }

    pub(crate) fn id_path(&self, vm: &Vm) -> PathBuf {
        vm.project.join(".vagrant/machines").join(&vm.name).join(vm.provider).join("id")
    }

    /// Writes what `showvminfo` prints.
    pub(crate) fn write_info(&self, vm: &Vm, state: &str, memory: u64, cpus: u64) {
        let mac = mac(vm);
        let (name, uuid) = (&vm.name, &vm.uuid);
        let info = format!(
            "name=\"project_{name}_1_2\"\nUUID=\"{uuid}\"\nmemory={memory}\ncpus={cpus}\nVMState=\"{state}\"\nnic1=\"nat\"\n\
             macaddress1=\"0800270000FF\"\nForwarding(0)=\"ssh,tcp,127.0.0.1,2222,,22\"\nnic2=\"hostonly\"\n\
             hostonlyadapter2=\"vboxnet0\"\nmacaddress2=\"{mac}\"\nnic3=\"none\"\n"
        );
        fs::write(self.path("bin/vms").join(uuid), info).unwrap();
    }

    /// Writes what `guestproperty enumerate` prints.
    pub(crate) fn write_address(&self, vm: &Vm, ip: &str) {
        let property = |number: u32, name: &str, value: &str| {
            format!(
                "Name: /VirtualBox/GuestInfo/Net/{number}/{name}, value: {value}, timestamp: 1700000000, flags: TRANSIENT\n"
            )
        };
        let nat = property(0, "MAC", "0800270000FF") + &property(0, "V4/IP", "10.0.2.15");
        let own = property(1, "MAC", &mac(vm)) + &property(1, "V4/IP", ip);
        fs::write(self.path("bin/props").join(&vm.uuid), nat + &own).unwrap();
    }

    /// Sets the state of a machine. The properties of a machine that is off have no addresses.
    pub(crate) fn set_state(&self, vm: &Vm, state: &str) {
        self.write_info(vm, state, 1024, 2);
        if state == "running" {
            self.write_address(vm, &vm.ip);
        } else {
            let _ = fs::remove_file(self.path("bin/props").join(&vm.uuid));
        }
    }

    /// Deletes a machine, as `vagrant destroy` does.
    pub(crate) fn destroy(&self, vm: &Vm) {
        self.machines.lock().unwrap().retain(|other| other.key != vm.key);
        self.forget(vm);
        fs::remove_file(self.id_path(vm)).unwrap();
        self.write_index();
    }

    /// Deletes a machine in VirtualBox only.
    pub(crate) fn forget(&self, vm: &Vm) {
        let _ = fs::remove_file(self.path("bin/vms").join(&vm.uuid));
        let _ = fs::remove_file(self.path("bin/props").join(&vm.uuid));
    }

    pub(crate) fn rename(&self, vm: &Vm, name: &str) {
        let new = Vm { name: name.to_owned(), ..vm.clone() };
        fs::create_dir_all(self.id_path(&new).parent().unwrap()).unwrap();
        fs::rename(self.id_path(vm), self.id_path(&new)).unwrap();
        let mut machines = self.machines.lock().unwrap();
        machines.iter_mut().filter(|other| other.key == vm.key).for_each(|other| *other = new.clone());
        drop(machines);
        self.write_index();
    }

    /// Writes the index in place.
    pub(crate) fn write_index(&self) {
        let machines = self.machines.lock().unwrap();
        let entries = machines.iter().map(|vm| {
            let entry = json!({
                "local_data_path": vm.project.join(".vagrant"), "name": vm.name, "provider": vm.provider, "state": "poweroff",
                "vagrantfile_name": null, "vagrantfile_path": vm.project, "updated_at": null,
                "extra_data": {"box": {"name": "ubuntu/jammy64", "provider": "virtualbox", "version": "1"}},
            });
            (vm.key.clone(), entry)
        });
        let machines: serde_json::Map<String, Value> = entries.collect();
        fs::write(self.index(), json!({"version": 1, "machines": machines}).to_string()).unwrap();
    }

    /// Makes every run of the stand-in fail in this way; an empty text ends it.
    pub(crate) fn fault(&self, fault: &str) {
        fs::write(self.path("bin/fault"), format!("{fault}\n")).unwrap();
    }

    /// Returns the command lines since the last call of this function.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = self.path("bin/calls.log");
        let text = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the number of runs so far.
    pub(crate) fn count(&self) -> u64 {
        let text = fs::read_to_string(self.path("bin/calls.log")).unwrap_or_default();
        text.lines().count().try_into().unwrap()
    }

    /// Returns the provider with the backend `vagrant`. Every lookup reads the machines again, unless `more` sets `cacheSeconds`.
    pub(crate) fn provider(&self, more: &str) -> Arc<Cloudlycke> {
        let cache = if more.contains("cacheSeconds") { "" } else { "cacheSeconds: 0\n" };
        let (home, command) = (self.path("home"), self.path("bin/VBoxManage"));
        let (home, command) = (home.display(), command.display());
        provider(&format!("backend: vagrant\nvagrantHome: {home}\nvboxmanageCommand: {command}\n{cache}{more}"))
    }
}

fn mac(vm: &Vm) -> String {
    format!("0A0027{}", &vm.uuid[2..8].to_uppercase())
}

/// Returns the path of the stand-in. A child writes it: a script that this process had open for writing while another thread forks could
/// not be started.
fn stand_in() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("VBoxManage");
        let write = "cat >\"$1.$$\" && chmod 755 \"$1.$$\" && mv \"$1.$$\" \"$1\"";
        let child = Command::new("sh").args(["-c", write, "sh"]).arg(&path).stdin(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(STAND_IN.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        path
    })
}

/// Returns the folder of the examples.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cloudlycke")
}

/// Reports that a test is skipped, in the format that the CI gate counts. The test runner would capture `eprintln!`.
pub(crate) fn skip(why: &str) {
    std::io::stderr()
        .write_all(format!("\nSKIPPED: {why}; tests/vagrant/run installs it\n1 skipped\n").as_bytes())
        .unwrap();
}

/// Builds a provider from the text of its configuration.
pub(crate) fn provider(text: &str) -> Arc<Cloudlycke> {
    provider_with(text, &Calls::default())
}

/// Builds a provider whose calls pass through `calls`.
pub(crate) fn provider_with(text: &str, calls: &Calls) -> Arc<Cloudlycke> {
    let environment = Environment::from_iter([("HOME", "/nonexistent")]);
    let inputs = BuildInputs { environment, calls: calls.clone(), ..BuildInputs::default() };
    let (file, cluster) = (ConfigFile::from_text("cloudlycke.yaml", text), "kubernetes-2".into());
    let context = inputs.context(Some(&file), &cluster);
    let config = Config::read(&context).unwrap_or_else(|errors| panic!("{errors}"));
    Arc::new(Cloudlycke::new(config, &context).unwrap())
}

/// Returns the number of calls in the metrics of a cloud.
pub(crate) fn count_calls(metrics: &prometheus::Registry) -> u64 {
    count_calls_of(metrics, |_| true)
}

/// Returns the number of calls of some names.
pub(crate) fn count_calls_of(metrics: &prometheus::Registry, is_counted: impl Fn(&str) -> bool) -> u64 {
    let families = metrics.gather();
    let calls = families.iter().filter(|family| family.name() == "bowline_cloud_calls_total");
    let calls = calls.flat_map(|family| family.get_metric());
    let name = |metric: &prometheus::proto::Metric| {
        let label = metric.get_label().iter().find(|label| label.name() == "call");
        label.map(|label| label.value().to_owned()).unwrap_or_default()
    };
    calls.filter(|metric| is_counted(&name(metric))).map(|metric| metric.get_counter().get_value() as u64).sum()
}

pub(crate) fn by_id(id: &str) -> InstanceRef {
    InstanceRef { node: "any".into(), provider_id: ProviderId::new(id), system_uuid: None }
}

pub(crate) fn by_name(name: &str) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: None, system_uuid: None }
}

/// Looks up one machine.
pub(crate) async fn find(provider: &Cloudlycke, asked: &InstanceRef) -> Result<InstanceState> {
    provider.find(std::slice::from_ref(asked)).await.pop().unwrap()
}

/// Looks up one machine, and describes the answer: the state with name, provider ID, type and addresses, or the error.
pub(crate) async fn look_up(provider: &Cloudlycke, asked: &InstanceRef) -> String {
    match find(provider, asked).await {
        Ok(state) => text(&state),
        Err(error) => format!("{}: {error}", error.kind().as_str()),
    }
}

/// Describes a state.
pub(crate) fn text(state: &InstanceState) -> String {
    let word = match state {
        InstanceState::Running(_) => "running",
        InstanceState::Stopped(_) => "stopped",
        InstanceState::Gone => "gone",
        InstanceState::NotMine => "not mine",
    };
    let Some(instance) = state.instance() else { return word.to_owned() };
    let id = instance.provider_id.as_ref().map_or("", |id| id.as_str());
    let addresses = instance.addresses.iter().map(|one| format!(" {:?}={}", one.kind, one.address)).collect::<String>();
    format!("{word} {} {id} {}{addresses}", instance.name, instance.instance_type)
}

/// Returns the provider as the manager has it.
pub(crate) fn erased(provider: &Arc<Cloudlycke>) -> Arc<dyn CloudProvider> {
    provider.clone()
}
