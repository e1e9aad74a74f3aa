//! Error messages with their chain of causes.

use std::error::Error;

/// Formats an error with all its causes, which usually name the actual problem: `client error (Connect): tcp connect error: …`.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Some errors include their cause in their own message.
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
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
}
