//! Pages of the tour on a terminal, as text.
//!
//! ```text
//!  opening   title, description, commands      stays
//!  live      checks, log, keys                 replaced while the step runs
//!  closing   checks, result, more commands     stays
//! ```
//!
//! Pure: nothing here reads the terminal or writes to it.

use std::time::Duration;

use bowline_playground::{Step, StepState};

use super::setup::Setup;
use super::style::{Role, Style};

/// Indentation of text and of commands.
const TEXT: usize = 2;
const COMMAND: usize = 4;

/// Number of live lines that are not checks.
const OTHER_LINES: usize = 3;

/// A step and its place in the tour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) number: usize,
    pub(super) of: usize,
    pub(super) step: &'a Step,
}

/// Progress of a step.
#[derive(Debug, Clone)]
pub(super) struct Progress<'a> {
    pub(super) state: &'a StepState,
    /// For each check whether it holds.
    pub(super) checks: &'a [bool],
    /// Time since the action.
    pub(super) elapsed: Duration,
    /// Number of log lines, and the most recent message.
    pub(super) log: (usize, Option<String>),
}

impl Page<'_> {
    /// Returns title, description and the commands that perform the step.
    pub(super) fn opening(&self, style: Style) -> String {
        let title = format!("[{}/{}] {}", self.number, self.of, self.step.title);
        let mut text = format!("\n{}\n\n", style.paint(Role::Title, &title));
        text += &paragraph(&self.step.description, style);
        if !self.step.commands.is_empty() {
            text += "\n  Run this in another terminal, or press Enter and the playground does the same:\n\n";
            text += &commands(&self.step.commands, style);
        }
        text + "\n"
    }

    /// Returns the live lines: each fits on one line of the terminal.
    pub(super) fn live(&self, progress: &Progress<'_>, style: Style) -> Vec<String> {
        let prompt = style.paint(Role::Title, &style.cut(&self.prompt(progress, style), 0));
        if !style.in_place {
            return vec![prompt];
        }
        let has_ended = matches!(progress.state, StepState::Passed(_) | StepState::Failed(_));
        let mut lines = if has_ended { Vec::new() } else { self.live_checks(progress.checks, style) };
        if !has_ended {
            lines.push(String::new());
        }
        lines.push(log_line(&progress.log, style));
        lines.push(prompt);
        lines
    }

    /// Returns the result, and the commands that show the effects.
    pub(super) fn closing(&self, progress: &Progress<'_>, views: &[String], style: Style) -> String {
        let mut text = String::new();
        for (assertion, passed) in self.step.assertions.iter().zip(progress.checks) {
            let lines = style.wrap(&assertion.to_string(), COMMAND + 1);
            text += &format!("  {}{}\n", padded_mark(*passed, style), lines.join("\n").trim_start());
        }
        match progress.state {
            StepState::Passed(took) => {
                let result = format!("Passed after {:.1} s.", took.as_secs_f64());
                text += &format!("  {}\n", style.paint(Role::Passed, &result));
                text += "\n  See the result in another terminal:\n\n";
                text += &commands(views, style);
            }
            StepState::Failed(reason) => {
                let lines = style.wrap(&format!("Failed: {reason}"), TEXT);
                text.extend(lines.iter().map(|line| style.paint(Role::Failed, line) + "\n"));
            }
            StepState::Waiting | StepState::Running => {}
        }
        text + "\n"
    }

    /// Returns a line for each check; fewer if they do not fit on the screen.
    fn live_checks(&self, checks: &[bool], style: Style) -> Vec<String> {
        let all: Vec<_> = self.step.assertions.iter().zip(checks).collect();
        let line = |(assertion, passed): &(&_, &bool)| {
            let assertion: &bowline_playground::Assertion = assertion;
            format!("  {}{}", padded_mark(**passed, style), style.cut(&assertion.to_string(), COMMAND + 1))
        };
        let space = style.rows.saturating_sub(OTHER_LINES + 1);
        if all.len() <= space {
            return all.iter().map(line).collect();
        }
        let passed = all.iter().filter(|(_, passed)| **passed).count();
        let summary = format!("  {passed} of {} checks hold", all.len());
        let pending = all.iter().filter(|(_, passed)| !**passed).take(space.saturating_sub(1));
        std::iter::once(summary).chain(pending.map(line)).collect()
    }

    /// Returns what happens, and what the keys do.
    fn prompt(&self, progress: &Progress<'_>, style: Style) -> String {
        let action = match progress.state {
            StepState::Waiting if self.step.commands.is_empty() => "Enter: start this step".to_owned(),
            StepState::Waiting => "Enter: perform this step".to_owned(),
            StepState::Running if style.in_place => format!("Checking, {:.0} s", progress.elapsed.as_secs_f64()),
            StepState::Running => "Checking".to_owned(),
            StepState::Passed(_) if self.number == self.of => "Enter: what to try next".to_owned(),
            StepState::Passed(_) => "Enter: next step".to_owned(),
            StepState::Failed(_) => "Enter: try again   S: skip".to_owned(),
        };
        format!("{action}   L: log   Q: quit")
    }
}

