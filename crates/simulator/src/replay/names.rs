//! Recorded names and their simulated counterparts: IDs, addresses, hosts.

use std::collections::BTreeMap;

/// Map from recorded names to simulated names.
#[derive(Debug, Default)]
pub struct Names {
    bound: BTreeMap<String, String>,
}

impl Names {
    /// Binds a recorded name to a simulated one, unless it is already bound.
    pub fn bind(&mut self, recorded: &str, ours: &str) {
        if !recorded.is_empty() {
            self.bound.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned());
        }
    }

    /// Binds two names if both are IDs or both are addresses, which differ in every cloud.
    pub(crate) fn learn(&mut self, recorded: &str, ours: &str) {
        let alike = is_id(recorded) && is_id(ours) || is_address(recorded) && is_address(ours);
        if alike && !self.bound.contains_key(recorded) {
            self.bind(recorded, ours);
        }
    }

    /// Whether this recorded name has a simulated counterpart.
    pub fn is_bound(&self, recorded: &str) -> bool {
        self.bound.contains_key(recorded)
    }

    /// Text with recorded names replaced by simulated ones. Longer names come first: one address may begin with another.
    pub fn ours(&self, text: &str) -> String {
        let mut bound: Vec<_> = self.bound.iter().filter(|(recorded, _)| text.contains(recorded.as_str())).collect();
        bound.sort_by_key(|(recorded, _)| std::cmp::Reverse(recorded.len()));
        // Placeholders prevent a second replacement of replaced text.
        let mut text = text.to_owned();
        for (number, (recorded, _)) in bound.iter().enumerate() {
            text = text.replace(recorded.as_str(), &format!("\u{1}{number}\u{2}"));
        }
        for (number, (_, ours)) in bound.iter().enumerate() {
            text = text.replace(&format!("\u{1}{number}\u{2}"), ours);
        }
        text
    }
}

/// Whether the text is an ID or address, which differs in every cloud.
pub(crate) fn is_generated(text: &str) -> bool {
    is_id(text) || is_address(text)
}

fn is_id(text: &str) -> bool {
    let digits = text.replace('-', "");
    digits.len() == 32 && digits.chars().all(|letter| letter.is_ascii_hexdigit())
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok() || is_mac(text)
}

fn is_mac(text: &str) -> bool {
    text.len() == 17 && text.split(':').all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
}
