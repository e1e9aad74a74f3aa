//! Options of a simulated NSX manager.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline_simulator::Work;

/// Default user.
pub const USER: &str = "admin";

/// Default password.
pub const PASSWORD: &str = "VMware1!VMware1!";

/// Default refresh token of VMC.
pub const REFRESH_TOKEN: &str = "simulated-refresh-token";

/// Way to authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// `Authorization: Basic`, for local users.
    Basic,
    /// `Authorization: Remote`, for users of vIDM.
    Remote,
    /// TLS client certificate of a principal identity.
    Certificate,
    /// `csp-auth-token` from a refresh token.
    Vmc,
    /// Cookie and XSRF token from `/api/session/create`.
    Session,
}

/// Options of a simulated NSX manager.
#[derive(Debug, Clone)]
pub struct Options {
    /// Accepted ways to authenticate.
    pub schemes: BTreeSet<Scheme>,
    /// User of the schemes with a password.
    pub user: String,
    /// Password.
    pub password: String,
    /// Number of consecutive wrong passwords that locks the account, and for how long.
    pub lockout: (u32, Duration),
    /// Names of the principal identities.
    pub principals: BTreeSet<String>,
    /// Refresh token that VMC accepts.
    pub refresh_token: String,
    /// Lifetime of access tokens.
    pub token_lifetime: Duration,
    /// Whether the token response has `expires_in` as text instead of a number.
    pub token_lifetime_as_text: bool,
    /// Idle time after which a session ends.
    pub session_lifetime: Duration,
    /// Whether the account may only read.
    pub read_only: bool,
    /// Requests per second; more are refused with 429.
    pub rate_limit: u32,
    /// Maximum number of objects on a page.
    pub max_page: usize,
    /// Time until a change is realized.
    pub realization: Work,
    /// Whether the realized state of a new object is `UNREALIZED` at first, instead of empty.
    pub unrealized_visible: bool,
    /// Time until the address of a deleted allocation is free again; two minutes in the real manager, unless its pool has another time.
    pub release_delay: Duration,
    /// Time until search shows a change.
    pub index_lag: Work,
    /// Time until a deleted object is removed. Until then its path cannot be used again, and search shows it as marked for deletion.
    pub purge: Work,
    /// Status and code of the error for a stale revision. The real manager also has 400 with the codes 500087, 500232 and 100148, and
    /// 404 with the code 500090, which does not mean that the object does not exist.
    pub stale_error: (u16, u32),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            schemes: [Scheme::Basic, Scheme::Session].into(),
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            lockout: (5, Duration::from_secs(900)),
            principals: BTreeSet::new(),
            refresh_token: REFRESH_TOKEN.to_owned(),
            token_lifetime: Duration::from_secs(1800),
            token_lifetime_as_text: false,
            session_lifetime: Duration::from_secs(1800),
            read_only: false,
            rate_limit: 100,
            max_page: 1000,
            realization: Work::Taking(Duration::from_millis(300)),
            unrealized_visible: true,
            release_delay: Duration::ZERO,
            index_lag: Work::Instantly,
            purge: Work::Instantly,
            stale_error: (412, 604),
        }
    }
}