/// Returns the introduction to the tour.
pub(super) fn welcome(setup: &Setup, style: Style) -> String {
    let mut text = paragraph(
        "The API, the controllers, the load balancers and their traffic are real. The kubelets and the scheduler are simulated; no \
         containers run, the Nodes answer for them. Nothing is kept when you stop the playground.",
        style,
    );
    text += "\n  To run commands yourself, prepare another terminal:\n\n";
    text += &commands(&setup.commands(), style);
    if let Some(hint) = setup.hint() {
        text += "\n";
        text += &paragraph(&hint, style);
    }
    text
}

/// Returns what to do after the tour.
pub(super) fn what_next(style: Style) -> String {
    let suggestions = [
        ("Expose a Service of your own:", "bowline playground example"),
        ("Make the cloud fail, and watch the Nodes and Events:", "bowline cloud fault throttled=5s"),
        ("Start with more machines:", "bowline playground --nodes 100"),
        ("Check a cluster of yours, without changing anything:", "bowline check --help"),
    ];
    let mut text = format!("\n{}\n\n", style.paint(Role::Title, "That was the tour. What to try next"));
    for (what, command) in suggestions {
        text += &paragraph(what, style);
        text += &commands(&[command.to_owned()], style);
    }
    let pages = "The documentation is in the folder docs of the sources: docs/tutorials/playground.md has more experiments, \
                 docs/guides/install.md is about real clusters.";
    text + "\n" + &paragraph(pages, style) + "\n"
}

/// Returns the live lines after the tour.
pub(super) fn idle(log: &(usize, Option<String>), style: Style) -> Vec<String> {
    let prompt = style.paint(Role::Title, "The playground keeps running.   L: log   Q: quit");
    if style.in_place { vec![log_line(log, style), prompt] } else { vec![prompt] }
}

/// Returns log lines, each in full.
pub(super) fn log_lines(lines: &[String], style: Style) -> String {
    let safe = |line: &String| line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    lines.iter().map(|line| style.paint(Role::Secondary, &safe(line)) + "\n").collect()
}

fn log_line((count, latest): &(usize, Option<String>), style: Style) -> String {
    let text = match latest {
        Some(latest) if *count == 1 => format!("log (1 line): {latest}"),
        Some(latest) => format!("log ({count} lines): {latest}"),
        None => "log (empty)".to_owned(),
    };
    format!("  {}", style.paint(Role::Secondary, &style.cut(&text, TEXT)))
}

fn paragraph(text: &str, style: Style) -> String {
    style.wrap(text, TEXT).iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the commands, each on one line: a line break would be part of the command.
fn commands(commands: &[String], style: Style) -> String {
    let line = |command: &String| format!("{:COMMAND$}{}\n", "", style.paint(Role::Command, command));
    commands.iter().map(line).collect()
}

/// Returns the mark of a check and the space behind it: three columns.
fn padded_mark(passed: bool, style: Style) -> String {
    format!("{}{}", mark(passed, style), if style.unicode { "  " } else { " " })
}

fn mark(passed: bool, style: Style) -> String {
    match (passed, style.unicode) {
        (true, true) => style.paint(Role::Passed, "✓"),
        (true, false) => style.paint(Role::Passed, "ok"),
        (false, true) => "·".to_owned(),
        (false, false) => "..".to_owned(),
    }
}

#[cfg(test)]
mod tests;
