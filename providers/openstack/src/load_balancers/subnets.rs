//! Patterns of names and tags that select the subnets of floating IPs. Nothing here makes a call.
//!
//! ```text
//!  name:  ext-*   ext-{a,b}   ext-[0-9]   ~regular expression   !any of these, negated
//!  tags:  a,b any of them     &a,b all of them     !a,b none of them     !&a,b not all of them
//! ```

use regex::Regex;

use crate::api::network::Subnet;
use crate::config::FloatingSubnet;

/// Selects subnets by name and tags; both must match if both are set.
#[derive(Debug)]
pub(crate) struct SubnetPattern {
    name: Option<NamePattern>,
    tags: Option<TagPattern>,
}

/// An invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} of floating-subnet is invalid: {message}")]
pub(crate) struct PatternError {
    pattern: String,
    message: String,
}

#[derive(Debug)]
struct NamePattern {
    regex: Regex,
    negated: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct TagPattern {
    tags: Vec<String>,
    all: bool,
    negated: bool,
}

impl SubnetPattern {
    /// Parses the patterns; `None` if there is none, because a subnet is set by its ID or nothing is set.
    pub(crate) fn parse(written: &FloatingSubnet) -> Result<Option<SubnetPattern>, PatternError> {
        if !written.id.is_empty() || written.name.is_empty() && written.tags.is_empty() {
            return Ok(None);
        }
        let name = Some(&written.name).filter(|name| !name.is_empty()).map(|name| NamePattern::parse(name)).transpose();
        let tags = Some(&written.tags).filter(|tags| !tags.is_empty()).map(|tags| TagPattern::parse(tags));
        Ok(Some(SubnetPattern { name: name?, tags }))
    }

    /// Returns whether a floating IP may come from this subnet.
    pub(crate) fn matches(&self, subnet: &Subnet) -> bool {
        let by_name = self.name.as_ref().is_none_or(|pattern| pattern.matches(&subnet.name));
        by_name && self.tags.as_ref().is_none_or(|pattern| pattern.matches(&subnet.tags))
    }
}

impl NamePattern {
    fn parse(text: &str) -> Result<NamePattern, PatternError> {
        let (negated, positive) = stripped(text, '!');
        let expression = match positive.strip_prefix('~') {
            Some(expression) => expression.to_owned(),
            None => glob(positive),
        };
        let error = |error: regex::Error| PatternError { pattern: text.to_owned(), message: error.to_string() };
        Ok(NamePattern { regex: Regex::new(&expression).map_err(error)?, negated })
    }

    // upstream: the leftmost match must be the whole name: `~a|ab` does not match `ab`. An expression without a match matches the
    // empty name.
    fn matches(&self, name: &str) -> bool {
        let is_match = self.regex.find(name).map_or("", |found| found.as_str()) == name;
        is_match != self.negated
    }
}

impl TagPattern {
    fn parse(text: &str) -> TagPattern {
        let (negated, text) = stripped(text, '!');
        let (all, text) = stripped(text, '&');
        let separated = text.split(|c: char| c == ',' || c.is_whitespace());
        TagPattern { tags: separated.filter(|tag| !tag.is_empty()).map(str::to_owned).collect(), all, negated }
    }

