//! Manifests of the tour: the files in `examples/`, which the documentation shows.
//!
//! The program contains the files, so that the tour works without a checkout. A Service has the ports in its file, unless another
//! program listens on them on all addresses of this machine; then it has other ports, and the command to paste names them.

use std::net::{IpAddr, TcpListener, UdpSocket};

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};

use crate::assertion::Snapshot;
use crate::objects::{Service, ServicePort};

/// Field manager of the tour, and of the examples that the page creates: the tour continues with them.
const FIELD_MANAGER: &str = "playground-tour";

/// Two Pods and a Service.
pub(crate) const HELLO: Manifest =
    Manifest { path: "examples/hello.yaml", text: include_str!("../../../examples/hello.yaml") };

/// The Service with an additional UDP port.
pub(crate) const HELLO_UDP: Manifest =
    Manifest { path: "examples/hello-udp.yaml", text: include_str!("../../../examples/hello-udp.yaml") };

/// Two Nodes without machines.
const NODE: Manifest = Manifest { path: "examples/node.yaml", text: include_str!("../../../examples/node.yaml") };

/// A Service without Pods.
const SERVICE: Manifest =
    Manifest { path: "examples/service.yaml", text: include_str!("../../../examples/service.yaml") };

/// All manifests in `examples/`, which the program contains, so that it needs no checkout.
pub const EXAMPLES: [Manifest; 4] = [HELLO, HELLO_UDP, NODE, SERVICE];

/// Ports of the Service `hello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// HTTP port.
    pub http: u16,
    /// UDP port.
    pub udp: u16,
}

impl Ports {
    /// Ports in the files.
    pub const DEFAULT: Ports = Ports { http: 4080, udp: 4081 };

    /// Returns the default ports, or the next free ones if another program uses them on this address.
    pub fn free(address: IpAddr) -> Ports {
        let candidates = (0..20).map(|number| Ports::from(Ports::DEFAULT.http + number * 10));
        candidates.into_iter().find(|ports| ports.are_free(address)).unwrap_or(Ports::DEFAULT)
    }

    fn are_free(self, address: IpAddr) -> bool {
        TcpListener::bind((address, self.http)).is_ok() && UdpSocket::bind((address, self.udp)).is_ok()
    }

    /// Returns the ports from this one on.
    pub fn from(http: u16) -> Ports {
        Ports { http, udp: http.saturating_add(1) }
    }

    /// Returns the replacements to make in the files.
    fn replacements(self) -> [(String, String); 2] {
        let Ports { http, udp } = Ports::DEFAULT;
        [(http, self.http), (udp, self.udp)].map(|(from, to)| (format!("port: {from}"), format!("port: {to}")))
    }
}

/// Result of applying an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It was created.
    Created,
    /// It existed.
    Existing,
}

/// A manifest file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// Path from the root of the repository.
    pub path: &'static str,
    text: &'static str,
}

