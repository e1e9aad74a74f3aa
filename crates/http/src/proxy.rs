//! Proxies from the environment. hyper-util decides which requests they apply to.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bowline_config::Environment;
use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use crate::connect::port;

/// Proxies by request. Default: none.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Option<Arc<Rules>>);

#[derive(Debug)]
struct Rules {
    default: Matcher,
    /// Matchers for ports that exceptions name.
    ports: BTreeMap<u16, Matcher>,
}

/// Invalid proxy in the environment. The message does not quote the value, because it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {variable} is not a valid proxy: {reason}; use http://HOST:PORT")]
pub struct ProxyError {
    /// Name of the environment variable.
    pub variable: &'static str,
    reason: String,
}

impl Proxies {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, each also in lower case.
    pub fn from_environment(environment: &Environment) -> Result<Proxies, ProxyError> {
        let read = |upper: &'static str, lower: &'static str| {
            let found = [upper, lower].into_iter().find_map(|name| Some((name, environment.get(name)?)));
            found.map(|(variable, text)| validate(text).map_err(|reason| ProxyError { variable, reason })).transpose()
        };
        // upstream: in a CGI script, HTTP_PROXY is the value of the Proxy header that a client sent.
        let is_cgi = environment.get("REQUEST_METHOD").is_some();
        let http = if is_cgi { None } else { read("HTTP_PROXY", "http_proxy")? }.unwrap_or_default();
        let https = read("HTTPS_PROXY", "https_proxy")?.unwrap_or_default();
        let exceptions = environment.get("NO_PROXY").or_else(|| environment.get("no_proxy")).unwrap_or_default();
        let exceptions: Vec<_> = exceptions.split(',').filter_map(split_port).collect();
        if exceptions.iter().any(|(host, _)| *host == "*") {
            return Ok(Proxies::default());
        }
        let matcher = |port: Option<u16>| {
            let of_port = exceptions.iter().filter(|(_, own)| own.is_none() || *own == port);
            let hosts: Vec<_> = of_port.map(|(host, _)| *host).collect();
            Matcher::builder().http(&http).https(&https).no(hosts.join(",")).build()
        };
        let ports = exceptions.iter().filter_map(|(_, port)| *port).map(|port| (port, matcher(Some(port))));
        Ok(Proxies(Some(Arc::new(Rules { default: matcher(None), ports: ports.collect() }))))
    }

    /// Returns the proxy for this URL, if there is one; never for this machine itself, nor for a link-local address, such as that of
    /// a metadata service, which no proxy can reach.
    pub(crate) fn of(&self, uri: &Uri) -> Option<Intercept> {
        let rules = self.0.as_ref()?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_local = host.parse().is_ok_and(|address: IpAddr| is_local(address.to_canonical()));
        if is_local || host.eq_ignore_ascii_case("localhost") {
            return None;
        }
        rules.ports.get(&port(uri)).unwrap_or(&rules.default).intercept(uri)
    }
}

fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

/// Returns the URL of a proxy, or the reason why it is invalid: hyper-util silently ignores invalid ones.
fn validate(text: &str) -> Result<String, String> {
    let text = text.trim();
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(other) => return Err(format!("the scheme {other} is not supported")),
        None => return Err("it has no scheme".to_owned()),
    }
    match uri.host() {
        Some(host) if !host.is_empty() => Ok(text),
        _ => Err("it has no host".to_owned()),
    }
}

