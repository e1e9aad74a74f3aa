//! Web identity tokens, such as those of Kubernetes service accounts (IRSA).

use bowline_cloud::Result;
use jiff::Timestamp;

use super::super::sts::{Role, Sts};
use super::super::{Issued, invalid};
use super::files::read_token;
use crate::config::CredentialVariables;

/// A role that is assumed with the token in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebIdentity {
    pub(crate) role: Role,
    pub(crate) token_file: String,
}

impl WebIdentity {
    /// Returns the web identity of the environment, if it names a token file.
    pub(crate) fn from_environment(variables: &CredentialVariables) -> Result<Option<WebIdentity>> {
        let CredentialVariables { role_arn, web_identity_token_file, role_session_name, .. } = variables;
        if web_identity_token_file.is_empty() {
            return Ok(None);
        }
        if role_arn.is_empty() {
            return Err(invalid("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not; set both or none"));
        }
        let role = Role { arn: role_arn.clone(), session: role_session_name.clone(), ..Role::default() };
        Ok(Some(WebIdentity { role, token_file: web_identity_token_file.clone() }))
    }

    /// Assumes the role. Kubernetes replaces the token, so the file is read each time.
    pub(crate) async fn issue(&self, sts: &Sts, now: Timestamp) -> Result<Issued> {
        let token = read_token(&self.token_file, "AWS_WEB_IDENTITY_TOKEN_FILE").await?;
        sts.assume_role_with_web_identity(&self.role, &token, now).await
    }
}
