//! Through whom to go, as Go reads it from the environment.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_config::Environment;
use http::{HeaderValue, Uri};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;

use crate::connect::port;

/// Which requests go through which proxy. The default is none at all.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    exceptions: Vec<Exception>,
}

/// What is written as a proxy is none. The text does not quote it: there may be a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} in the environment is no proxy: {why}; write http://HOST:PORT")]
pub struct BadProxy {
    /// Where it stands.
    pub variable: &'static str,
    why: String,
}

/// One proxy.
#[derive(Clone)]
pub(crate) struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

/// Who is asked without a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exception {
    Everybody,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    Domain {
        /// With a dot in front.
        suffix: String,
        /// The name itself counts, and not only what is below it.
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    /// What the environment says: `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, each in lower case too.
    pub fn from_environment(environment: &Environment) -> Result<Proxies, BadProxy> {
        let read = |upper: &'static str, lower: &'static str| {
            let found = [upper, lower].into_iter().find_map(|name| Some((name, environment.get(name)?)));
            found.map(|(name, text)| Proxy::parse(text).map_err(|why| BadProxy { variable: name, why })).transpose()
        };
        // upstream: in a CGI script HTTP_PROXY is what a client has sent as the header Proxy.
        let is_cgi = environment.get("REQUEST_METHOD").is_some();
        let exceptions = environment.get("NO_PROXY").or_else(|| environment.get("no_proxy")).unwrap_or_default();
        Ok(Proxies {
            http: if is_cgi { None } else { read("HTTP_PROXY", "http_proxy")? },
            https: read("HTTPS_PROXY", "https_proxy")?,
            exceptions: exceptions.split(',').filter_map(Exception::parse).collect(),
        })
    }

    /// Through whom this goes, if through anybody.
    pub(crate) fn of(&self, uri: &Uri) -> Option<&Proxy> {
        let proxy = if uri.scheme_str() == Some("https") { self.https.as_ref() } else { self.http.as_ref() };
        proxy.filter(|_| !self.is_direct(uri))
    }

    /// Whether this is asked without a proxy. What is on this machine always is.
    fn is_direct(&self, uri: &Uri) -> bool {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback()) {
            return true;
        }
        self.exceptions.iter().any(|exception| exception.covers(&host, address, port(uri)))
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Proxy, String> {
        let text = text.trim();
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = text.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(other) => return Err(format!("of the kinds of proxies, {other} is not known here")),
            None => return Err("it has no scheme".to_owned()),
        }
        let authority = uri.authority().ok_or("it has no host")?.as_str();
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let authorization = user.map(basic).transpose()?;
        let scheme = uri.scheme_str().unwrap_or("http");
        let uri = format!("{scheme}://{host}").parse().map_err(|_| "its host is none".to_owned())?;
        Ok(Proxy { uri, authorization })
    }

    /// Where it is, without what is secret.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What proves to it who we are.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.authorization.clone()
    }
}

/// The header for `user:password`, which is written as in a URL.
fn basic(user: &str) -> Result<HeaderValue, String> {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let plain: Vec<u8> = percent_decode_str(name).chain([b':']).chain(percent_decode_str(password)).collect();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(plain)))
        .map_err(|_| "its user cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl Exception {
    fn parse(text: &str) -> Option<Exception> {
        let text = text.trim().to_ascii_lowercase();
        if text == "*" {
            return Some(Exception::Everybody);
        }
        if let Ok(network) = text.parse() {
            return Some(Exception::Network(network));
        }
        let (host, port) = split_port(&text)?;
        if let Ok(address) = host.parse() {
            return Some(Exception::Address(address, port));
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        match host.strip_prefix('.') {
            _ if host.is_empty() => None,
            Some(_) => Some(Exception::Domain { suffix: host.to_owned(), itself: false, port }),
            None => Some(Exception::Domain { suffix: format!(".{host}"), itself: true, port }),
        }
    }

    fn covers(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let is_port = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        match self {
            Exception::Everybody => true,
            Exception::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Exception::Address(wanted, at) => address == Some(*wanted) && is_port(at),
            Exception::Domain { suffix, itself, port: at } => {
                let is_it = *itself && suffix.strip_prefix('.') == Some(host);
                (is_it || host.ends_with(suffix.as_str())) && is_port(at)
            }
        }
    }
}

/// `HOST`, `HOST:PORT`, `[IPV6]`, `[IPV6]:PORT` or `IPV6`; nothing if there is no host.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let is_bare = text.parse::<IpAddr>().is_ok();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !is_bare && !port.ends_with(']') => (host, port.parse().ok()),
        _ => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some((host, port))
}

