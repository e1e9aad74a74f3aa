//! Whether a certificate and a key in PEM belong together, told as Go's TLS library tells it.
//!
//! Nothing depends on the answer but a warning, so a key of a kind we cannot read is taken to be right.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode, Encode};
use x509_cert::spki::SubjectPublicKeyInfoRef;

/// What is wrong with the pair.
pub(super) fn pair_error(certificate: &[u8], key: &[u8]) -> Option<String> {
    let certificate = match find_certificate(&blocks(certificate)) {
        Ok(der) => der,
        Err(text) => return Some(text),
    };
    let key = match find_key(&blocks(key)) {
        Ok(der) => der,
        Err(text) => return Some(text),
    };
    mismatch(&certificate, key).map(str::to_owned)
}

/// A block of a PEM text.
struct Block {
    label: String,
    der: Vec<u8>,
}

fn find_certificate(blocks: &[Block]) -> Result<Vec<u8>, String> {
    if let Some(block) = blocks.iter().find(|b| b.label == "CERTIFICATE") {
        return Ok(block.der.clone());
    }
    Err(match blocks {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [only] if only.label.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
             may have been switched"
                .to_owned()
        }
        skipped => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: {}",
            labels(skipped)
        ),
    })
}

fn find_key(blocks: &[Block]) -> Result<Vec<u8>, String> {
    let is_key = |b: &&Block| b.label == "PRIVATE KEY" || b.label.ends_with(" PRIVATE KEY");
    if let Some(block) = blocks.iter().find(is_key) {
        return Ok(block.der.clone());
    }
    Err(match blocks {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [only] if only.label == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        skipped => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks \
             of the following types: {}",
            labels(skipped)
        ),
    })
}

fn labels(blocks: &[Block]) -> String {
    let labels: Vec<&str> = blocks.iter().map(|b| b.label.as_str()).collect();
    format!("[{}]", labels.join(" "))
}

fn mismatch(certificate: &[u8], key: Vec<u8>) -> Option<&'static str> {
    let Ok(certificate) = Certificate::from_der(certificate) else { return Some("x509: malformed certificate") };
    let info = certificate.tbs_certificate.subject_public_key_info.to_der().ok()?;
    let well_formed = AnyRef::from_der(&key).is_ok();
    let signer = PrivateKeyDer::try_from(key).ok().and_then(|key| any_supported_type(&key).ok());
    let Some(signer) = signer else { return (!well_formed).then_some("tls: failed to parse private key") };
    let public = signer.public_key()?;
    match (algorithm(&info), algorithm(&public)) {
        (Some(wanted), Some(given)) if wanted != given => Some("tls: private key type does not match public key type"),
        _ if info != public.as_ref() => Some("tls: private key does not match public key"),
        _ => None,
    }
}

fn algorithm(info: &[u8]) -> Option<String> {
    SubjectPublicKeyInfoRef::from_der(info).ok().map(|info| info.algorithm.oid.to_string())
}

/// The well-formed blocks of a PEM text, in order.
fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut rest = text.as_ref();
    let mut blocks = Vec::new();
    while let Some((_, from_label)) = rest.split_once("-----BEGIN ") {
        rest = from_label;
        let Some((label, body)) = from_label.split_once("-----") else { break };
        let Some((body, after)) = body.split_once(&format!("-----END {label}-----")) else { continue };
        if let Ok(der) = BASE64.decode(body.split_whitespace().collect::<String>()) {
            blocks.push(Block { label: label.to_owned(), der });
            rest = after;
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};

    fn pair(algorithm: &'static SignatureAlgorithm) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = CertificateParams::new(vec!["a.example".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }

    #[test]
    fn a_certificate_fits_its_own_key_only() {
        let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
        let (_, other) = pair(&PKCS_ECDSA_P256_SHA256);
        let (_, ed25519) = pair(&PKCS_ED25519);
        assert_eq!(pair_error(&certificate, &key), None);
        assert_eq!(pair_error(&certificate, &other).as_deref(), Some("tls: private key does not match public key"));
        assert_eq!(
            pair_error(&certificate, &ed25519).as_deref(),
            Some("tls: private key type does not match public key type")
        );
    }

    #[test]
    fn missing_and_misplaced_blocks_are_named() {
        let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
        let told = |c: &[u8], k: &[u8]| pair_error(c, k).unwrap();
        assert_eq!(told(b"\0", b"\0"), "tls: failed to find any PEM data in certificate input");
        assert_eq!(told(&certificate, b""), "tls: failed to find any PEM data in key input");
        assert_eq!(
            told(&key, &certificate),
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
        );
        assert_eq!(
            told(&certificate, &certificate),
            "tls: found a certificate rather than a key in the PEM for the private key"
        );
        let odd = b"-----BEGIN X-----\nAA==\n-----END X-----\n-----BEGIN Y-----\nAA==\n-----END Y-----\n";
        assert_eq!(
            told(odd, &key),
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [X Y]"
        );
    }

    #[test]
    fn broken_contents_are_told_apart() {
        let (certificate, _) = pair(&PKCS_ECDSA_P256_SHA256);
        let broken = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n").into_bytes();
        assert_eq!(
            pair_error(&broken("CERTIFICATE"), &broken("PRIVATE KEY")).as_deref(),
            Some("x509: malformed certificate")
        );
        assert_eq!(
            pair_error(&certificate, &broken("PRIVATE KEY")).as_deref(),
            Some("tls: failed to parse private key")
        );
    }
}
