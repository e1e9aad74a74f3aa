//! Delegated authorization (SRV-6).

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};

use crate::AuthorizationOptions;
use crate::review;
use crate::review_cache::ReviewCache;
use crate::user::User;

/// Group whose members may do everything.
const MASTERS: &str = "system:masters";

/// Maximum length of verb and path of a cached decision. Longer ones are not cached, because a client can make up any number of them.
const MAX_CACHED_LENGTH: usize = 1024;

/// An invalid path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
// upstream: this wording.
#[error("only trailing * allowed in {0:?}")]
pub struct PathError(pub String);

/// Paths that every client may request (`--authorization-always-allow-paths`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

impl AllowedPaths {
    /// Parses exact paths, and prefixes that end with `*`. The leading `/` is optional.
    pub fn parse(paths: &[String]) -> Result<AllowedPaths, PathError> {
        let mut allowed = AllowedPaths::default();
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            let (prefix_or_path, list) = match path.strip_suffix('*') {
                Some(prefix) => (prefix, &mut allowed.prefixes),
                None => (path, &mut allowed.exact),
            };
            if prefix_or_path.contains('*') {
                return Err(PathError(path.to_owned()));
            }
            list.push(prefix_or_path.to_owned());
        }
        Ok(allowed)
    }

    /// Whether every client may request the path.
    pub fn contains(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.iter().any(|exact| exact == path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

/// Result of an authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    /// Not allowed, with the reason if there is one.
    NoOpinion(String),
}

/// User, verb and path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AccessRequest {
    user: User,
    verb: String,
    path: String,
}

/// Authorizes requests.
pub struct Authorizer {
    allowed: AllowedPaths,
    /// Client for SubjectAccessReviews. Without it only `system:masters` and always-allowed paths are authorized.
    reviews: Option<kube::Client>,
    decisions: ReviewCache<AccessRequest, Decision>,
    allow_ttl: Duration,
    deny_ttl: Duration,
}

impl Authorizer {
    /// By these options. `reviews` is a client that may create SubjectAccessReviews.
    pub fn new(options: &AuthorizationOptions, reviews: Option<kube::Client>) -> Result<Authorizer, PathError> {
        let allowed = AllowedPaths::parse(&options.always_allow_paths)?;
        let (allow_ttl, deny_ttl) = (options.allow_ttl, options.deny_ttl);
        Ok(Authorizer { allowed, reviews, decisions: ReviewCache::new(), allow_ttl, deny_ttl })
    }

    /// The first that has something to say decides.
    pub(crate) async fn authorize(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        if user.is_in(MASTERS) || self.allowed.contains(path) {
            return Ok(Decision::Allow);
        }
        let Some(client) = &self.reviews else { return Ok(Decision::NoOpinion(String::new())) };
        let question = AccessRequest { user: user.clone(), verb: verb.to_owned(), path: path.to_owned() };
        let is_kept = verb.len() + path.len() <= MAX_CACHED_LENGTH;
        let ttls = if is_kept { (self.allow_ttl, self.deny_ttl) } else { (Duration::ZERO, Duration::ZERO) };
        let (client, asked) = (client.clone(), question.clone());
        self.decisions.get(question, move || ask(client, asked, ttls)).await
    }
}

async fn ask(
    client: kube::Client,
    asked: AccessRequest,
    ttls: (Duration, Duration),
) -> Result<(Decision, Duration), String> {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let spec = SubjectAccessReviewSpec {
        extra: Some(asked.user.extra).filter(|extra| !extra.is_empty()),
        groups: Some(asked.user.groups).filter(|groups| !groups.is_empty()),
        non_resource_attributes: Some(NonResourceAttributes { path: Some(asked.path), verb: Some(asked.verb) }),
        uid: some(asked.user.uid),
        user: some(asked.user.name),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api: Api<SubjectAccessReview> = Api::all(client);
    let params = PostParams::default();
    let answer = review::with_retries(|| api.create(&params, &review)).await?;
    let status = answer.status.unwrap_or_default();
    Ok(match status.allowed {
        true => (Decision::Allow, ttls.0),
        false => (Decision::NoOpinion(status.reason.unwrap_or_default()), ttls.1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(paths: &[&str]) -> Result<AllowedPaths, PathError> {
        AllowedPaths::parse(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn paths_are_exact_or_prefixes() {
        let allowed = parsed(&["/healthz", "readyz", "/debug/*", "/"]).unwrap();
        let yes = ["/healthz", "/readyz", "/debug/", "/debug/pprof", "/"];
        let no = ["/healthz/", "/healthzz", "/debug", "/metrics", ""];
        assert!(yes.iter().all(|path| allowed.contains(path)));
        assert!(no[..4].iter().all(|path| !allowed.contains(path)));
        assert!(parsed(&["*"]).unwrap().contains("/anything"));
        assert_eq!(parsed(&["/a*b"]), Err(PathError("a*b".to_owned())));
        assert_eq!(parsed(&["/a**"]), Err(PathError("a**".to_owned())));
    }

    #[test]
    fn c2_an_empty_list_allows_nothing() {
        assert!(!parsed(&[]).unwrap().contains("/healthz"));
    }

    #[tokio::test]
    async fn without_reviews_only_masters_and_allowed_paths_are_authorized() {
        let authorizer = Authorizer::new(&AuthorizationOptions::default(), None).unwrap();
        let master = User { name: "root".to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() };
        assert_eq!(authorizer.authorize(&master, "get", "/metrics").await, Ok(Decision::Allow));
        assert_eq!(authorizer.authorize(&User::anonymous(), "get", "/healthz").await, Ok(Decision::Allow));
        let denied = Decision::NoOpinion(String::new());
        assert_eq!(authorizer.authorize(&User::anonymous(), "get", "/metrics").await, Ok(denied));
    }
}
