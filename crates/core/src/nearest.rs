//! Guessing what was meant by a name that nobody knows.

/// The known name that `name` is most likely a slip of, if there is one that near. Upper and lower case count as equal.
///
/// ```
/// assert_eq!(bowline_core::nearest("endpont", ["endpoint", "idPrefix"]), Some("endpoint"));
/// assert_eq!(bowline_core::nearest("colour", ["endpoint", "idPrefix"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = letters(name);
    let slips = |known: &'a str| (distance(&wanted, &letters(known)), known);
    // One slip in three letters. More, and every short name is near every other.
    let bound = (wanted.len() / 3).max(1);
    known.into_iter().map(slips).filter(|(slips, _)| *slips <= bound).min_by_key(|(slips, _)| *slips).map(|near| near.1)
}

fn letters(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).collect()
}

/// How many letters have to be put in, left out, replaced, or swapped with their neighbour.
fn distance(from: &[char], to: &[char]) -> usize {
    // Rows of the usual table: the one before the last, the last, and the one being filled.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut filling = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = at(&last, column) + usize::from(letter != other);
            let cost = replaced.min(at(&last, column + 1) + 1).min(at(&filling, column) + 1);
            let swapped =
                row > 0 && column > 0 && from.get(row - 1) == Some(other) && to.get(column - 1) == Some(letter);
            filling.push(if swapped { cost.min(at(&before, column - 1) + 1) } else { cost });
        }
        before = std::mem::replace(&mut last, filling);
    }
    at(&last, to.len())
}

/// A cell of a row; beyond its end nothing is near.
fn at(row: &[usize], column: usize) -> usize {
    row.get(column).copied().unwrap_or(usize::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_name_it_was_meant_to_be() {
        let known = ["local", "aws", "azure", "gce", "openstack", "--cloud-provider", "--cloud-config"];
        let cases = [
            ("locl", Some("local")),
            ("lcoal", Some("local")),
            ("Local", Some("local")),
            ("asw", Some("aws")),
            ("openstakc", Some("openstack")),
            ("--cloud-provder", Some("--cloud-provider")),
            ("--cloud-cofnig", Some("--cloud-config")),
            ("", None),
            ("harbour", None),
            ("x", None),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }

    #[test]
    fn the_nearest_of_several_wins_and_the_first_of_equals() {
        assert_eq!(nearest("zones", ["zone", "zones2", "zonez"]), Some("zone"));
        assert_eq!(nearest("zones", ["zonesabc", "zone"]), Some("zone"));
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        let cases =
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 1), ("ca", "abc", 3)];
        for (from, to, expected) in cases {
            assert_eq!(distance(&letters(from), &letters(to)), expected, "{from} {to}");
        }
    }
}
