//! OpenID Connect discovery: the two documents that let clients verify service account tokens.

use serde_json::{Value, json};

use crate::state::State;

/// `GET /.well-known/openid-configuration`.
pub(crate) fn openid_configuration(state: &State) -> Value {
    json!({
        "issuer": state.auth.issuer,
        "jwks_uri": format!("https://{}/openid/v1/jwks", state.address),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

/// `GET /openid/v1/jwks`.
pub(crate) fn jwks(state: &State) -> Value {
    json!({"keys": state.auth.key.public().into_iter().collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::state;
    use crate::value::Json;

    #[test]
    fn the_published_key_is_a_point_on_p256() {
        let keys = jwks(&state());
        let [key] = keys.list("keys") else { panic!("{keys}") };
        assert_eq!((key.text("kty"), key.text("crv"), key.text("alg")), ("EC", "P-256", "ES256"));
        // 32 bytes each.
        assert_eq!((key.text("x").len(), key.text("y").len(), key.text("kid").len()), (43, 43, 43));
    }
}
