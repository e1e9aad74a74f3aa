//! What was recorded under one name and is simulated under another: IDs, addresses, hosts.

use std::collections::BTreeMap;

use bowline_openstack_simulator::Service;

/// From a recorded name to ours.
#[derive(Default)]
pub(crate) struct Names {
    bound: BTreeMap<String, String>,
}

impl Names {
    /// The hosts of the services have names of their own in recordings.
    pub(crate) fn new() -> Names {
        let mut names = Names::default();
        for service in Service::ALL {
            let ours = format!("http://openstack.test/{}", service.kind());
            names.bind(&format!("http://{}.example", service.kind()), &ours);
        }
        names
    }

    pub(crate) fn bind(&mut self, recorded: &str, ours: &str) {
        if !recorded.is_empty() {
            self.bound.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned());
        }
    }

    /// Binds the two if they are of a kind that every cloud invents for itself.
    pub(crate) fn learn(&mut self, recorded: &str, ours: &str) {
        let alike = is_id(recorded) && is_id(ours) || is_address(recorded) && is_address(ours);
        if alike && !self.bound.contains_key(recorded) {
            self.bind(recorded, ours);
        }
    }

    pub(crate) fn is_bound(&self, recorded: &str) -> bool {
        self.bound.contains_key(recorded)
    }

    /// The text with our names in it. Longer names come first: one address may begin with another.
    pub(crate) fn ours(&self, text: &str) -> String {
        let mut bound: Vec<_> = self.bound.iter().filter(|(recorded, _)| text.contains(recorded.as_str())).collect();
        bound.sort_by_key(|(recorded, _)| std::cmp::Reverse(recorded.len()));
        // Through marks, so that what was replaced is not replaced again.
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

/// Every cloud has its own: an ID, an address.
pub(crate) fn is_invented(text: &str) -> bool {
    is_id(text) || is_address(text)
}

fn is_id(text: &str) -> bool {
    let digits = text.replace('-', "");
    digits.len() == 32 && digits.chars().all(|letter| letter.is_ascii_hexdigit())
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok() || text.starts_with("fa:16:3e:") && text.len() == 17
}
