//! Authentication by a front proxy: headers with the user, accepted only together with the proxy's certificate.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::HeaderMap;
use rustls::pki_types::CertificateDer;

use super::certificates::{Bundle, bundle_from_files};
use crate::RequestHeaderOptions;
use crate::files::{FileError, Files};
use crate::user::User;

/// Trusted front proxies and the headers they set.
#[derive(Debug, Clone)]
pub(super) struct FrontProxy {
    pub(super) authorities: Bundle,
    /// Allowed common names; empty for any.
    pub(super) allowed_names: Vec<String>,
    pub(super) headers: Headers,
}

/// Names of the headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) username: Vec<String>,
    pub(super) uid: Vec<String>,
    pub(super) group: Vec<String>,
    pub(super) extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Creates it with the CA from a file and the rest from flags.
    pub(super) fn open(path: PathBuf, options: &RequestHeaderOptions) -> Result<Files<FrontProxy>, FileError> {
        let (allowed_names, headers) = (options.allowed_names.clone(), Headers::of(options));
        let parse = move |paths: &[PathBuf], contents: &[Vec<u8>]| {
            let authorities = bundle_from_files(paths, contents)?;
            Ok(FrontProxy { authorities, allowed_names: allowed_names.clone(), headers: headers.clone() })
        };
        Files::open(vec![path], Box::new(parse))
    }

    pub(super) fn standard_headers() -> Headers {
        let uid_headers = vec!["x-remote-uid".to_owned()];
        Headers::of(&RequestHeaderOptions { uid_headers, ..RequestHeaderOptions::default() })
    }

    /// Returns the user that a trusted front proxy passes; `None` if there is no proxy certificate.
    pub(super) fn user(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<Option<User>, String> {
        let Some(proxy) = self.authorities.subject(certificates)? else { return Ok(None) };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&proxy.name) {
            return Err(format!("{:?} is not an allowed name of a front proxy", proxy.name));
        }
        Ok(self.headers.user(headers))
    }
}

impl Headers {
    fn of(options: &RequestHeaderOptions) -> Headers {
        Headers {
            username: options.username_headers.clone(),
            uid: options.uid_headers.clone(),
            group: options.group_headers.clone(),
            extra_prefixes: options.extra_header_prefixes.clone(),
        }
    }

    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| values(headers, names).into_iter().next();
        let name = first(&self.username)?;
        let uid = first(&self.uid).unwrap_or_default();
        Some(User { name, uid, groups: values(headers, &self.group), extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(&prefix), value.to_str()) {
                    extra.entry(unescaped(key)).or_default().push(value.to_owned());
                }
            }
        }
        extra
    }

    /// Removes these headers.
    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        let ours = |name: &str| {
            let names = [&self.username, &self.uid, &self.group].into_iter().flatten();
            names.into_iter().any(|own| own.eq_ignore_ascii_case(name))
                || self.extra_prefixes.iter().any(|prefix| name.starts_with(&prefix.to_ascii_lowercase()))
        };
        let found: Vec<_> = headers.keys().filter(|name| ours(name.as_str())).cloned().collect();
        for name in found {
            headers.remove(name);
        }
    }
}

/// Returns all non-empty values of these headers, in the order of the headers.
fn values(headers: &HeaderMap, names: &[String]) -> Vec<String> {
    let values = names.iter().flat_map(|name| headers.get_all(name.as_str()));
    values.filter_map(|value| value.to_str().ok()).filter(|value| !value.is_empty()).map(str::to_owned).collect()
}

/// Decodes percent escapes; an invalid key stays as it is.
fn unescaped(key: &str) -> String {
    percent_encoding::percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), |key| key.into_owned())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_user_is_read_from_the_first_header_that_has_one_and_groups_from_all() {
        let names = Headers {
            username: vec!["X-Other".to_owned(), "X-Remote-User".to_owned()],
            group: vec!["X-Remote-Group".to_owned()],
            ..FrontProxy::standard_headers()
        };
        let sent = headers(&[
            ("x-other", ""),
            ("x-remote-user", "jane"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-uid", "7"),
            ("x-remote-extra-acme.com%2fproject", "moon"),
            ("x-remote-extra-scopes", "one"),
        ]);
        let user = names.user(&sent).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["a", "b"]);
        let keys: Vec<_> = user.extra.keys().map(String::as_str).collect();
        assert_eq!(keys, ["acme.com/project", "scopes"]);
        assert_eq!(names.user(&headers(&[("x-remote-group", "a")])), None);
    }

    #[test]
    fn proxy_headers_are_removed_from_the_request() {
        let mut sent = headers(&[("x-remote-user", "jane"), ("x-remote-extra-a", "b"), ("accept", "text/plain")]);
        FrontProxy::standard_headers().remove_from(&mut sent);
        assert_eq!(sent, headers(&[("accept", "text/plain")]));
    }
}
