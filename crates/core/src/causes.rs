//! Error messages with their chain of causes.

use std::error::Error;

/// What separates a message from its cause.
const SEPARATOR: &str = ": ";

/// Formats an error with all its causes, which usually name the actual problem: `client error (Connect): tcp connect error: …`.
///
/// Many errors have their cause in their own message, and some only its last part. Every part is printed once.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = with_cause(text, &error.to_string());
        cause = error.source();
    }
    text
}

/// Appends a cause, without the parts that the text already has.
fn with_cause(text: String, cause: &str) -> String {
    if text.contains(cause) {
        return text;
    }
    let parts: Vec<&str> = text.split(SEPARATOR).collect();
    let cause: Vec<&str> = cause.split(SEPARATOR).collect();
    // "write failed: disk", "disk: full" ──► "write failed: disk: full"
    let overlaps = |count: &usize| parts.ends_with(cause.get(..*count).unwrap_or_default());
    if let Some(count) = (1..cause.len()).rev().find(overlaps) {
        return [parts.as_slice(), cause.get(count..).unwrap_or_default()].concat().join(SEPARATOR);
    }
    // "write failed: full", "disk: full" ──► "write failed: disk: full"
    let same = parts.iter().rev().zip(cause.iter().rev()).take_while(|(one, other)| one == other).count();
    let (head, tail) = parts.split_at(parts.len() - same);
    [head, cause.get(..cause.len() - same).unwrap_or_default(), tail].concat().join(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct TestError(&'static str, Option<Box<TestError>>);

    impl fmt::Display for TestError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for TestError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_cause_appears_once() {
        let refused = || Some(Box::new(TestError("connection refused", None)));
        assert_eq!(with_causes(&TestError("request failed", refused())), "request failed: connection refused");
        assert_eq!(
            with_causes(&TestError("request failed: connection refused", refused())),
            "request failed: connection refused"
        );
        assert_eq!(with_causes(&TestError("request failed", None)), "request failed");
    }

    #[test]
    fn parts_that_a_message_shares_with_its_cause_appear_once() {
        let cases = [
            ("write failed: full", "disk: full", "write failed: disk: full"),
            ("write failed: disk", "disk: full", "write failed: disk: full"),
            ("full", "disk: full", "disk: full"),
            ("write failed", "write failed: full", "write failed: full"),
            ("write failed", "full", "write failed: full"),
            ("write failed: disk: full", "disk", "write failed: disk: full"),
        ];
        for (message, cause, expected) in cases {
            let cause = TestError(cause, None);
            assert_eq!(with_causes(&TestError(message, Some(Box::new(cause)))), expected);
        }
    }
}
