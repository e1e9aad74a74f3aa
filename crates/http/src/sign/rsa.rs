//! RSA private keys from PEM text.

use std::fmt;
use std::sync::Arc;

use bowline_config::Secret;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::SignError;

/// RSA private key that signs with PKCS #1 v1.5 padding and SHA-256. Cheap to clone.
#[derive(Clone)]
pub struct RsaKey(Arc<RsaKeyPair>);

/// Reason why a private key cannot be used. Its text contains nothing of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not PEM, or it has no private key in it.
    #[error("no private key found; fix: use PEM text from BEGIN to END PRIVATE KEY")]
    NotFound,
    /// The key is protected with a pass phrase.
    #[error("the private key is encrypted; fix: store it without a pass phrase (openssl rsa -in KEY -out NEW)")]
    Encrypted,
    /// The key is not an RSA key.
    #[error("the private key is not an RSA key")]
    NotRsa,
    /// The key is an RSA key that cannot be used.
    #[error("the RSA private key cannot be used ({0}); it needs 2048 to 4096 bits and two primes")]
    Rejected(String),
}

impl RsaKey {
    /// Reads the first private key of a PEM text, PKCS #8 (`PRIVATE KEY`) or PKCS #1 (`RSA PRIVATE KEY`).
    pub fn from_pem(pem: &Secret) -> Result<RsaKey, KeyError> {
        if pem.reveal().lines().any(is_encrypted) {
            return Err(KeyError::Encrypted);
        }
        let pair = match PrivateKeyDer::from_pem_slice(pem.reveal().as_bytes()).map_err(|_| KeyError::NotFound)? {
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            _ => return Err(KeyError::NotRsa),
        };
        pair.map(|pair| RsaKey(Arc::new(pair))).map_err(|error| match error.to_string().as_str() {
            "WrongAlgorithm" => KeyError::NotRsa,
            reason => KeyError::Rejected(reason.to_owned()),
        })
    }

    /// Returns the public key, as the DER form of an RSA public key (PKCS #1).
    pub fn public_key(&self) -> &[u8] {
        self.0.public().as_ref()
    }

    /// Signs with PKCS #1 v1.5 padding and SHA-256.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let mut signature = vec![0; self.0.public().modulus_len()];
        let signed = self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
        signed.map(|()| signature).map_err(|_| SignError::Rsa)
    }
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RsaKey(..)")
    }
}

/// A line of a PEM text that announces an encrypted key, PKCS #8 or the older form.
fn is_encrypted(line: &str) -> bool {
    line.starts_with("-----BEGIN ENCRYPTED") || (line.starts_with("Proc-Type:") && line.contains("ENCRYPTED"))
}

#[cfg(test)]
pub(super) mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    /// Private key of RFC 7515, appendix A.2.
    pub(in super::super) const PKCS1: &str = include_str!("testdata/rsa-pkcs1.pem");
    const PKCS8: &str = include_str!("testdata/rsa-pkcs8.pem");
    const SMALL: &str = include_str!("testdata/rsa-1024.pem");
    const ELLIPTIC: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgqJCvCXpwSjfGVl2j
qBq3SNd/p2rVOEqxp0yZ+mQydCWhRANCAARy1x0yd44HJBg7tAlbVJgy4UlbN5k8
N/XMHSkOplankp6z+Ekm3NVBtYu2boUv2ZBBDs+AtIpXxW33/3Ek7yQS
-----END PRIVATE KEY-----
";

    /// Signing input and signature of RFC 7515, appendix A.2.
    const INPUT: &str = "eyJhbGciOiJSUzI1NiJ9.\
        eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5\
        jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN\
        9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVm\
        tVrBp0igcN_IoypGlUPQGe77Rw";

    fn key(pem: &str) -> Result<RsaKey, KeyError> {
        RsaKey::from_pem(&pem.into())
    }

    #[test]
    fn pkcs1_and_pkcs8_keys_match_rfc_7515() {
        for pem in [PKCS1, PKCS8, &PKCS8.replace('\n', "\r\n")] {
            assert_eq!(URL_SAFE_NO_PAD.encode(key(pem).unwrap().sign(INPUT.as_bytes()).unwrap()), SIGNATURE);
        }
    }

    /// The modulus of RFC 7515 begins with these bytes.
    #[test]
    fn the_public_key_is_that_of_the_private_key() {
        let modulus = [0xa1, 0xf8, 0x16, 0x0a, 0xe2, 0xe3, 0xc9, 0xb4];
        let key = key(PKCS1).unwrap();
        assert!(key.public_key().windows(modulus.len()).any(|part| part == modulus));
    }

    #[test]
    fn an_unusable_key_is_an_error_with_the_reason() {
        let cut = &PKCS8[..PKCS8.len() / 2];
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n";
        let broken = PKCS1.replace("MIIE", "MIIF");
        for (pem, error) in [
            ("", KeyError::NotFound),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", KeyError::NotFound),
            (cut, KeyError::NotFound),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\n", KeyError::Encrypted),
            (old, KeyError::Encrypted),
            (ELLIPTIC, KeyError::NotRsa),
            (SMALL, KeyError::Rejected("TooSmall".into())),
            (&broken, KeyError::Rejected("InvalidEncoding".into())),
        ] {
            assert_eq!(key(pem).unwrap_err(), error, "{pem}");
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        assert_eq!(format!("{:?}", key(PKCS1).unwrap()), "RsaKey(..)");
    }
}