/// Splits an exception into host and port: `HOST`, `HOST:PORT`, `[IPV6]`, `[IPV6]:PORT`, `IPV6`, a CIDR, or `*.DOMAIN`, which is
/// `.DOMAIN`. `None` if there is no host.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let text = text.trim();
    let is_bare = text.parse::<IpAddr>().is_ok() || text.contains('/');
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !is_bare && !port.ends_with(']') => (host, port.parse().ok()),
        _ => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
    (!matches!(host, "" | ".")).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_environment(&Environment::from_iter(variables.iter().copied())).unwrap()
    }

    fn proxy_for(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.of(&url.parse().unwrap()).map(|proxy| proxy.uri().to_string())
    }

    #[test]
    fn the_scheme_selects_the_variable_and_upper_case_takes_precedence() {
        let both =
            proxies(&[("HTTP_PROXY", "a.example:1"), ("http_proxy", "b.example:1"), ("https_proxy", "c.example")]);
        assert_eq!(proxy_for(&both, "http://cloud.example/").as_deref(), Some("http://a.example:1/"));
        assert_eq!(proxy_for(&both, "https://cloud.example/").as_deref(), Some("http://c.example/"));
        assert_eq!(proxy_for(&proxies(&[]), "https://cloud.example/"), None);
        let empty = proxies(&[("HTTPS_PROXY", ""), ("https_proxy", "c.example")]);
        assert_eq!(proxy_for(&empty, "https://cloud.example/").as_deref(), Some("http://c.example/"));
    }

    #[test]
    fn http_proxy_is_ignored_in_a_cgi_script() {
        let script = proxies(&[("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "a.example"), ("HTTPS_PROXY", "b.example")]);
        assert_eq!(proxy_for(&script, "http://cloud.example/"), None);
        assert!(proxy_for(&script, "https://cloud.example/").is_some());
    }

    #[test]
    fn no_proxy_accepts_hosts_domains_networks_and_ports() {
        let table = [
            ("*", "cloud.example", true),
            ("cloud.example", "cloud.example", true),
            ("cloud.example", "CLOUD.EXAMPLE", true),
            ("cloud.example", "api.cloud.example", true),
            ("cloud.example", "notcloud.example", false),
            (".cloud.example", "cloud.example", true),
            (".cloud.example", "api.cloud.example", true),
            ("*.cloud.example", "cloud.example", true),
            ("*.cloud.example", "api.cloud.example", true),
            ("*.cloud.example", "notcloud.example", false),
            ("*", "192.0.2.7", true),
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
            ("", "169.254.169.254", true),
            ("", "[fe80::1]", true),
            ("", "127.8.8.8", true),
            ("", "[::1]", true),
            ("", "cloud.example", false),
            (",:80,.", "cloud.example", false),
        ];
        for (exceptions, host, is_direct) in table {
            let proxies = proxies(&[("HTTPS_PROXY", "proxy.example:3128"), ("no_proxy", exceptions)]);
            assert_eq!(proxy_for(&proxies, &format!("https://{host}/")).is_none(), is_direct, "{exceptions:?} {host}");
        }
    }

    #[test]
    fn an_invalid_proxy_is_reported_without_secrets() {
        for text in ["socks5://sailor:s3cret@proxy.example", "http://sailor:s3cret@", "http://sailor:s3cret@a b"] {
            let variables = Environment::from_iter([("HTTPS_PROXY", text)]);
            let error = Proxies::from_environment(&variables).unwrap_err().to_string();
            assert!(error.starts_with("the environment variable HTTPS_PROXY is not a valid proxy: "), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let proxies = proxies(&[("HTTPS_PROXY", "http://sailor:s3cret@proxy.example")]);
        assert!(!format!("{proxies:?}").contains("s3cret"), "{proxies:?}");
    }

    #[test]
    fn proxy_credentials_are_percent_decoded() {
        let table = [
            ("a:b", "a:b"),
            ("a", "a:"),
            ("a%40b:c%3Ad", "a@b:c:d"),
            ("a:100%", "a:100%"),
            ("a:%zz%4", "a:%zz%4"),
            ("a:%+4", "a:%+4"),
        ];
        for (encoded, decoded) in table {
            let expected = format!("Basic {}", STANDARD.encode(decoded));
            let proxies = proxies(&[("HTTPS_PROXY", &format!("http://{encoded}@proxy.example"))]);
            let proxy = proxies.of(&"https://cloud.example/".parse().unwrap()).unwrap();
            assert_eq!(proxy.basic_auth().unwrap().to_str().unwrap(), expected, "{encoded}");
        }
    }
}
