//! Filter of log events.

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Filter};

use super::filter::{VModule, may_hold_secrets};

/// Levels, `--vmodule` for single files, and events that are never logged.
pub(super) struct Selection {
    levels: EnvFilter,
    vmodule: VModule,
}

impl Selection {
    pub(super) fn new(levels: EnvFilter, vmodule: VModule) -> Selection {
        Selection { levels, vmodule }
    }
}

impl<S: Subscriber> Filter<S> for Selection {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        !may_hold_secrets(metadata)
            && (self.vmodule.shows(metadata) || Filter::<S>::enabled(&self.levels, metadata, context))
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match (may_hold_secrets(metadata), self.vmodule.shows(metadata)) {
            (true, _) => Interest::never(),
            (false, true) => Interest::always(),
            (false, false) => Filter::<S>::callsite_enabled(&self.levels, metadata),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let most = Filter::<S>::max_level_hint(&self.levels)?;
        Some(self.vmodule.most().map_or(most, |level| level.max(most)))
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        Filter::<S>::on_new_span(&self.levels, attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        Filter::<S>::on_record(&self.levels, id, values, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        Filter::<S>::on_enter(&self.levels, id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        Filter::<S>::on_exit(&self.levels, id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        Filter::<S>::on_close(&self.levels, id, context);
    }
}
