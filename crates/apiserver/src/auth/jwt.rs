//! Signs and verifies service account tokens: JSON Web Tokens in compact form, signed with ES256. The server generates
//! its key at start.
//!
//! This module handles the envelope only. [`super::service_account`] validates the claims.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::digest_cache::digest;
use crate::value::Json;

/// DER prefix of a P-256 public key, before the point.
const P256_HEADER: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The key that signs tokens.
pub(super) struct SigningKey {
    /// `None` if the system random number generator failed: tokens are then neither issued nor accepted.
    pair: Option<EcdsaKeyPair>,
    /// The `kid` header of tokens signed with this key.
    id: String,
}

/// Why a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejected {
    /// Not a JSON Web Token, or a token of another issuer.
    Foreign,
    /// Signed with a key of another server.
    UnknownKey,
    BadSignature,
}

impl SigningKey {
    pub(super) fn generate() -> SigningKey {
        let pair = generate_pair();
        let id = pair.as_ref().map(key_id).unwrap_or_default();
        SigningKey { pair, id }
    }

    /// Returns a signed token with these claims.
    pub(super) fn sign(&self, claims: &impl Serialize) -> Option<String> {
        let pair = self.pair.as_ref()?;
        let header = json!({"alg": "ES256", "kid": self.id}).to_string();
        let claims = serde_json::to_string(claims).ok()?;
        let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).ok()?;
        Some(format!("{signed}.{}", BASE64.encode(signature)))
    }

    /// Returns the claims of a token that `issuer` signed with this key.
    pub(super) fn verify(&self, token: &str, issuer: &str) -> Result<Value, Rejected> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Rejected::Foreign)?;
        let (header, claims) = signed.split_once('.').ok_or(Rejected::Foreign)?;
        let claims = decode(claims).filter(|c| c.text("iss") == issuer).ok_or(Rejected::Foreign)?;
        let header = decode(header).ok_or(Rejected::Foreign)?;
        if !header.text("kid").is_empty() && header.text("kid") != self.id {
            return Err(Rejected::UnknownKey);
        }
        if header.text("alg") != "ES256" || !self.signed(signed, signature) {
            return Err(Rejected::BadSignature);
        }
        Ok(claims)
    }

    /// The public key as a JSON Web Key, for clients that verify tokens themselves.
    pub(super) fn public(&self) -> Option<Value> {
        // An uncompressed point is a marker byte followed by two coordinates of 32 bytes.
        let (_, point) = self.pair.as_ref()?.public_key().as_ref().split_first()?;
        let (x, y) = point.split_at_checked(32)?;
        Some(json!({
            "use": "sig",
            "kty": "EC",
            "kid": self.id,
            "crv": "P-256",
            "alg": "ES256",
            "x": BASE64.encode(x),
            "y": BASE64.encode(y),
        }))
    }

    fn signed(&self, text: &str, signature: &str) -> bool {
        let (Some(pair), Ok(signature)) = (&self.pair, BASE64.decode(signature)) else { return false };
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        key.verify(text.as_bytes(), &signature).is_ok()
    }
}

fn generate_pair() -> Option<EcdsaKeyPair> {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).ok()
}

/// SHA-256 of the public key's DER form, as upstream derives the key ID.
fn key_id(pair: &EcdsaKeyPair) -> String {
    let mut der = P256_HEADER.to_vec();
    der.extend_from_slice(pair.public_key().as_ref());
    BASE64.encode(digest(&der))
}

fn decode(part: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_token_is_accepted_and_a_changed_one_is_not() {
        let key = SigningKey::generate();
        let token = key.sign(&json!({"iss": "me", "sub": "x"})).unwrap();
        assert_eq!(key.verify(&token, "me"), Ok(json!({"iss": "me", "sub": "x"})));

        let (head, signature) = token.rsplit_once('.').unwrap();
        let header = head.split_once('.').unwrap().0;
        let forged = format!("{header}.{}.{signature}", BASE64.encode(r#"{"iss":"me","sub":"y"}"#));
        assert_eq!(key.verify(&forged, "me"), Err(Rejected::BadSignature));
        assert_eq!(key.verify(&format!("{head}."), "me"), Err(Rejected::BadSignature));
    }

    #[test]
    fn tokens_of_other_issuers_or_keys_and_malformed_tokens_are_rejected() {
        let (ours, theirs) = (SigningKey::generate(), SigningKey::generate());
        let token = theirs.sign(&json!({"iss": "me"})).unwrap();
        assert_eq!(ours.verify(&token, "me"), Err(Rejected::UnknownKey));
        assert_eq!(ours.verify(&token, "you"), Err(Rejected::Foreign));
        for text in ["", "a", "a.b", "a.b.c", "..", "{}.{}.{}", "a.b.c.d"] {
            assert_eq!(ours.verify(text, "me"), Err(Rejected::Foreign), "{text}");
        }
    }

    #[test]
    fn the_algorithm_of_a_token_cannot_be_chosen() {
        let key = SigningKey::generate();
        let parts = [r#"{"alg":"none"}"#, r#"{"iss":"me"}"#].map(|p| BASE64.encode(p));
        assert_eq!(key.verify(&format!("{}.{}.", parts[0], parts[1]), "me"), Err(Rejected::BadSignature));
    }
}
