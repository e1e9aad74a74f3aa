//! Keys in environment variables.

use bowline_http::sign::aws::Credentials;

use crate::config::CredentialVariables;

/// Returns the keys of the environment, if both parts are set.
pub(crate) fn keys(variables: &CredentialVariables) -> Option<Credentials> {
    let CredentialVariables { access_key_id, secret_access_key, session_token, .. } = variables;
    let is_complete = !access_key_id.is_empty() && !secret_access_key.is_empty();
    is_complete.then(|| Credentials {
        access_key_id: access_key_id.clone(),
        secret_access_key: secret_access_key.clone(),
        session_token: Some(session_token.clone()).filter(|token| !token.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn both_parts_are_needed_and_the_token_is_optional() {
        for (id, secret, token, expected) in [
            ("AKID", "s", "", Some(false)),
            ("AKID", "s", "t", Some(true)),
            ("AKID", "", "t", None),
            ("", "s", "", None),
        ] {
            let (access_key_id, secret_access_key, session_token) = (id.to_owned(), secret.into(), token.into());
            let variables = CredentialVariables {
                access_key_id,
                secret_access_key,
                session_token,
                ..Config::default().credentials
            };
            assert_eq!(keys(&variables).map(|keys| keys.session_token.is_some()), expected);
        }
    }
}
