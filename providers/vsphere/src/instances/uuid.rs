//! UUIDs of machines, in both byte orders.
//!
//! Firmware (SMBIOS 2.6 and later) shows the first three groups of the UUID in little-endian order. So the kubelet reports
//! another text than vCenter, unless the operating system is too old to know. Both forms mean the same machine.

/// Length of a UUID with hyphens.
const LENGTH: usize = 36;

/// UUID of a machine, whichever byte order it was written in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct MachineUuid {
    given: String,
    swapped: String,
}

impl MachineUuid {
    /// Parses a UUID; `None` if the text is none.
    pub(crate) fn parse(text: &str) -> Option<MachineUuid> {
        let given = text.trim().to_lowercase();
        let is_uuid = given.len() == LENGTH
            && given.bytes().enumerate().all(|(position, byte)| match position {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        is_uuid.then(|| MachineUuid { swapped: swap(&given), given })
    }

    /// Parses what the kubelet reports; of a longer text, only the first 36 characters count.
    pub(crate) fn of_system(text: &str) -> Option<MachineUuid> {
        let text = text.trim();
        MachineUuid::parse(text.get(..LENGTH).unwrap_or(text))
    }

    /// Returns the key that is the same for both byte orders.
    pub(crate) fn key(&self) -> &str {
        self.given.as_str().min(&self.swapped)
    }

    /// Returns the UUID as it was written, in lower case.
    pub(crate) fn given(&self) -> &str {
        &self.given
    }

    /// Returns both forms, the given one first; only one if they are equal.
    pub(crate) fn forms(&self) -> impl Iterator<Item = &str> {
        let swapped = Some(self.swapped.as_str()).filter(|swapped| *swapped != self.given);
        std::iter::once(self.given.as_str()).chain(swapped)
    }

    /// Returns whether a machine has this UUID.
    pub(crate) fn matches(&self, uuid: &str) -> bool {
        self.forms().any(|form| form.eq_ignore_ascii_case(uuid))
    }
}

/// Reverses the bytes of each of the first three groups.
fn swap(uuid: &str) -> String {
    let reversed = |group: &str| {
        let pairs: Vec<_> = group.as_bytes().chunks(2).rev().map(String::from_utf8_lossy).collect();
        pairs.concat()
    };
    let groups = uuid.split('-').enumerate();
    groups
        .map(|(index, group)| if index < 3 { reversed(group) } else { group.to_owned() })
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VS-48, VS-49
    #[test]
    fn both_byte_orders_are_one_machine() {
        let (kubelet, vcenter) = ("56492e42-22ad-3911-6d72-59cc8f26bc90", "422e4956-ad22-1139-6d72-59cc8f26bc90");
        let from = |text: &str| MachineUuid::parse(text).unwrap();
        assert_eq!(from(kubelet).forms().collect::<Vec<_>>(), [kubelet, vcenter]);
        assert_eq!(from(&vcenter.to_uppercase()).forms().collect::<Vec<_>>(), [vcenter, kubelet]);
        assert_eq!(from(kubelet).key(), from(vcenter).key());
        assert!(from(kubelet).matches(&vcenter.to_uppercase()) && from(kubelet).matches(kubelet));
        let twice = swap(&swap("42278c9d-79fb-f2af-b060-d7f167fa261c"));
        assert_eq!(twice, "42278c9d-79fb-f2af-b060-d7f167fa261c");
    }

    #[test]
    fn a_symmetric_uuid_has_one_form() {
        assert_eq!(MachineUuid::parse("00000000-0000-0000-0000-000000000001").unwrap().forms().count(), 1);
    }

    /// VS-50
    #[test]
    fn other_texts_are_no_uuids() {
        for text in [
            "",
            "vm-1",
            "422e4956-ad22-1139-6d72-59cc8f26bc9",
            "422e4956-ad22-1139-6d72-59cc8f26bc901",
            "422e4956aad22-1139-6d72-59cc8f26bc90",
            "g22e4956-ad22-1139-6d72-59cc8f26bc90",
            "é22e4956-ad22-1139-6d72-59cc8f26bc9",
        ] {
            assert_eq!(MachineUuid::parse(text), None, "{text}");
        }
        assert_eq!(MachineUuid::of_system("422e4956-ad22-1139-6d72-59cc8f26bc9"), None);
        assert!(MachineUuid::of_system(" 422e4956-ad22-1139-6d72-59cc8f26bc901").is_some(), "the first 36 count");
        assert!(MachineUuid::parse(" 422E4956-ad22-1139-6d72-59cc8f26bc90\n").is_some(), "blanks are trimmed");
    }
}
