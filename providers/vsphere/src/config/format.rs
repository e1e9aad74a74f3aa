//! Format of the file, and texts that have a syntax of their own.

use bowline_config::table::Format;

/// Returns the format of a file: INI, if the first line that is not a comment is a section header or `key = value`, else YAML.
// upstream: reads every file as YAML first and then as INI, and reports the error of INI also for YAML files.
pub(super) fn detect(text: &str) -> Format {
    let mut lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let is_ini = |line: &str| {
        let (equals, colon) = (line.find('='), line.find(':'));
        line.starts_with('[') || equals.is_some_and(|equals| colon.is_none_or(|colon| equals < colon))
    };
    if first.is_some_and(is_ini) { Format::Gcfg } else { Format::Yaml }
}

/// Splits a list separated by commas. Blank items are skipped.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Returns the fingerprint of a certificate in upper case, or `None` if it is neither SHA-1 nor SHA-256.
pub(super) fn fingerprint(text: &str) -> Option<String> {
    let pairs: Vec<_> = text.trim().split(':').collect();
    let is_pair = |pair: &&str| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_valid = matches!(pairs.len(), 20 | 32) && pairs.iter().all(is_pair);
    is_valid.then(|| text.trim().to_ascii_uppercase())
}

/// Returns the host without brackets, or `None` if the text has a scheme, a port or a path.
pub(super) fn host(text: &str) -> Option<&str> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if bare.contains(':') {
        return bare.parse::<std::net::Ipv6Addr>().is_ok().then_some(bare);
    }
    let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '.' | '_');
    (!bare.is_empty() && bare == text && bare.chars().all(is_plain)).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VS-1
    #[test]
    fn the_first_line_that_is_not_a_comment_decides_on_the_format() {
        let ini = ["[Global]", "\u{feff}# old\n; older\n\n  [Global]\nuser = a:b", "user = \"a:b\"\n", "port=1"];
        for text in ini {
            assert_eq!(detect(text), Format::Gcfg, "{text:?}");
        }
        let yaml =
            ["", "global:\n  user: a=b\n", "---\nglobal:\n", "{\"global\": {}}", "# [Global]\nglobal: {}", "words"];
        for text in yaml {
            assert_eq!(detect(text), Format::Yaml, "{text:?}");
        }
    }

    #[test]
    fn a_host_has_no_scheme_port_or_path() {
        for text in ["vc.example.com", "10.0.0.1", "vc_1", "fd00::1"] {
            assert_eq!(host(text), Some(text));
        }
        assert_eq!(host("[fd00::1]"), Some("fd00::1"));
        for text in ["", "https://vc", "vc:443", "vc/sdk", "a@vc", "[vc]", "v c", "[::1]:443"] {
            assert_eq!(host(text), None, "{text:?}");
        }
    }

    /// VS-43
    #[test]
    fn a_fingerprint_is_sha1_or_sha256_in_any_case() {
        let sha1 = ["ab"; 20].join(":");
        assert_eq!(fingerprint(&sha1), Some(sha1.to_uppercase()));
        assert!(fingerprint(&["0F"; 32].join(":")).is_some());
        for text in ["", "ab", &["ab"; 19].join(":"), &["ag"; 20].join(":"), &sha1.replace(':', "")] {
            assert_eq!(fingerprint(text), None, "{text:?}");
        }
    }
}
