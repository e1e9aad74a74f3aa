//! The regular expressions that servers are looked for with, as far as clients send them.
//!
//! Nova hands them to its database, which finds them anywhere in the name and, in MySQL, in either case.

/// A pattern: characters, `.`, each perhaps repeated with `*` or `+`, with or without anchors.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<(Part, Repeat)>,
    from_start: bool,
    to_end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Exactly(char),
    Anything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Once,
    Any,
    Some,
}

impl Pattern {
    /// `None` if it is none, or none of these.
    pub(super) fn read(text: &str) -> Option<Pattern> {
        let (from_start, rest) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let mut parts: Vec<(Part, Repeat)> = Vec::new();
        let mut letters = rest.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '$' if letters.peek().is_none() => return Some(Pattern { parts, from_start, to_end: true }),
                '*' => parts.last_mut()?.1 = Repeat::Any,
                '+' => parts.last_mut()?.1 = Repeat::Some,
                '.' => parts.push((Part::Anything, Repeat::Once)),
                '\\' => parts.push((Part::Exactly(letters.next()?.to_ascii_lowercase()), Repeat::Once)),
                '[' | ']' | '(' | ')' | '{' | '}' | '|' | '?' | '^' | '$' => return None,
                letter => parts.push((Part::Exactly(letter.to_ascii_lowercase()), Repeat::Once)),
            }
        }
        Some(Pattern { parts, from_start, to_end: false })
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.to_ascii_lowercase().chars().collect();
        let starts = if self.from_start { 0..1 } else { 0..name.len() + 1 };
        starts.into_iter().any(|start| name.get(start..).is_some_and(|rest| fits(&self.parts, self.to_end, rest)))
    }
}

fn fits(parts: &[(Part, Repeat)], to_end: bool, name: &[char]) -> bool {
    let Some(((part, repeat), rest)) = parts.split_first() else { return !to_end || name.is_empty() };
    let after_one = || name.split_first().filter(|(letter, _)| part.is(**letter)).map(|(_, after)| after);
    let once = || after_one().is_some_and(|after| fits(rest, to_end, after));
    let again = || after_one().is_some_and(|after| fits(parts, to_end, after));
    match repeat {
        Repeat::Once => once(),
        Repeat::Any => fits(rest, to_end, name) || again(),
        Repeat::Some => once() || again(),
    }
}

impl Part {
    fn is(self, letter: char) -> bool {
        match self {
            Part::Exactly(exactly) => exactly == letter,
            Part::Anything => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_the_database_finds_them() {
        for (pattern, name, found) in [
            ("^node-1$", "node-1", true),
            ("^NODE-1$", "node-1", true),
            ("^node-1$", "node-10", false),
            ("node", "my-node-1", true),
            ("^a\\.b$", "a.b", true),
            ("^a\\.b$", "axb", false),
            ("^a.b$", "axb", true),
            ("^a.*b$", "ab", true),
            ("^a.+b$", "ab", false),
            ("", "anything", true),
        ] {
            assert_eq!(Pattern::read(pattern).map(|read| read.matches(name)), Some(found), "{pattern} {name}");
        }
        assert_eq!(Pattern::read("["), None);
    }
}
