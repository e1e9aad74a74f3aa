//! The manifests of the tour: the files in `examples/`, which the documentation shows and a reader applies.
//!
//! A Service listens on the ports that its file says, unless another program has them on all addresses of this machine; then
//! on others, and the command to paste says so.

use std::net::{IpAddr, TcpListener, UdpSocket};

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};

/// Who writes what the tour applies.
const FIELD_MANAGER: &str = "playground-tour";

/// Two Pods and a Service.
pub(crate) const HELLO: Manifest =
    Manifest { path: "examples/hello.yaml", text: include_str!("../../../examples/hello.yaml") };

/// The Service with a port for UDP as well.
pub(crate) const HELLO_UDP: Manifest =
    Manifest { path: "examples/hello-udp.yaml", text: include_str!("../../../examples/hello-udp.yaml") };

/// The ports of the Service `hello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// For HTTP.
    pub http: u16,
    /// For UDP.
    pub udp: u16,
}

impl Ports {
    /// Those in the files.
    pub const USUAL: Ports = Ports { http: 4080, udp: 4081 };

    /// The usual ones, or if another program has them at this address, the next ones that are free.
    pub fn free(address: IpAddr) -> Ports {
        let candidates = (0..20).map(|number| Ports { http: 4080 + number * 10, udp: 4081 + number * 10 });
        candidates.into_iter().find(|ports| ports.are_free(address)).unwrap_or(Ports::USUAL)
    }

    fn are_free(self, address: IpAddr) -> bool {
        TcpListener::bind((address, self.http)).is_ok() && UdpSocket::bind((address, self.udp)).is_ok()
    }

    /// What in the files is to be replaced, and by what.
    fn replacements(self) -> [(String, String); 2] {
        let Ports { http, udp } = Ports::USUAL;
        [(http, self.http), (udp, self.udp)].map(|(from, to)| (format!("port: {from}"), format!("port: {to}")))
    }
}

/// A file of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// Where it is, from the root of the repository.
    pub path: &'static str,
    text: &'static str,
}

impl Manifest {
    /// How somebody at a terminal applies it.
    pub(crate) fn command(self, ports: Ports) -> String {
        if ports == Ports::USUAL {
            return format!("kubectl apply -f {}", self.path);
        }
        let edits = ports.replacements().map(|(from, to)| format!("-e 's/{from}/{to}/'")).join(" ");
        format!("sed {edits} {} | kubectl apply -f -", self.path)
    }

    /// Applies all its objects to the namespace `default`, as `kubectl apply --server-side` does.
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
    fn the_manifests_can_be_read() {
        let names = |manifest: Manifest| -> Vec<_> {
            manifest.objects(Ports::USUAL).unwrap().iter().map(|object| object.name_any()).collect()
        };
        assert_eq!(names(HELLO), ["hello-1", "hello-2", "hello"]);
        assert_eq!(names(HELLO_UDP), ["hello"]);
    }

    #[test]
    fn ports_that_another_program_has_are_left_to_it() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let stray = TcpListener::bind((address, Ports::free(address).http)).unwrap();
        let ports = Ports::free(address);
        assert_ne!(ports.http, stray.local_addr().unwrap().port());
        let objects = HELLO_UDP.objects(ports).unwrap();
        let used =
            objects[0].data["spec"]["ports"].as_array().unwrap().iter().map(|port| port["port"].as_u64().unwrap());
        assert_eq!(used.collect::<Vec<_>>(), [u64::from(ports.http), u64::from(ports.udp)]);
    }

    #[test]
    fn the_command_to_paste_has_the_ports_that_are_used() {
        assert_eq!(HELLO.command(Ports::USUAL), "kubectl apply -f examples/hello.yaml");
        let other =
            "sed -e 's/port: 4080/port: 4090/' -e 's/port: 4081/port: 4091/' examples/hello.yaml | kubectl apply -f -";
        assert_eq!(HELLO.command(Ports { http: 4090, udp: 4091 }), other);
    }
}
