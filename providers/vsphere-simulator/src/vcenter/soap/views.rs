//! Container views. They end with their session.

use bowline_simulator::{Record, object};
use serde_json::json;

use super::{Fault, Outcome, Request, Returned};
use crate::vcenter::inventory::{Inventory, Reference};
use crate::vcenter::schema::Type;
use crate::vcenter::simulator::State;

/// A container view.
pub(in crate::vcenter) struct View {
    container: Reference,
    kinds: Vec<String>,
    recursive: bool,
}

impl View {
    /// Properties of the view.
    pub(super) fn properties(&self, inventory: &Inventory) -> Record {
        let found = inventory.below(&self.container, &self.kinds, self.recursive);
        let found: Vec<_> = found.iter().map(Reference::to_value).collect();
        object(json!({
            "view": found, "container": self.container.to_value(), "type": self.kinds, "recursive": self.recursive,
        }))
    }
}

pub(super) fn create(state: &mut State, request: &Request) -> Outcome {
    let container = request.reference("container").ok_or_else(|| Fault::invalid_argument("container"))?;
    state.inventory.get(&container).ok_or_else(|| Fault::not_found(&container))?;
    let kinds = request.arguments.texts("type").into_iter().map(str::to_owned).collect();
    let view = View { container, kinds, recursive: request.arguments.flag("recursive") };
    let uuid = state.ids.uuid();
    let session = state.session(request)?;
    let reference = Reference::new("ContainerView", &format!("session[{}]{uuid}", session.key));
    session.views.insert(reference.id.clone(), view);
    Ok(Returned::Value(Type::of("ContainerView"), reference.to_value()))
}

pub(super) fn destroy(state: &mut State, request: &Request) -> Outcome {
    let removed = state.session(request)?.views.remove(&request.this.id);
    removed.map(|_| Returned::Nothing).ok_or_else(|| Fault::not_found(&request.this))
}
