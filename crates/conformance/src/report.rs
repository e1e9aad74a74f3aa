//! Report of a run: the outcome of each case, and all violations.

use std::fmt;

use bowline_cloud::Capabilities;

use crate::capability::{Capability, Group, Need};
use crate::cases::{Case, cases};

/// Outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider follows the rule.
    Passed,
    /// The provider violates the rule, with the reason.
    Failed(String),
    /// The provider does not claim the capability that the rule is about.
    Skipped(Need),
    /// The bench cannot set up what the case tests.
    BenchCannot(String),
    /// The provider or its cloud has nothing that the rule applies to: no background loops, no Secrets, no started operations.
    NotApplicable(&'static str),
}

/// Outcomes of all cases.
#[derive(Debug, Clone)]
pub struct Report {
    provider: String,
    capabilities: Capabilities,
    outcomes: Vec<(&'static str, Outcome)>,
}

/// A reason why a [`Report`] does not show conformance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A case failed.
    Failed(&'static str, String),
    /// A case was skipped although the capabilities require it, or ran although they exclude it.
    WrongSkip(&'static str),
    /// A capability is claimed and no case for it ran.
    Unproven(Capability),
    /// The bench cannot set up what a case tests. Acceptable on a real account, where faults cannot be injected.
    BenchCannot(&'static str, String),
}

impl Report {
    pub(crate) fn new(provider: String, capabilities: Capabilities, outcomes: Vec<(&'static str, Outcome)>) -> Report {
        Report { provider, capabilities, outcomes }
    }

    /// Outcome of each case, by name.
    pub fn outcomes(&self) -> &[(&'static str, Outcome)] {
        &self.outcomes
    }

    /// Outcome of the case with this name.
    pub fn outcome(&self, case: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|(name, _)| *name == case).map(|(_, outcome)| outcome)
    }

    /// Failed cases.
    pub fn failed(&self) -> Vec<&'static str> {
        self.named(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Cases that were skipped for lack of a capability, within the groups that the provider claims.
    pub fn skipped(&self) -> Vec<&'static str> {
        self.named(|outcome| matches!(outcome, Outcome::Skipped(need) if need.group().is_claimed(&self.capabilities)))
    }

    /// Cases that are not applicable, because the provider or its cloud has nothing that they test.
    pub fn not_applicable(&self) -> Vec<&'static str> {
        self.named(|outcome| matches!(outcome, Outcome::NotApplicable(_)))
    }

    /// Groups that the provider does not claim, each with the number of its cases.
    pub fn absent(&self) -> Vec<(Group, usize)> {
        let count = |group| self.named(|outcome| matches!(outcome, Outcome::Skipped(need) if need.group() == group));
        let absent = Group::ALL.into_iter().filter(|group| !group.is_claimed(&self.capabilities));
        absent.map(|group| (group, count(group).len())).collect()
    }

    /// All violations; empty if the provider conforms.
    pub fn violations(&self) -> Vec<Violation> {
        let failures = self.outcomes.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(why) => Some(Violation::Failed(name, why.clone())),
            Outcome::BenchCannot(what) => Some(Violation::BenchCannot(name, what.clone())),
            Outcome::Passed | Outcome::Skipped(_) | Outcome::NotApplicable(_) => None,
        });
        failures.chain(self.wrong_skips()).chain(self.unproven()).collect()
    }

    fn wrong_skips(&self) -> impl Iterator<Item = Violation> {
        let wrong = |case: &&Case| {
            let wanted = case.unmet(&self.capabilities).is_some();
            wanted != matches!(self.outcome(case.name), Some(Outcome::Skipped(_)))
        };
        cases().iter().filter(wrong).map(|case| Violation::WrongSkip(case.name))
    }

    fn unproven(&self) -> impl Iterator<Item = Violation> {
        let claimed = Capability::ALL.iter().copied().filter(|capability| capability.is_claimed(&self.capabilities));
        claimed.filter(|capability| !self.is_proven(*capability)).map(Violation::Unproven)
    }

    fn is_proven(&self, capability: Capability) -> bool {
        let ran = |case: &Case| matches!(self.outcome(case.name), Some(Outcome::Passed | Outcome::Failed(_)));
        cases().iter().any(|case| case.needs.contains(&Need::Has(capability)) && ran(case))
    }

    fn named(&self, wanted: impl Fn(&Outcome) -> bool) -> Vec<&'static str> {
        self.outcomes.iter().filter(|(_, outcome)| wanted(outcome)).map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Failed(why) => write!(f, "FAILED: {why}"),
            Outcome::Skipped(need) => write!(f, "skipped: {need}"),
            Outcome::BenchCannot(what) => write!(f, "not tested: the bench cannot {what}"),
            Outcome::NotApplicable(why) => write!(f, "skipped: {why}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}", self.provider)?;
        let width = self.outcomes.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let absent = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(need) if !need.group().is_claimed(&self.capabilities));
        for (name, outcome) in self.outcomes.iter().filter(|(_, outcome)| !absent(outcome)) {
            writeln!(f, "  {name:width$}  {outcome}")?;
        }
        for (group, cases) in self.absent() {
            writeln!(f, "  no {group}: {cases} cases skipped")?;
        }
        let passed = self.named(|outcome| *outcome == Outcome::Passed).len();
        let (failed, skipped) = (self.failed().len(), self.skipped().len() + self.not_applicable().len());
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Failed(case, why) => write!(f, "{case} failed: {why}"),
            Violation::WrongSkip(case) => write!(f, "{case} was skipped or run contrary to the capabilities"),
            Violation::Unproven(capability) => write!(f, "{capability} is claimed, but no case for it ran"),
            Violation::BenchCannot(case, what) => write!(f, "{case} was not tested: the bench cannot {what}"),
        }
    }
}