impl Manifest {
    /// Returns the name of the example: that of the file, without its extension.
    pub fn name(self) -> &'static str {
        self.path.trim_start_matches("examples/").trim_end_matches(".yaml")
    }

    /// Returns the first sentence of the comment at the start of the file, up to a colon.
    pub fn summary(self) -> String {
        let comment = self.text.lines().map_while(|line| line.strip_prefix("# ")).collect::<Vec<_>>().join(" ");
        let end = [". ", ": "].iter().filter_map(|mark| comment.find(mark)).min().unwrap_or(comment.len());
        comment.get(..end).unwrap_or_default().trim_end_matches('.').to_owned()
    }

    /// Returns the manifest with these ports.
    pub fn text(self, ports: Ports) -> String {
        let edit = |text: String, (from, to): (String, String)| text.replace(&from, &to);
        ports.replacements().into_iter().fold(self.text.to_owned(), edit)
    }

    /// Returns the shell command that applies it.
    pub(crate) fn command(self, ports: Ports) -> String {
        let port = if ports == Ports::DEFAULT { String::new() } else { format!(" --port {}", ports.http) };
        format!("bowline playground example {}{port} | kubectl apply -f -", self.name())
    }

    /// Returns whether all Pods exist, and all Services with at least the ports in the file.
    pub(crate) fn is_applied(self, ports: Ports, snapshot: &Snapshot) -> bool {
        let Ok(objects) = self.objects(ports) else { return false };
        let has_ports = |object: &DynamicObject, service: &Service| {
            let wanted: Vec<ServicePort> =
                serde_json::from_value(object.data["spec"]["ports"].clone()).unwrap_or_default();
            wanted.iter().all(|wanted| service.spec.ports.iter().any(|port| port.port == wanted.port))
        };
        objects.iter().all(|object| match snapshot.service(&object.name_any()) {
            Some(service) => has_ports(object, service),
            None => snapshot.pod(&object.name_any()).is_some(),
        })
    }

    /// Applies all objects in the namespace `default`, like `kubectl apply --server-side`. Returns their names, such as `service/hello`.
    pub(crate) async fn apply(self, ports: Ports, client: &Client) -> Result<Vec<(String, Applied)>, String> {
        let mut applied = Vec::new();
        for object in self.objects(ports)? {
            let (api, name) = self.api(&object, client)?;
            let to_message = |error| format!("{}: {name}: {error}", self.path);
            let existing = api.get_metadata_opt(&object.name_any()).await.map_err(to_message)?;
            if existing.as_ref().is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
                return Err(format!("{name} is being deleted. Fix: try again when it is gone"));
            }
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.map_err(to_message)?;
            applied.push((name, if existing.is_some() { Applied::Existing } else { Applied::Created }));
        }
        Ok(applied)
    }

    /// Deletes all objects that exist in the namespace `default`, like `kubectl delete --wait=false`. Returns their names.
    pub(crate) async fn delete(self, ports: Ports, client: &Client) -> Result<Vec<String>, String> {
        let mut deleted = Vec::new();
        for object in self.objects(ports)? {
            let (api, name) = self.api(&object, client)?;
            match api.delete(&object.name_any(), &DeleteParams::default()).await {
                Ok(_) => deleted.push(name),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(format!("{}: {name}: {error}", self.path)),
            }
        }
        Ok(deleted)
    }

    /// Returns the API of an object in the namespace `default`, and the object's name for messages.
    fn api(self, object: &DynamicObject, client: &Client) -> Result<(Api<DynamicObject>, String), String> {
        let kind = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok());
        let kind = kind.ok_or_else(|| format!("{}: an object has no kind", self.path))?;
        let api = Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind));
        Ok((api, format!("{}/{}", kind.kind.to_lowercase(), object.name_any())))
    }

    fn objects(self, ports: Ports) -> Result<Vec<DynamicObject>, String> {
        let read = |text: &str| serde_saphyr::from_str(text).map_err(|error| format!("{}: {error}", self.path));
        self.text(ports).split("\n---\n").map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_are_valid() {
        let names = |manifest: Manifest| -> Vec<_> {
            manifest.objects(Ports::DEFAULT).unwrap().iter().map(|object| object.name_any()).collect()
        };
        assert_eq!(names(HELLO), ["hello-1", "hello-2", "hello"]);
        assert_eq!(names(HELLO_UDP), ["hello"]);
    }

    #[test]
    fn ports_in_use_are_not_used() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let other = TcpListener::bind((address, Ports::free(address).http)).unwrap();
        let ports = Ports::free(address);
        assert_ne!(ports.http, other.local_addr().unwrap().port());
        let objects = HELLO_UDP.objects(ports).unwrap();
        let used =
            objects[0].data["spec"]["ports"].as_array().unwrap().iter().map(|port| port["port"].as_u64().unwrap());
        assert_eq!(used.collect::<Vec<_>>(), [u64::from(ports.http), u64::from(ports.udp)]);
    }

    #[test]
    fn the_command_names_other_ports() {
        assert_eq!(HELLO.command(Ports::DEFAULT), "bowline playground example hello | kubectl apply -f -");
        let other = "bowline playground example hello-udp --port 4090 | kubectl apply -f -";
        assert_eq!(HELLO_UDP.command(Ports::from(4090)), other);
        assert!(HELLO_UDP.text(Ports::from(4090)).contains("port: 4091"));
    }

    #[test]
    fn all_files_of_the_folder_are_in_the_program_with_a_summary() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).unwrap();
        let files = folder.filter_map(|file| file.unwrap().file_name().into_string().ok());
        let mut names: Vec<_> = files.filter_map(|name| Some(name.strip_suffix(".yaml")?.to_owned())).collect();
        names.sort_unstable();
        let mut examples = EXAMPLES.map(Manifest::name);
        examples.sort_unstable();
        assert_eq!(names, examples);
        assert_eq!(EXAMPLES.map(Manifest::summary)[3], "A Service that asks the cloud for a load balancer");
        assert!(EXAMPLES.iter().all(|example| (20..120).contains(&example.summary().len())));
    }
}
