//! Rate limits in the headers of responses.

use std::time::{Duration, SystemTime};

use bowline_cloud::CallBudget;
use http::HeaderMap;

/// Reads `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, where the reset is a time in seconds since 1970. For
/// [`Api::budget`](super::Api::budget).
pub fn rate_limit_until_epoch(headers: &HeaderMap) -> Option<CallBudget> {
    let number = |name| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let (limit, remaining) = (number("ratelimit-limit")?, number("ratelimit-remaining")?);
    let reset = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(number("ratelimit-reset")?))?;
    let resets_in = reset.duration_since(SystemTime::now()).unwrap_or_default();
    Some(CallBudget { limit, remaining, resets_in })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(reset: &'static str) -> Option<CallBudget> {
        let headers = [("ratelimit-limit", "5000"), ("ratelimit-remaining", "17"), ("ratelimit-reset", reset)];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        rate_limit_until_epoch(&headers.into_iter().collect())
    }

    #[test]
    fn a_rate_limit_is_read_if_it_is_complete() {
        let reset = CallBudget { limit: 5000, remaining: 17, resets_in: Duration::ZERO };
        assert_eq!(read("1700000000"), Some(reset), "the time is in the past");
        assert!(read("99999999999").unwrap().resets_in > Duration::from_secs(3600));
        assert_eq!((read("soon"), rate_limit_until_epoch(&HeaderMap::new())), (None, None));
    }
}