    fn matches(&self, tags: &[String]) -> bool {
        let is_match = match self.all {
            true => self.tags.iter().all(|tag| tags.contains(tag)),
            false => self.tags.iter().any(|tag| tags.contains(tag)),
        };
        is_match != self.negated
    }
}

fn stripped(text: &str, mark: char) -> (bool, &str) {
    text.strip_prefix(mark).map_or((false, text), |rest| (true, rest))
}

/// Returns the regular expression of a glob. Characters without a special meaning match themselves.
fn glob(pattern: &str) -> String {
    let mut expression = "^".to_owned();
    let mut in_group = false;
    for c in pattern.chars() {
        match c {
            '*' => expression.push_str("[^/]*"),
            '?' => expression.push('.'),
            '[' | ']' | '-' => expression.push(c),
            '{' if !in_group => {
                in_group = true;
                expression.push_str("(?:");
            }
            '}' if in_group => {
                in_group = false;
                expression.push(')');
            }
            ',' if in_group => expression.push('|'),
            c => expression.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push('$');
    expression
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, tags: &str) -> FloatingSubnet {
        FloatingSubnet { id: String::new(), name: name.to_owned(), tags: tags.to_owned() }
    }

    fn is_match(written: &FloatingSubnet, name: &str, tags: &[&str]) -> bool {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        let subnet = Subnet { name: name.to_owned(), tags, ..Subnet::default() };
        SubnetPattern::parse(written).unwrap().unwrap().matches(&subnet)
    }

    #[test]
    fn names_match_a_glob_or_expression_as_a_whole() {
        let table = [
            ("ext-*", "ext-1", true),
            ("ext-*", "ext-", true),
            ("ext-*", "text-1", false),
            ("ext-*", "ext-a/b", false),
            ("ext", "ext", true),
            ("ext", "ext-1", false),
            ("ext-?", "ext-1", true),
            ("ext-?", "ext-", false),
            ("ext-{a,b}", "ext-b", true),
            ("ext-{a,b}", "ext-c", false),
            ("ext-[a-c]", "ext-b", true),
            ("ext-[a-c]", "ext-d", false),
            ("a.b", "axb", false),
            ("a,b", "a,b", true),
            ("a+(b)|c^$", "a+(b)|c^$", true),
            ("Ä*", "Äpfel", true),
            ("!ext-*", "ext-1", false),
            ("!ext-*", "int-1", true),
            ("~ext-[0-9]+", "ext-12", true),
            ("~ext-[0-9]+", "ext-12a", false),
            ("~ext-[0-9]+", "my-ext-12", false),
            ("~a|ab", "ab", false),
            ("~ab|a", "ab", true),
            ("!~ext-.*", "ext-1", false),
            ("!~ext-.*", "int-1", true),
            ("*", "", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(is_match(&spec(pattern, ""), name, &[]), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn tags_match_any_all_none_or_not_all() {
        let table: [(&str, &[&str], bool); 14] = [
            ("a,b", &["a"], true),
            ("a,b", &["c"], false),
            ("a b", &["b"], true),
            ("a, b,", &["b"], true),
            ("&a,b", &["a"], false),
            ("&a,b", &["b", "a", "c"], true),
            ("!a,b", &["c"], true),
            ("!a,b", &[], true),
            ("!a,b", &["a"], false),
            ("!a,b", &["a", "b"], false),
            ("!&a,b", &["a"], true),
            ("!&a,b", &["a", "b"], false),
            ("!&a,b", &[], true),
            ("&a,b", &[], false),
        ];
        for (pattern, tags, expected) in table {
            assert_eq!(is_match(&spec("", pattern), "x", tags), expected, "{pattern} {tags:?}");
        }
    }

    #[test]
    fn name_and_tags_must_both_match() {
        assert!(is_match(&spec("ext-*", "a"), "ext-1", &["a"]));
        assert!(!is_match(&spec("ext-*", "a"), "ext-1", &[]));
        assert!(!is_match(&spec("ext-*", "a"), "int-1", &["a"]));
    }

    #[test]
    fn an_id_excludes_patterns() {
        let by_id = FloatingSubnet { id: "s1".to_owned(), ..spec("~(", "a") };
        assert!(SubnetPattern::parse(&by_id).unwrap().is_none());
        assert!(SubnetPattern::parse(&FloatingSubnet::default()).unwrap().is_none());
    }

    #[test]
    fn an_invalid_pattern_is_an_error_that_quotes_it() {
        for pattern in ["~(", "!~[", "ext-[", "{a"] {
            let error = SubnetPattern::parse(&spec(pattern, "")).unwrap_err();
            assert!(error.to_string().contains(&format!("{pattern:?}")), "{error}");
        }
    }
}
