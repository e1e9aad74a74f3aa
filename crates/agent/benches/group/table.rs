//! Output.

use crate::process::median;

/// Measurements of the agent and of the program that it is compared with.
#[derive(Default)]
pub(crate) struct Pair(pub(crate) [Vec<f64>; 2]);

impl Pair {
    pub(crate) fn add(&mut self, place: usize, value: f64) {
        if let Some(values) = self.0.get_mut(place) {
            values.push(value);
        }
    }

    pub(crate) fn print(self, name: &str) {
        let [ours, theirs] = self.0.map(median);
        let cell = |value: Option<f64>| value.map_or_else(|| "SKIPPED".to_owned(), |value| format!("{value:.1}"));
        let ratio = ours.zip(theirs).map_or_else(String::new, |(ours, theirs)| format!("{:.2}", ours / theirs));
        println!("{name:<48}{:>12}{:>12}{ratio:>9}", cell(ours), cell(theirs));
    }
}

pub(crate) fn heading(title: &str, other: &str) {
    println!("{title:<48}{:>12}{other:>12}{:>9}", "agent", "ratio");
}
