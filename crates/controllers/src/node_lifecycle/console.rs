//! Contribution to the console: deletions that are held back, and the loops.

use std::sync::{Arc, PoisonError};

use bowline_console::document::{Document, Health, HeldDeletion, Level, text};
use bowline_core::lifecycle::{Held, HoldReason};
use bowline_runtime::{Component as _, Heartbeat};

use super::{HeldNodes, Loop, NAME};
use crate::Context;
use crate::console::{add_loops, loop_item};

/// Registers the contribution. Returns the Nodes that are held back, which the controller keeps up to date.
pub(super) fn register(context: &Context, loops: &[Loop]) -> Arc<HeldNodes> {
    let held = Arc::<HeldNodes>::default();
    let name = |one: &Loop| one.owner.as_ref().map_or("no cloud".to_owned(), ToString::to_string);
    let loops: Vec<(String, Heartbeat)> = loops.iter().map(|one| (name(one), one.heartbeat.clone())).collect();
    context.console.add(&held, move |held, document, anchor| {
        fill(held, document);
        let item = |beat: &Heartbeat| loop_item(beat.snapshot(), beat.health(), anchor);
        add_loops(document, NAME, loops.iter().map(|(name, beat)| (name.clone(), item(beat))));
    });
    held
}

fn fill(held: &HeldNodes, document: &mut Document) {
    let held = held.lock().unwrap_or_else(PoisonError::into_inner);
    for held in held.values().flatten() {
        let Some(item) = document.node.get_mut(held.node.as_str()) else { continue };
        item.machine_state = "gone".to_owned();
        item.health.worsen(health(held));
        item.held = Some(deletion(held));
    }
}

fn deletion(held: &Held) -> HeldDeletion {
    HeldDeletion {
        reason: held.reason.as_str().to_owned(),
        message: text(reason(held)),
        command: held.release_command(),
    }
}

fn health(held: &Held) -> Health {
    let (provider, reason) = (&held.provider, reason(held));
    let message = format!("{provider} reports the machine as gone. The Node is not deleted: {reason}.");
    match held.release_command() {
        Some(command) => {
            let remedy =
                format!("Check the credentials, project and region of {provider}; if the machine is really gone");
            Health::new(Level::Error, "DeletionHeldBack", format!("{message} {remedy}: {command}"))
        }
        None => Health::new(Level::Progressing, "DeletionHeldBack", message),
    }
}

/// The reason without times that change in every sync: an item is sent to all clients when it changes.
fn reason(held: &Held) -> String {
    match &held.reason {
        HoldReason::TooYoung { grace, .. } => {
            format!("it is too young, and a cloud may not list a machine within its first {} s", grace.as_secs())
        }
        HoldReason::AwaitingSecondLook { .. } => "another read has to confirm it".to_owned(),
        reason => reason.to_string(),
    }
}
