//! Provider IDs: which texts after `cloudlycke://` mean a machine, and which one Bowline writes. Pure (CL-13 to CL-22).
//!
//! A text is compared with these names of all machines, in this order, and the first kind of name that any machine has decides:
//!
//! 1. the ID that the configuration gives the machine,
//! 2. the convention of the demonstration: `m-cC-n` is `master-cC-n`, and `n-cC-n` is `node-cC-n`,
//! 3. the key in Vagrant's index, or a prefix of it with at least 7 digits,
//! 4. the ID of the hypervisor,
//! 5. the name of the machine.

/// Digits of the shortest prefix of an index key, the number that `vagrant global-status` prints.
const SHORTEST_PREFIX: usize = 7;

/// Digits of an index key.
const KEY_DIGITS: usize = 32;

/// Names of one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Name of the machine, which is the name of its Node.
    pub(crate) name: String,
    /// ID from the configuration.
    pub(crate) configured: Option<String>,
    /// Key in Vagrant's index, in lower case.
    pub(crate) key: Option<String>,
    /// ID of the hypervisor; a UUID in lower case.
    pub(crate) own: Option<String>,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Match {
    /// Index of the only machine.
    One(usize),
    /// No machine has this name.
    None,
    /// Indexes of several machines.
    Several(Vec<usize>),
}

impl Names {
    /// Returns the ID that Bowline writes, without the prefix.
    pub(crate) fn id(&self) -> String {
        let convention = || to_convention(&self.name);
        let own = || self.key.clone().or_else(|| self.own.clone());
        self.configured.clone().or_else(convention).or_else(own).unwrap_or_else(|| self.name.clone())
    }
}

/// Searches the machine of an ID, without the prefix.
pub(crate) fn by_id(id: &str, all: &[Names]) -> Match {
    let lower = id.to_ascii_lowercase();
    let by_convention = from_convention(id);
    let tests: [&dyn Fn(&Names) -> bool; 6] = [
        &|names| names.configured.as_deref() == Some(id),
        &|names| by_convention.as_deref() == Some(names.name.as_str()),
        &|names| names.key.as_deref() == Some(lower.as_str()),
        &|names| is_prefix(&lower) && names.key.as_ref().is_some_and(|key| key.starts_with(&lower)),
        &|names| names.own.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(id)),
        &|names| names.name == id,
    ];
    first_match(&tests, all)
}

/// Searches the machine with the name of a Node.
pub(crate) fn by_name(name: &str, all: &[Names]) -> Match {
    first_match(&[&|names: &Names| names.name == name], all)
}

/// Returns the machines of the first test that any machine passes.
fn first_match(tests: &[&dyn Fn(&Names) -> bool], all: &[Names]) -> Match {
    for test in tests {
        let found: Vec<_> = all.iter().enumerate().filter(|(_, names)| test(names)).map(|(index, _)| index).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Match::One(*one),
            _ => return Match::Several(found),
        }
    }
    Match::None
}

/// Returns an ID in the form in which IDs are compared: keys and UUIDs in lower case. `None` if no machine can have this ID.
pub(crate) fn normalized(id: &str) -> Option<String> {
    let is_valid = !id.is_empty() && !id.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control());
    let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let is_key = is_hex && id.len() == KEY_DIGITS && !id.contains('-') || is_uuid(id);
    is_valid.then(|| if is_key { id.to_ascii_lowercase() } else { id.to_owned() })
}

/// Returns whether the text is a UUID with dashes.
pub(crate) fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(is_hex)
}

