//! How clients reach the document of a manager: names that the manager, its manifests and its clients share.

/// Path of the document on the secure port.
pub const PATH: &str = "/consolez";

/// Header with the token of a client behind the API server's pod proxy, which removes the `Authorization` header. Its value has the
/// same form: `Bearer TOKEN`.
pub const TOKEN_HEADER: &str = "x-bowline-authorization";

/// Audience of the tokens in that header. No other server accepts them.
pub const AUDIENCE: &str = "bowline-console";

/// Service account of those tokens. It may read [`PATH`], and nothing else.
pub const SERVICE_ACCOUNT: &str = "bowline-console";

/// ClusterRole with what a user needs. Administrators bind it in the namespace of the manager.
pub const USER_ROLE: &str = "bowline-console-user";
