//! Fault injection.

use std::time::Duration;

use http::Method;

use crate::service::Operation;

/// A fault, the calls that it applies to, and how many times it applies.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultSpec {
    fault: Fault,
    part: Option<&'static str>,
    method: Option<Method>,
    template: Option<String>,
    after: u64,
    times: Option<u64>,
}

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Delays the call.
    Slow(Duration),
    /// Answers with this status and body, without executing the call.
    Answer(u16, String),
    /// Answers with 429 and this `Retry-After`, if any, without executing the call.
    Throttled(Option<Duration>),
    /// Breaks the connection, without executing the call.
    Lost,
    /// Executes the call and breaks the connection before the response.
    AnswerLost,
    /// Executes the call and answers with a body that cannot be parsed.
    Garbled,
    /// Answers with empty lists, and with `{}` for a single object.
    Empty,
    /// Never responds.
    Hanging,
}

impl FaultSpec {
    /// Applies the fault to all calls, for ever.
    pub fn always(fault: Fault) -> FaultSpec {
        FaultSpec { fault, part: None, method: None, template: None, after: 0, times: None }
    }

    /// Limits the fault to one service of the cloud, by the name in [`Operation::part`].
    pub fn of(mut self, part: impl Into<&'static str>) -> FaultSpec {
        self.part = Some(part.into());
        self
    }

    /// Limits the fault to one kind of call: the method, and its [`Operation::template`], as in `pools/{id}/members`.
    pub fn on(mut self, method: Method, template: &str) -> FaultSpec {
        (self.method, self.template) = (Some(method), Some(template.to_owned()));
        self
    }

    /// Skips this many matching calls.
    pub fn after(mut self, calls: u64) -> FaultSpec {
        self.after = calls;
        self
    }

    /// Applies the fault at most this many times.
    pub fn times(mut self, times: u64) -> FaultSpec {
        self.times = Some(times);
        self
    }

    fn matches(&self, method: &Method, operation: &Operation) -> bool {
        self.times != Some(0)
            && self.part.is_none_or(|part| part == operation.part)
            && self.method.as_ref().is_none_or(|wanted| wanted == method)
            && self.template.as_ref().is_none_or(|wanted| *wanted == operation.template)
    }

    /// Whether the fault applies to this matching call. Counts skipped calls and applications.
    fn applies(&mut self) -> bool {
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        self.times = self.times.map(|times| times.saturating_sub(1));
        true
    }
}

/// Active faults, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    injected: Vec<(u64, FaultSpec)>,
    last: u64,
}

/// Effect of all faults on one call.
#[derive(Debug, Default)]
pub(crate) struct FaultEffect {
    pub(crate) delay: Duration,
    pub(crate) fault: Option<Fault>,
}

impl Faults {
    pub(crate) fn inject(&mut self, spec: FaultSpec) -> u64 {
        self.last += 1;
        self.injected.push((self.last, spec));
        self.last
    }

    pub(crate) fn repair(&mut self, number: u64) {
        self.injected.retain(|(injected, _)| *injected != number);
    }

    pub(crate) fn repair_all(&mut self) {
        self.injected.clear();
    }

    /// Effect on this call: delays add up, and of the other faults the oldest wins.
    pub(crate) fn apply(&mut self, method: &Method, operation: &Operation) -> FaultEffect {
        let mut effect = FaultEffect::default();
        for (_, spec) in &mut self.injected {
            // Each fault counts the calls that it skips, also if another fault applies to them.
            if !spec.matches(method, operation) || effect.fault.is_some() && spec.after == 0 || !spec.applies() {
                continue;
            }
            match &spec.fault {
                Fault::Slow(delay) => effect.delay = effect.delay.saturating_add(*delay),
                fault => effect.fault = effect.fault.or_else(|| Some(fault.clone())),
            }
        }
        self.injected.retain(|(_, spec)| spec.times != Some(0));
        effect
    }
}