/// Returns whether the text is a key in Vagrant's index.
pub(crate) fn is_key(text: &str) -> bool {
    text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_prefix(lower: &str) -> bool {
    (SHORTEST_PREFIX..KEY_DIGITS).contains(&lower.len()) && lower.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the ID of the demonstration for a machine name: `m-c2-1` for `master-c2-1`.
pub(crate) fn to_convention(name: &str) -> Option<String> {
    replaced(name, [("master-c", "m-c"), ("node-c", "n-c")])
}

/// Returns the machine name for an ID of the demonstration.
pub(crate) fn from_convention(id: &str) -> Option<String> {
    replaced(id, [("m-c", "master-c"), ("n-c", "node-c")])
}

/// Replaces the first word of a text of the form `WORD-cC-n`.
fn replaced(text: &str, words: [(&str, &str); 2]) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    words.into_iter().find_map(|(from, to)| {
        let rest = text.strip_prefix(from)?;
        let (cluster, number) = rest.split_once('-')?;
        (is_number(cluster) && is_number(number)).then(|| format!("{to}{rest}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "0123456f89abcdef0123456789abcdef";
    const UUID: &str = "8f2c1e07-0a4b-4a3e-9d1c-6b5a4f3e2d1c";

    fn machine(name: &str, configured: Option<&str>, key: Option<&str>, own: Option<&str>) -> Names {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Names { name: name.to_owned(), configured: text(configured), key: text(key), own: text(own) }
    }

    // CL-13 to CL-19: every kind of ID, in their order.
    #[test]
    fn an_id_is_matched_in_the_order_of_the_kinds() {
        let all = [
            machine("master-c2-1", None, Some(KEY), Some(UUID)),
            machine("node-c2-1", None, Some(OTHER), None),
            machine("m-c2-1", None, None, None),
            machine("web", Some("n-c2-1"), None, None),
            machine("db", None, None, Some("db-of-lxc")),
        ];
        let cases = [
            ("n-c2-1", Match::One(3)),
            ("m-c2-1", Match::One(0)),
            (KEY, Match::One(0)),
            ("0123456789ABCDEF0123456789ABCDEF", Match::One(0)),
            ("01234567", Match::One(0)),
            ("0123456f", Match::One(1)),
            ("0123456", Match::Several(vec![0, 1])),
            ("012345", Match::None),
            (UUID, Match::One(0)),
            ("8F2C1E07-0A4B-4A3E-9D1C-6B5A4F3E2D1C", Match::One(0)),
            ("db-of-lxc", Match::One(4)),
            ("master-c2-1", Match::One(0)),
            ("web", Match::One(3)),
            ("Web", Match::None),
            ("m-c3-1", Match::None),
            ("", Match::None),
        ];
        for (id, expected) in cases {
            assert_eq!(by_id(id, &all), expected, "{id}");
        }
    }

    // CL-16: the convention counts only if such a machine exists.
    #[test]
    fn a_machine_may_be_called_like_an_id_of_the_convention() {
        let all = [machine("m-c2-1", None, None, None), machine("node-c2-1", None, None, None)];
        assert_eq!(by_id("m-c2-1", &all), Match::One(0));
        assert_eq!(by_id("n-c2-1", &all), Match::One(1));
    }

    // CL-20: the ID that is written.
    #[test]
    fn the_written_id_is_the_configured_one_the_convention_or_the_key() {
        let cases = [
            (machine("master-c2-1", Some("x"), Some(KEY), Some(UUID)), "x"),
            (machine("master-c2-1", None, Some(KEY), Some(UUID)), "m-c2-1"),
            (machine("node-c2-13", None, Some(KEY), Some(UUID)), "n-c2-13"),
            (machine("node-c2", None, Some(KEY), Some(UUID)), KEY),
            (machine("web", None, None, Some(UUID)), UUID),
            (machine("web", None, None, None), "web"),
        ];
        for (names, expected) in cases {
            assert_eq!(names.id(), expected, "{names:?}");
            assert_eq!(by_id(expected, std::slice::from_ref(&names)), Match::One(0), "the written ID is recognised");
        }
    }

    #[test]
    fn the_convention_needs_numbers() {
        for (name, id) in [("master-c10-2", "m-c10-2"), ("node-c1-30", "n-c1-30")] {
            assert_eq!((to_convention(name).as_deref(), from_convention(id).as_deref()), (Some(id), Some(name)));
        }
        for name in ["master-c-1", "master-c1", "node-cx-1", "node-c1-", "node-c1-1a", "worker-c1-1", "node-c1-1-1"] {
            assert_eq!(to_convention(name), None, "{name}");
        }
    }

    #[test]
    fn two_machines_with_one_name_are_ambiguous() {
        let all = [machine("web", None, Some(KEY), None), machine("web", None, Some(OTHER), None)];
        assert_eq!(by_name("web", &all), Match::Several(vec![0, 1]));
        assert_eq!(by_id("web", &all), Match::Several(vec![0, 1]));
        assert_eq!(by_id(KEY, &all), Match::One(0));
    }

    // CL-21: an ID with a doubled prefix, or with blanks, is malformed.
    #[test]
    fn ids_are_normalized() {
        assert_eq!(normalized("0123456789ABCDEF0123456789ABCDEF").as_deref(), Some(KEY));
        assert_eq!(normalized("8F2C1E07-0A4B-4A3E-9D1C-6B5A4F3E2D1C").as_deref(), Some(UUID));
        assert_eq!(normalized("Web").as_deref(), Some("Web"));
        for id in ["", "cloudlycke://m-c2-1", "a b", "a/b", "a\n"] {
            assert_eq!(normalized(id), None, "{id:?}");
        }
    }
}
