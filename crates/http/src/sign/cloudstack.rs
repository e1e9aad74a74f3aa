//! Apache CloudStack: a query signed with HMAC-SHA1.

use bowline_config::Secret;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::canonical;

/// Every character except those that the server's encoder (Java's `URLEncoder`) leaves unchanged. The server encodes the received
/// values again before it compares signatures, so `*` must not be encoded and `~` must be.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*');

/// Keys of an account.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// API key. It is part of the URL, so URLs must not be logged.
    pub api_key: Secret,
    /// Secret key.
    pub secret_key: Secret,
}

/// Signed query, or form body, of a call: `parameters` (`command`, `response` and those of the command) and the ones that
/// sign them. With `expires`, the server refuses the request after that time; servers can be set to require it.
pub fn query<N: AsRef<str>, V: AsRef<str>>(
    parameters: &[(N, V)],
    credentials: &Credentials,
    expires: Option<Timestamp>,
) -> String {
    let expires = expires.map(|expires| expires.strftime("%Y-%m-%dT%H:%M:%S+0000").to_string());
    let mut all: Vec<_> = parameters.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
    all.push(("apiKey", credentials.api_key.reveal()));
    if let Some(expires) = &expires {
        all.extend([("signatureVersion", "3"), ("expires", expires)]);
    }
    all.sort_unstable();
    // Names are signed unencoded, and encoded only for sending.
    let signed = joined(&all, str::to_owned).to_ascii_lowercase();
    let signature = encode(&canonical::hmac_sha1(&credentials.secret_key, &signed));
    format!("{}&signature={signature}", joined(&all, encode))
}

fn joined(parameters: &[(&str, &str)], name_form: impl Fn(&str) -> String) -> String {
    let pairs = parameters.iter().map(|(name, value)| format!("{}={}", name_form(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(api_key: &str, secret_key: &str) -> Credentials {
        Credentials { api_key: api_key.into(), secret_key: secret_key.into() }
    }

    /// The example of CloudStack's developer guide.
    #[test]
    fn the_signature_matches_the_developer_guide() {
        let credentials = credentials(
            "plgWJfZK4gyS3mOMTVmjUVg-X-jlWlnfaUJ9GAbBbf9EdM-kAYMmAiLqzzq1ElZLYq_u38zCm0bewzGUdP66mg",
            "VDaACYb0LV9eNjTetIOElcVQkvJck_J_QljX_FcHRj87ZKiy0z0ty0ZsYBkoXkY9b7eq1EhwJaw7FF3akA3KBQ",
        );
        let signed = query(&[("response", "json"), ("command", "listUsers")], &credentials, None);
        let expected = "apiKey=plgWJfZK4gyS3mOMTVmjUVg-X-jlWlnfaUJ9GAbBbf9EdM-kAYMmAiLqzzq1ElZLYq_u38zCm0bewzGUdP66mg\
            &command=listUsers&response=json&signature=TTpdDq%2F7j%2FJ58XCRHomKoQXEQds%3D";
        assert_eq!(signed, expected);
    }

    /// Signatures of the tests of the client `cs` for Python.
    #[test]
    fn signatures_match_other_clients() {
        let list = [("command", "listVirtualMachines"), ("response", "json")];
        let accents = [list[0], list[1], ("listall", "1"), ("unicode_param", "éèààû")];
        let nested = [
            list[0],
            list[1],
            ("foo", "foo,bar"),
            ("bar[0].baz", "blah"),
            ("bar[0].foo", "1000"),
            ("bytes_param", "blah"),
        ];
        let signed = query(&accents, &credentials("foo", "bar"), None);
        assert!(signed.ends_with("&signature=gABU%2FKFJKD3FLAgKDuxQoryu4sA%3D"), "{signed}");
        let signed = query(&nested, &credentials("foo", "bar"), None);
        assert!(signed.ends_with("&signature=ImJ%2F5F0P2RDL7yn4LdLnGcEx5WE%3D"), "{signed}");
        assert!(signed.contains("&bar%5B0%5D.foo=1000&"), "{signed}");
    }

    #[test]
    fn values_are_encoded_like_the_server() {
        let signed = query(&[("a", "x y+z*~/")], &credentials("foo", "bar"), None);
        assert!(signed.starts_with("a=x%20y%2Bz*%7E%2F&"), "{signed}");
    }

    #[test]
    fn the_expiry_is_signed() {
        let at =
            |time: &str| query(&[("command", "listZones")], &credentials("foo", "bar"), Some(time.parse().unwrap()));
        let signed = at("2026-01-02T03:04:05Z");
        let start = "apiKey=foo&command=listZones&expires=2026-01-02T03%3A04%3A05%2B0000&signatureVersion=3&signature=";
        assert!(signed.starts_with(start), "{signed}");
        assert_ne!(signed.rsplit_once('=').unwrap().1, at("2026-01-02T03:04:06Z").rsplit_once('=').unwrap().1);
    }
}
