//! The calls to a cloud.

use bowline_cloud::{CallActivity, CallBudget, CallInterval, FinishedCall};
use bowline_console::document::{self, text};
use bowline_runtime::Anchor;
use tokio::time::Instant;

use super::milliseconds;

/// Item of the calls to one cloud.
pub(super) fn item(activity: CallActivity, anchor: Anchor) -> document::Calls {
    let budgets = activity.budgets.into_iter();
    document::Calls {
        in_progress: activity.in_progress,
        intervals: activity.intervals.iter().map(|one| interval(one, anchor)).collect(),
        recent: activity.recent.into_iter().map(|one| recent(one, anchor)).collect(),
        rate_limit: activity.rate_limit,
        paused_until: activity.paused_until.map(|end| anchor.at(end)),
        budgets: budgets.map(|(service, one)| (service.to_owned(), budget(one, anchor))).collect(),
    }
}

fn interval(interval: &CallInterval, anchor: Anchor) -> document::CallInterval {
    document::CallInterval {
        at: anchor.at(interval.begin).as_second(),
        calls: interval.calls,
        failed: interval.failed,
        throttled: interval.throttled,
        mean_ms: milliseconds(interval.mean()),
        max_ms: milliseconds(interval.longest),
    }
}

fn recent(call: FinishedCall, anchor: Anchor) -> document::RecentCall {
    document::RecentCall {
        at: anchor.at(call.ended),
        service: call.service,
        call: call.name,
        outcome: call.outcome,
        ms: milliseconds(call.took),
        error: call.error.map(text),
    }
}

fn budget((budget, resets): (CallBudget, Instant), anchor: Anchor) -> document::Budget {
    document::Budget { limit: budget.limit, remaining: budget.remaining, resets: anchor.at(resets) }
}
