//! User agent of a manager.

use bowline_config::ConfigError;
use http::HeaderValue;

/// Returns the header `User-Agent`: the values of `--user-agent`, the last first, then the program.
// upstream: the Go managers prepend each value.
pub fn user_agent(flags: &[String], program: &str) -> Result<HeaderValue, ConfigError> {
    let agent = flags.iter().rev().map(String::as_str).chain([program]).collect::<Vec<_>>().join(" ");
    HeaderValue::try_from(agent).map_err(|_| {
        ConfigError::flag("user-agent", "it contains characters that are invalid in a header")
            .hint("remove control characters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_flag_comes_first_and_the_program_last() {
        let flags = ["a", "b"].map(str::to_owned);
        assert_eq!(user_agent(&flags, "acme/1 bowline/2").unwrap(), "b a acme/1 bowline/2");
        let error = user_agent(&["a\n".to_owned()], "acme").unwrap_err();
        assert_eq!(error.field.as_deref(), Some("--user-agent"));
    }
}
