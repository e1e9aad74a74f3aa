//! Chain of sources, in the order of the AWS SDKs.
//!
//! ```text
//!  keys in the environment ──► web identity ──► profile ──► container endpoint ──► metadata service
//!                                                 └── role of the profile ──► its source
//!  RoleARN of the file: assumed with the credentials of the chain
//! ```

use bowline_cloud::{BuildContext, Calls, Result};
use bowline_config::ConfigError;
use bowline_http::sign::aws;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue};

use super::clock::Clock;
use super::metadata::Metadata;
use super::signer::{Signer, Unsigned};
use super::sources::web_identity::WebIdentity;
use super::sources::{container, environment, metadata, profile};
use super::sts::{self, Role, Sts};
use super::{Credentials, Issued, Keys, invalid};
use crate::api::{Service, USER_AGENT};
use crate::config::{Config, CredentialVariables, account_of};
use crate::endpoints::{ApiName, Endpoints};

/// How to get credentials.
pub(super) enum Plan {
    /// Constant keys, and their source for messages.
    Keys(aws::Credentials, String),
    WebIdentity(WebIdentity),
    /// A role that is assumed with the credentials of another source.
    Role {
        role: Role,
        source: Box<Plan>,
    },
    Environment,
    Container,
    Metadata,
}

/// Everything that the sources need. It is read again for every renewal, so rotated files are used without a restart.
pub(super) struct Chain {
    variables: CredentialVariables,
    /// Role of the file, which is assumed for all calls.
    role: Option<Role>,
    endpoints: Endpoints,
    http: bowline_http::Client,
    calls: Calls,
    agent: HeaderValue,
    metadata: Metadata,
    clock: Clock,
}

const SOURCE_ACCOUNT: HeaderName = HeaderName::from_static("x-amz-source-account");
const SOURCE_ARN: HeaderName = HeaderName::from_static("x-amz-source-arn");

impl Chain {
    pub(super) fn new(
        config: &Config,
        endpoints: &Endpoints,
        http: &bowline_http::Client,
        context: &BuildContext<'_>,
        clock: Clock,
    ) -> std::result::Result<Chain, ConfigError> {
        Ok(Chain {
            role: role(&config.role_arn, &config.source_arn)?,
            metadata: Metadata::new(http, context.calls, endpoints, config.is_metadata_disabled()),
            variables: config.credentials.clone(),
            endpoints: endpoints.clone(),
            http: http.clone(),
            calls: context.calls.clone(),
            agent: bowline_http::user_agent(context.user_agents, USER_AGENT)?,
            clock,
        })
    }

    /// Gets credentials from the first source that is configured.
    pub(super) async fn issue(&self) -> Result<Issued> {
        let plan = self.plan().await?;
        match &self.role {
            Some(role) => self.assume(role, &plan).await,
            None => self.resolve(&plan).await,
        }
    }

    async fn plan(&self) -> Result<Plan> {
        if environment::keys(&self.variables).is_some() {
            return Ok(Plan::Environment);
        }
        if let Some(identity) = WebIdentity::from_environment(&self.variables)? {
            return Ok(Plan::WebIdentity(identity));
        }
        if let Some(plan) = profile::plan(&self.variables).await? {
            return Ok(plan);
        }
        Ok(if container::url(&self.variables)?.is_some() { Plan::Container } else { Plan::Metadata })
    }

    /// Boxed, because the source of a role may be another role.
    fn resolve<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Issued>> {
        async move {
            let now = self.clock.now();
            match plan {
                Plan::Keys(keys, source) => Ok(Keys::new(keys.clone(), source).issued(None, now)),
                Plan::WebIdentity(identity) => identity.issue(&self.unsigned(), now).await,
                Plan::Role { role, source } => self.assume(role, source).await,
                Plan::Environment => {
                    let keys = environment::keys(&self.variables);
                    let missing = || invalid("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set");
                    Ok(Keys::new(keys.ok_or_else(missing)?, "the environment").issued(None, now))
                }
                Plan::Container => {
                    let missing = || invalid("there is no container endpoint; set AWS_CONTAINER_CREDENTIALS_FULL_URI");
                    let url = container::url(&self.variables)?.ok_or_else(missing)?;
                    container::issue(&url, &self.variables, (&self.http, &self.calls), now).await
                }
                Plan::Metadata => metadata::issue(&self.metadata, now).await,
            }
        }
        .boxed()
    }

    async fn assume(&self, role: &Role, source: &Plan) -> Result<Issued> {
        let source = self.resolve(source).await?.token;
        let credentials = Credentials::fixed(source.keys, self.clock.clone());
        let signer = Signer { credentials, endpoints: self.endpoints.clone(), api: ApiName::Sts };
        let sts = Sts(Service::new(self.http.clone(), &self.calls, sts::API, self.agent.clone(), signer));
        sts.assume_role(role, self.clock.now()).await
    }

    /// Returns the client for the one call that is not signed.
    fn unsigned(&self) -> Sts {
        let endpoint = Unsigned { endpoints: self.endpoints.clone(), api: ApiName::Sts };
        Sts(Service::new(self.http.clone(), &self.calls, sts::API, self.agent.clone(), endpoint))
    }
}

/// Returns the role of the file.
// upstream: the account in the header is always that of the role, and the ARN is sent only if it is set.
fn role(arn: &str, source_arn: &str) -> std::result::Result<Option<Role>, ConfigError> {
    if arn.is_empty() {
        return Ok(None);
    }
    let value = |text: &str, key: &str| {
        let invalid = |_| ConfigError::new("contains characters that are invalid in a header").field(key.to_owned());
        HeaderValue::try_from(text).map_err(invalid)
    };
    let account = account_of(arn).map_err(|reason| ConfigError::new(reason).field("[Global] RoleARN"))?;
    let mut headers = vec![(SOURCE_ACCOUNT, value(account, "[Global] RoleARN")?)];
    if !source_arn.is_empty() {
        headers.push((SOURCE_ARN, value(source_arn, "[Global] SourceARN")?));
    }
    Ok(Some(Role { arn: arn.to_owned(), headers, ..Role::default() }))
}
