//! Cipher suites by their names in Go (`--tls-cipher-suites`).

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite as ring;

/// An unknown cipher suite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
// upstream: this wording.
#[error("Cipher suite {0} not supported or doesn't exist")]
pub struct UnknownCipherSuite(pub String);

/// Supported cipher suites by name. Those of TLS 1.3 are always offered with TLS 1.3 and cannot be selected.
const OFFERED: [(&str, SupportedCipherSuite); 11] = [
    ("TLS_AES_128_GCM_SHA256", ring::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", ring::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", ring::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ring::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", ring::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", ring::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", ring::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", ring::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", ring::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    // upstream: two legacy names.
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", ring::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", ring::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Cipher suites that Go accepts and this server does not offer, because they are insecure: no forward secrecy, CBC, RC4 or 3DES.
const NOT_OFFERED: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// Checks the names of cipher suites. Returns the known ones that are not offered.
pub fn check_cipher_suites(names: &[String]) -> Result<Vec<String>, UnknownCipherSuite> {
    let mut not_offered = Vec::new();
    for name in names {
        if NOT_OFFERED.contains(&name.as_str()) {
            not_offered.push(name.clone());
        } else if !OFFERED.iter().any(|(offered, _)| offered == name) {
            return Err(UnknownCipherSuite(name.clone()));
        }
    }
    Ok(not_offered)
}

/// Returns the supported suites with these names and all of TLS 1.3; all supported suites if there are no names.
pub(crate) fn offered(names: &[String]) -> Vec<SupportedCipherSuite> {
    let all = rustls::crypto::ring::DEFAULT_CIPHER_SUITES.iter();
    let named: Vec<_> = OFFERED.iter().filter(|(name, _)| names.iter().any(|selected| selected == name)).collect();
    let selected = |suite: &SupportedCipherSuite| {
        names.is_empty() || suite.tls13().is_some() || named.iter().any(|(_, named)| named.suite() == suite.suite())
    };
    all.filter(|suite| selected(suite)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_that_go_accepts_are_accepted_and_others_rejected() {
        let known =
            names(&["TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]);
        assert_eq!(check_cipher_suites(&known), Ok(names(&["TLS_RSA_WITH_RC4_128_SHA"])));
        assert_eq!(check_cipher_suites(&names(&["tls_aes"])), Err(UnknownCipherSuite("tls_aes".to_owned())));
        assert_eq!(check_cipher_suites(&[]), Ok(Vec::new()));
    }

    #[test]
    fn the_selection_applies_to_tls_1_2_only() {
        let count = |chosen: &[&str]| {
            let (new, old): (Vec<_>, Vec<_>) =
                offered(&names(chosen)).into_iter().partition(|suite| suite.tls13().is_some());
            (new.len(), old.len())
        };
        assert_eq!(count(&[]), (3, 6));
        assert_eq!(count(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_AES_128_GCM_SHA256"]), (3, 1));
        assert_eq!(count(&["TLS_RSA_WITH_AES_128_CBC_SHA"]), (3, 0));
    }
}
