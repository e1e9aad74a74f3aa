//! Suggestions for misspelled names.

/// Returns the known name that `name` most likely misspells, if one is close enough. Case is ignored.
///
/// ```
/// assert_eq!(bowline_core::nearest("endpont", ["endpoint", "idPrefix"]), Some("endpoint"));
/// assert_eq!(bowline_core::nearest("colour", ["endpoint", "idPrefix"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = letters(name);
    let with_distance = |known: &'a str| (distance(&given, &letters(known)), known);
    // One edit per three letters. With more, every short name would be close to every other.
    let bound = (given.len() / 3).max(1);
    let close = known.into_iter().map(with_distance).filter(|(edits, _)| *edits <= bound);
    close.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

fn letters(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).collect()
}

/// Returns the edit distance (optimal string alignment): insertions, deletions, replacements and swaps of neighbours.
fn distance(from: &[char], to: &[char]) -> usize {
    // Rows of the dynamic-programming table: the one before the last, the last, and the current one.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = at(&last, column) + usize::from(letter != other);
            let cost = replaced.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            let swapped =
                row > 0 && column > 0 && from.get(row - 1) == Some(other) && to.get(column - 1) == Some(letter);
            current.push(if swapped { cost.min(at(&before, column - 1) + 1) } else { cost });
        }
        before = std::mem::replace(&mut last, current);
    }
    at(&last, to.len())
}

/// Returns a cell of a row; a large distance beyond its end.
fn at(row: &[usize], column: usize) -> usize {
    row.get(column).copied().unwrap_or(usize::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_finds_the_intended_one() {
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
    fn the_closest_name_wins_and_of_equally_close_ones_the_first() {
        assert_eq!(nearest("zones", ["zone", "zones2", "zonez"]), Some("zone"));
        assert_eq!(nearest("zones", ["zonesabc", "zone"]), Some("zone"));
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn edit_distances_match_known_values() {
        let cases =
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 1), ("ca", "abc", 3)];
        for (from, to, expected) in cases {
            assert_eq!(distance(&letters(from), &letters(to)), expected, "{from} {to}");
        }
    }
}