impl fmt::Debug for Proxy {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.uri).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_environment(&Environment::from_iter(variables.iter().copied())).unwrap()
    }

    fn through(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.of(&url.parse().unwrap()).map(|proxy| proxy.uri().to_string())
    }

    #[test]
    fn the_scheme_decides_and_upper_case_counts_first() {
        let both =
            proxies(&[("HTTP_PROXY", "a.example:1"), ("http_proxy", "b.example:1"), ("https_proxy", "c.example")]);
        assert_eq!(through(&both, "http://cloud.example/").as_deref(), Some("http://a.example:1/"));
        assert_eq!(through(&both, "https://cloud.example/").as_deref(), Some("http://c.example/"));
        assert_eq!(through(&proxies(&[]), "https://cloud.example/"), None);
        let empty = proxies(&[("HTTPS_PROXY", ""), ("https_proxy", "c.example")]);
        assert_eq!(through(&empty, "https://cloud.example/").as_deref(), Some("http://c.example/"));
    }

    #[test]
    fn a_header_of_a_request_to_a_cgi_script_is_no_proxy() {
        let script = proxies(&[("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "a.example"), ("HTTPS_PROXY", "b.example")]);
        assert_eq!(through(&script, "http://cloud.example/"), None);
        assert!(through(&script, "https://cloud.example/").is_some());
    }

    #[test]
    fn exceptions_are_as_go_reads_them() {
        let table = [
            ("*", "cloud.example", true),
            ("cloud.example", "cloud.example", true),
            ("cloud.example", "CLOUD.EXAMPLE", true),
            ("cloud.example", "api.cloud.example", true),
            ("cloud.example", "notcloud.example", false),
            (".cloud.example", "cloud.example", false),
            (".cloud.example", "api.cloud.example", true),
            ("*.cloud.example", "cloud.example", false),
            ("*.cloud.example", "api.cloud.example", true),
            (" other.example , cloud.example ", "cloud.example", true),
            ("cloud.example:443", "cloud.example", true),
            ("cloud.example:8443", "cloud.example", false),
            ("cloud.example:8443", "cloud.example:8443", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.70", false),
            ("192.0.2.7:443", "192.0.2.7", true),
            ("192.0.2.7:80", "192.0.2.7", false),
            ("192.0.2.0/24", "192.0.2.7", true),
            ("192.0.2.0/24", "192.0.3.7", false),
            ("2001:db8::/32", "[2001:db8::1]", true),
            ("2001:db8::1", "[2001:db8::1]", true),
            ("[2001:db8::1]", "[2001:db8::1]", true),
            ("[2001:db8::1]:443", "[2001:db8::1]", true),
            ("[2001:db8::1]:80", "[2001:db8::1]", false),
            ("", "localhost", true),
            ("", "127.0.0.1", true),
            ("", "127.8.8.8", true),
            ("", "[::1]", true),
            ("", "cloud.example", false),
            (",:80,.", "cloud.example", false),
        ];
        for (exceptions, host, is_direct) in table {
            let proxies = proxies(&[("HTTPS_PROXY", "proxy.example:3128"), ("no_proxy", exceptions)]);
            assert_eq!(through(&proxies, &format!("https://{host}/")).is_none(), is_direct, "{exceptions:?} {host}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_told_without_what_is_secret() {
        for text in ["socks5://sailor:s3cret@proxy.example", "http://sailor:s3cret@", "http://sailor:s3cret@a b"] {
            let variables = Environment::from_iter([("HTTPS_PROXY", text)]);
            let error = Proxies::from_environment(&variables).unwrap_err().to_string();
            assert!(error.starts_with("HTTPS_PROXY in the environment is no proxy: "), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let proxies = proxies(&[("HTTPS_PROXY", "http://sailor:s3cret@proxy.example")]);
        assert!(!format!("{proxies:?}").contains("s3cret"), "{proxies:?}");
    }

    #[test]
    fn a_user_is_sent_as_it_is_meant() {
        let table = [
            ("a:b", "a:b"),
            ("a", "a:"),
            ("a%40b:c%3Ad", "a@b:c:d"),
            ("a:100%", "a:100%"),
            ("a:%zz%4", "a:%zz%4"),
            ("a:%+4", "a:%+4"),
        ];
        for (written, meant) in table {
            let expected = format!("Basic {}", STANDARD.encode(meant));
            assert_eq!(basic(written).unwrap().to_str().unwrap(), expected, "{written}");
        }
    }
}
