//! The manifests of the tour: the files in `examples/`, which the documentation shows and a reader applies.

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

/// A file of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// Where it is, from the root of the repository.
    pub path: &'static str,
    text: &'static str,
}

impl Manifest {
    /// Applies all its objects to the namespace `default`, as `kubectl apply --server-side` does.
    pub(crate) async fn apply(self, client: &Client) -> Result<(), String> {
        for object in self.objects()? {
            let kind = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok());
            let kind = kind.ok_or_else(|| format!("{}: an object has no kind", self.path))?;
            let api = Api::<DynamicObject>::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind));
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let applied = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
            applied.map_err(|error| format!("{}: {} {}: {error}", self.path, kind.kind, object.name_any()))?;
        }
        Ok(())
    }

    fn objects(self) -> Result<Vec<DynamicObject>, String> {
        let read = |text: &str| serde_saphyr::from_str(text).map_err(|error| format!("{}: {error}", self.path));
        self.text.split("\n---\n").map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_can_be_read() {
        let names = |manifest: Manifest| -> Vec<_> {
            manifest.objects().unwrap().iter().map(|object| object.name_any()).collect()
        };
        assert_eq!(names(HELLO), ["hello-1", "hello-2", "hello"]);
        assert_eq!(names(HELLO_UDP), ["hello"]);
    }
}
