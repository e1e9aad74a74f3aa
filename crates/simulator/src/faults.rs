//! Faults that a test injects.

use std::time::Duration;

use http::Method;

use crate::service::Operation;

/// A fault, the calls that it applies to, and how many times.
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
    /// It takes this much longer.
    Slow(Duration),
    /// This status with this body, and nothing is done.
    Answer(u16, String),
    /// 429, with this in Retry-After if given.
    Throttled(Option<Duration>),
    /// The connection breaks before anything is done.
    Lost,
    /// It is done, and the connection breaks before the answer.
    AnswerLost,
    /// It is done, and the answer makes no sense.
    Garbled,
    /// Lists are empty, and the answer about a single object is `{}`.
    Empty,
    /// There is never a response.
    Hanging,
}

impl FaultSpec {
    /// This fault, for all calls, for ever.
    pub fn always(fault: Fault) -> FaultSpec {
        FaultSpec { fault, part: None, method: None, template: None, after: 0, times: None }
    }

    /// For one service of the cloud only, by the name in [`Operation::part`].
    pub fn of(mut self, part: impl Into<&'static str>) -> FaultSpec {
        self.part = Some(part.into());
        self
    }

    /// For one kind of call only: the method, and its [`Operation::template`], as in `pools/{id}/members`.
    pub fn on(mut self, method: Method, template: &str) -> FaultSpec {
        (self.method, self.template) = (Some(method), Some(template.to_owned()));
        self
    }

    /// Only after this many such calls.
    pub fn after(mut self, calls: u64) -> FaultSpec {
        self.after = calls;
        self
    }

    /// This many times at most.
    pub fn times(mut self, times: u64) -> FaultSpec {
        self.times = Some(times);
        self
    }

    fn is_about(&self, method: &Method, operation: &Operation) -> bool {
        self.times != Some(0)
            && self.part.is_none_or(|part| part == operation.part)
            && self.method.as_ref().is_none_or(|wanted| wanted == method)
            && self.template.as_ref().is_none_or(|wanted| *wanted == operation.template)
    }

    /// Whether it strikes this call; it counts those that it lets pass, and those that it strikes.
    fn strikes(&mut self) -> bool {
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        self.times = self.times.map(|times| times.saturating_sub(1));
        true
    }
}

/// All faults in force, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    injected: Vec<(u64, FaultSpec)>,
    last: u64,
}

/// What becomes of one call.
#[derive(Debug, Default)]
pub(crate) struct Mishap {
    pub(crate) delay: Duration,
    pub(crate) ending: Option<Fault>,
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

    /// What becomes of this call: delays add up, and the oldest fault that ends it wins.
    pub(crate) fn strike(&mut self, method: &Method, operation: &Operation) -> Mishap {
        let mut mishap = Mishap::default();
        for (_, spec) in &mut self.injected {
            // Each counts the calls that it lets pass, whatever the others make of them.
            if !spec.is_about(method, operation) || mishap.ending.is_some() && spec.after == 0 || !spec.strikes() {
                continue;
            }
            match &spec.fault {
                Fault::Slow(delay) => mishap.delay = mishap.delay.saturating_add(*delay),
                fault => mishap.ending = mishap.ending.or_else(|| Some(fault.clone())),
            }
        }
        self.injected.retain(|(_, spec)| spec.times != Some(0));
        mishap
    }
}
