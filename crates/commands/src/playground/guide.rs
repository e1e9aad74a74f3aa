//! The tour on a terminal: one step at a time.
//!
//! ```text
//!  keys, signals ──┐
//!  observations  ──┼──► StepRun ──► Page ──► Screen ──► terminal
//!  log           ──┘
//! ```

use bowline_playground::{Environment, PlaygroundError, StepRun, StepState, Tour};

use super::keys::{self, Key};
use super::log::FoldedLog;
use super::page::{self, Page, Progress};
use super::screen::Screen;
use super::setup::Setup;
use super::style::Style;
use crate::output::say;
use crate::terminal::Terminal;

/// Interval at which the log line is updated after the tour.
const LOG_INTERVAL: std::time::Duration = std::time::Duration::from_millis(200);

/// The terminal and what it shows.
pub(super) struct Guide {
    terminal: Terminal,
    screen: Screen,
    style: Style,
    log: FoldedLog,
    /// Log lines are printed.
    shows_log: bool,
    /// Number of log lines that are printed, or were before the log was shown.
    printed: usize,
    /// Text to print with the next frame.
    pending: String,
}

/// The tour goes on, or the user ended it.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Quit,
}

impl Guide {
    /// Sets the modes of the terminal, until the guide is dropped.
    pub(super) fn new(log: FoldedLog, shows_log: bool) -> std::io::Result<Guide> {
        let style = Style::of_terminal();
        let screen = Screen::new(style.in_place);
        Ok(Guide { terminal: Terminal::open()?, screen, style, log, shows_log, printed: 0, pending: String::new() })
    }

    /// Shows all steps, and then waits until the user ends the playground.
    pub(super) async fn run(
        &mut self,
        tour: &Tour,
        setup: &Setup,
        environment: &mut impl Environment,
    ) -> Result<(), PlaygroundError> {
        self.pending += "\n";
        self.pending += &page::welcome(setup, self.style);
        let of = tour.steps().len();
        for (number, step) in (1..).zip(tour.steps()) {
            if self.step(&Page { number, of, step }, environment).await? == Flow::Quit {
                return Ok(());
            }
        }
        self.pending += &page::what_next(self.style);
        self.idle(environment).await
    }

    /// Removes the live lines, so that the prompt of the shell follows the text.
    pub(super) fn finish(mut self) {
        self.draw(Vec::new());
    }

    async fn step(&mut self, page: &Page<'_>, environment: &mut impl Environment) -> Result<Flow, PlaygroundError> {
        let mut run = StepRun::new(page.step);
        self.pending += &page.opening(self.style);
        if page.step.action.is_automatic() {
            run.perform(environment).await;
        }
        let mut is_closed = false;
        loop {
            if run.has_ended() && !is_closed {
                self.pending += &page.closing(&progress(&run, &self.log), &run.views(), self.style);
                is_closed = true;
            }
            self.draw(page.live(&progress(&run, &self.log), self.style));
            let input = tokio::select! {
                input = keys::next(&mut self.terminal) => Some(input),
                error = environment.failure() => return Err(error),
                () = tokio::time::sleep(run.pause()) => None,
            };
            match (input, run.state()) {
                (None, _) => run.observe(environment).await,
                (Some(Key::Quit), _) => return Ok(Flow::Quit),
                (Some(Key::Enter), StepState::Waiting) => run.perform(environment).await,
                (Some(Key::Enter), StepState::Passed(_)) | (Some(Key::Skip), StepState::Failed(_)) => {
                    return Ok(Flow::Next);
                }
                (Some(Key::Enter), StepState::Failed(_)) => (run, is_closed) = (StepRun::new(page.step), false),
                (Some(Key::Redraw), _) => {
                    self.restart();
                    self.pending += &page.opening(self.style);
                    is_closed = false;
                }
                (Some(Key::Log), _) => self.toggle_log(),
                (Some(Key::Enter | Key::Skip), _) => {}
            }
        }
    }

    async fn idle(&mut self, environment: &mut impl Environment) -> Result<(), PlaygroundError> {
        loop {
            self.draw(page::idle(&summary(&self.log), self.style));
            tokio::select! {
                input = keys::next(&mut self.terminal) => match input {
                    Key::Quit => return Ok(()),
                    Key::Log => self.toggle_log(),
                    Key::Redraw => {
                        self.restart();
                        self.pending += &page::what_next(self.style);
                    }
                    Key::Enter | Key::Skip => {}
                },
                error = environment.failure() => return Err(error),
                () = tokio::time::sleep(LOG_INTERVAL) => {}
            }
        }
    }

    /// Shows the log from its start, or no longer.
    fn toggle_log(&mut self) {
        self.shows_log = !self.shows_log;
    }

    /// Starts with an empty screen of the current size.
    fn restart(&mut self) {
        self.style = Style::of_terminal();
        self.pending = self.screen.restart().to_owned();
    }

    /// Prints the text since the last frame, and the live lines.
    fn draw(&mut self, live: Vec<String>) {
        if self.shows_log {
            let lines = self.log.after(self.printed);
            self.printed = self.log.total();
            self.pending += &page::log_lines(&lines, self.style);
        }
        let bytes = self.screen.update(&std::mem::take(&mut self.pending), live);
        if !bytes.is_empty() {
            say(format_args!("{bytes}"));
        }
    }
}

fn summary(log: &FoldedLog) -> (usize, Option<String>) {
    (log.total(), log.headline())
}

fn progress<'a>(run: &'a StepRun<'_>, log: &FoldedLog) -> Progress<'a> {
    Progress { state: run.state(), checks: run.checks(), elapsed: run.elapsed(), log: summary(log) }
}
