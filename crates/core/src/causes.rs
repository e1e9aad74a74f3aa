//! Errors for people.

use std::error::Error;

/// An error with what is behind it, which is where the word of use is: `client error (Connect): tcp connect error: …`.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some errors quote their cause themselves.
        if !text.contains(&said) {
            text = format!("{text}: {said}");
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
    struct Told(&'static str, Option<Box<Told>>);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_cause_is_told_once() {
        let refused = || Some(Box::new(Told("connection refused", None)));
        assert_eq!(with_causes(&Told("no answer", refused())), "no answer: connection refused");
        assert_eq!(with_causes(&Told("no answer: connection refused", refused())), "no answer: connection refused");
        assert_eq!(with_causes(&Told("no answer", None)), "no answer");
    }
}
