//! Reproducible time and identifiers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall clock that follows tokio's time: a test that advances tokio's time advances the dates, too.
#[derive(Debug, Clone)]
pub struct Clock {
    began: Instant,
    date: Timestamp,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl Clock {
    /// Starts at the current date.
    pub fn new() -> Clock {
        Clock { began: Instant::now(), date: Timestamp::now() }
    }

    /// Date after this duration from now.
    pub fn date_in(&self, ahead: Duration) -> Timestamp {
        let passed = self.began.elapsed().saturating_add(ahead);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        self.date.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// Current date in this `strftime` format.
    pub fn format(&self, format: &str) -> String {
        self.date_in(Duration::ZERO).strftime(format).to_string()
    }
}

/// Generator of identifiers that look random and are the same in every run.
#[derive(Debug, Clone, Default)]
pub struct Ids {
    last: u64,
}

impl Ids {
    /// Next ID, as a UUID.
    pub fn uuid(&mut self) -> String {
        let (high, low) = (self.draw(), self.draw());
        let low_parts = (low >> 48, low & 0xffff_ffff_ffff);
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low_parts.0 & 0x3fff),
            low_parts.1
        )
    }

    /// Next ID, as a UUID without dashes.
    pub fn hex(&mut self) -> String {
        self.uuid().replace('-', "")
    }

    /// ID derived from this name, the same in every cloud, as a UUID without dashes.
    pub fn of(name: &str) -> String {
        let seed = name.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
        Ids { last: seed }.hex()
    }

    /// Next MAC address.
    pub fn mac(&mut self) -> String {
        let [.., a, b, c] = self.draw().to_be_bytes();
        format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}")
    }

    /// Next pseudo-random number (SplitMix64), so that sorting by ID does not sort by creation.
    fn draw(&mut self) -> u64 {
        self.last = self.last.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.last;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
