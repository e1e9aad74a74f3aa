//! Cipher suites by the names that Go gives them (`--tls-cipher-suites`).

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite as ring;

/// A name that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
// upstream: these words.
#[error("Cipher suite {0} not supported or doesn't exist")]
pub struct UnknownCipherSuite(pub String);

/// What can be offered, by name. Those of TLS 1.3 are not a matter of choice: they are offered whenever it is spoken.
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
    // upstream: two names from before the final ones.
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", ring::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", ring::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// What Go knows, and nobody should use: no forward secrecy, CBC, RC4 or 3DES.
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

/// Looks at names of cipher suites. The answer has those that are real, and not offered all the same.
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

/// Those of these that can be offered, and all of TLS 1.3; all there are if there are no names.
pub(crate) fn offered(names: &[String]) -> Vec<SupportedCipherSuite> {
    let all = rustls::crypto::ring::DEFAULT_CIPHER_SUITES.iter();
    let named: Vec<_> = OFFERED.iter().filter(|(name, _)| names.iter().any(|wanted| wanted == name)).collect();
    let wanted = |suite: &SupportedCipherSuite| {
        names.is_empty() || suite.tls13().is_some() || named.iter().any(|(_, named)| named.suite() == suite.suite())
    };
    all.filter(|suite| wanted(suite)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_that_go_knows_are_accepted_and_others_not() {
        let known =
            names(&["TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]);
        assert_eq!(check_cipher_suites(&known), Ok(names(&["TLS_RSA_WITH_RC4_128_SHA"])));
        assert_eq!(check_cipher_suites(&names(&["tls_aes"])), Err(UnknownCipherSuite("tls_aes".to_owned())));
        assert_eq!(check_cipher_suites(&[]), Ok(Vec::new()));
    }

    #[test]
    fn a_choice_is_one_for_tls_1_2_alone() {
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
