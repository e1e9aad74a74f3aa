//! The `Retry-After` header.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

/// Returns the delay of the `Retry-After` header, which is a number of seconds or a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            Some(at.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Duration> {
        retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]))
    }

    #[test]
    fn only_seconds_and_dates_are_accepted() {
        assert_eq!(read(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO), "in the past");
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        assert!(read(&soon).is_some_and(|pause| (88..=90).contains(&pause.as_secs())), "{soon}");
        for text in ["", "-1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
