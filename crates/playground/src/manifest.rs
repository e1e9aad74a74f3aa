//! Manifests of the tour: the files in `examples/`, which the documentation shows.
//!
//! A Service has the ports in its file, unless another program listens on them on all addresses of this machine; then it has other
//! ports, and the command to paste replaces them.

use std::net::{IpAddr, TcpListener, UdpSocket};

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};

/// Field manager of the tour.
const FIELD_MANAGER: &str = "playground-tour";

/// Two Pods and a Service.
pub(crate) const HELLO: Manifest =
    Manifest { path: "examples/hello.yaml", text: include_str!("../../../examples/hello.yaml") };

/// The Service with an additional UDP port.
pub(crate) const HELLO_UDP: Manifest =
    Manifest { path: "examples/hello-udp.yaml", text: include_str!("../../../examples/hello-udp.yaml") };

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
        let candidates = (0..20).map(|number| Ports { http: 4080 + number * 10, udp: 4081 + number * 10 });
        candidates.into_iter().find(|ports| ports.are_free(address)).unwrap_or(Ports::DEFAULT)
    }

    fn are_free(self, address: IpAddr) -> bool {
        TcpListener::bind((address, self.http)).is_ok() && UdpSocket::bind((address, self.udp)).is_ok()
    }

    /// Returns the replacements to make in the files.
    fn replacements(self) -> [(String, String); 2] {
        let Ports { http, udp } = Ports::DEFAULT;
        [(http, self.http), (udp, self.udp)].map(|(from, to)| (format!("port: {from}"), format!("port: {to}")))
    }
}

/// A manifest file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// Path from the root of the repository.
    pub path: &'static str,
    text: &'static str,
}

impl Manifest {
    /// Returns the shell command that applies it.
    pub(crate) fn command(self, ports: Ports) -> String {
        if ports == Ports::DEFAULT {
            return format!("kubectl apply -f {}", self.path);
        }
        let edits = ports.replacements().map(|(from, to)| format!("-e 's/{from}/{to}/'")).join(" ");
        format!("sed {edits} {} | kubectl apply -f -", self.path)
    }

    /// Applies all objects in the namespace `default`, like `kubectl apply --server-side`.
    pub(crate) async fn apply(self, ports: Ports, client: &Client) -> Result<(), String> {
        for object in self.objects(ports)? {
            let kind = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok());
            let kind = kind.ok_or_else(|| format!("{}: an object has no kind", self.path))?;
            let api = Api::<DynamicObject>::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind));
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let applied = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
            applied.map_err(|error| format!("{}: {} {}: {error}", self.path, kind.kind, object.name_any()))?;
        }
        Ok(())
    }

    fn objects(self, ports: Ports) -> Result<Vec<DynamicObject>, String> {
        let edit = |text: String, (from, to): (String, String)| text.replace(&from, &to);
        let text = ports.replacements().into_iter().fold(self.text.to_owned(), edit);
        let read = |text: &str| serde_saphyr::from_str(text).map_err(|error| format!("{}: {error}", self.path));
        text.split("\n---\n").map(read).collect()
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
    fn the_command_replaces_the_ports() {
        assert_eq!(HELLO.command(Ports::DEFAULT), "kubectl apply -f examples/hello.yaml");
        let other =
            "sed -e 's/port: 4080/port: 4090/' -e 's/port: 4081/port: 4091/' examples/hello.yaml | kubectl apply -f -";
        assert_eq!(HELLO.command(Ports { http: 4090, udp: 4091 }), other);
    }
}
