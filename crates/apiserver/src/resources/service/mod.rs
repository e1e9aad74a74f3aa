//! Service strategy.
//!
//! ```text
//!  defaults ─► allocate ─┬─► carry_over   fields that an update inherits
//!                        ├─► families     IP families and ipFamilyPolicy
//!                        └─► node_ports   from the Pools, through a Claim
//!           ─► carry_over (fields that an update clears) ─► validate ─► warnings
//! ```

mod allocate;
mod carry_over;
mod claim;
mod defaults;
mod families;
mod node_ports;
mod pools;
mod shape;
mod validate;
mod validate_ips;
mod validate_ports;
mod warnings;
#[cfg(test)]
mod write_tests;

use serde_json::Value;

use super::strategy::{clear_status, keep_status};
use super::{Reservation, Strategy, WriteCx};
use crate::field_error::FieldError;
use crate::state::State;
use crate::status::ApiResult;
use crate::validation;

pub(crate) use pools::Pools;

pub(crate) struct Service;

impl Strategy for Service {
    fn apply_defaults(&self, obj: &mut Value) {
        defaults::apply(obj);
    }

    fn begin_create(&self, cx: &WriteCx<'_>, obj: &mut Value) -> ApiResult<Option<Reservation>> {
        match cx.subresource {
            // upstream: a Service created through its status subresource is stored without allocations.
            Some(_) => Ok(None),
            None => allocate::for_create(&cx.state.pools, cx.dry_run, obj),
        }
    }

    fn begin_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) -> ApiResult<Option<Reservation>> {
        match cx.subresource {
            // Updates of a subresource do not change the spec.
            Some(_) => Ok(None),
            None => allocate::for_update(&cx.state.pools, cx.dry_run, new, old),
        }
    }

    fn prepare_create(&self, cx: &WriteCx<'_>, obj: &mut Value) {
        clear_status(cx, obj);
        carry_over::drop_internal_policy_of_external_name(obj);
    }

    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
        carry_over::drop_type_dependent(new, old);
        carry_over::drop_internal_policy_of_external_name(new);
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        validate::create(obj)
    }

    fn validate_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::update(new, old)
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::status_update(new, old)
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        validation::dns_label(&validation::mask_trailing_dash(name, prefix))
    }

    fn warnings(&self, cx: &WriteCx<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        match (cx.subresource, old) {
            (Some(_), Some(_)) => warnings::of_status(new),
            _ => warnings::of_service(new),
        }
    }

    fn after_delete(&self, state: &State, obj: &Value) {
        allocate::release(&state.pools, obj);
    }

    fn field_labels(&self) -> Option<&'static [&'static str]> {
        Some(&["spec.clusterIP", "spec.type"])
    }
}
