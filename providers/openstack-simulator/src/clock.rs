//! Time and identifiers, both repeatable.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tokio's time, told as a date: a test that turns it turns the dates, too.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    began: Instant,
    date: Timestamp,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { began: Instant::now(), date: Timestamp::now() }
    }

    /// The date after this long from now.
    pub(crate) fn date_in(&self, ahead: Duration) -> Timestamp {
        let passed = self.began.elapsed().saturating_add(ahead);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        self.date.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// As Neutron and Nova write it.
    pub(crate) fn with_zone(&self) -> String {
        self.date_in(Duration::ZERO).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// As Octavia writes it.
    pub(crate) fn without_zone(&self) -> String {
        self.date_in(Duration::ZERO).strftime("%Y-%m-%dT%H:%M:%S").to_string()
    }

    /// As Keystone writes it.
    pub(crate) fn with_micros(&self, ahead: Duration) -> String {
        self.date_in(ahead).strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
    }
}

/// Identifiers that look as if they were drawn at random, and are the same in every run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    last: u64,
}

impl Ids {
    /// The next one, with dashes, as all services but Keystone write them.
    pub(crate) fn uuid(&mut self) -> String {
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

    /// The next one, without dashes, as Keystone writes them.
    pub(crate) fn hex(&mut self) -> String {
        self.uuid().replace('-', "")
    }

    /// The one that something of this name has in every cloud.
    pub(crate) fn of(name: &str) -> String {
        let seed = name.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
        Ids { last: seed }.hex()
    }

    /// The next address of a network card.
    pub(crate) fn mac(&mut self) -> String {
        let [.., a, b, c] = self.draw().to_be_bytes();
        format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}")
    }

    /// A counter, well stirred (SplitMix64): neighbours sort in no order that anybody could rely on.
    fn draw(&mut self) -> u64 {
        self.last = self.last.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.last;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
