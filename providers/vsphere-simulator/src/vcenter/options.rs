//! Options of a simulated vCenter.

use std::collections::BTreeSet;
use std::time::Duration;

/// Default user.
pub const USER: &str = "administrator@vsphere.local";

/// Default password, which has the characters that XML escapes.
pub const PASSWORD: &str = "pass<word>&1";

/// Options of a simulated vCenter.
#[derive(Debug, Clone)]
pub struct Options {
    /// The only user.
    pub user: String,
    /// Password of the user.
    pub password: String,
    /// UUID of the vCenter, by which clients recognise it under several names.
    pub instance_uuid: String,
    /// Certificate (PEM) whose holder can log in as the user.
    pub certificate: Option<String>,
    /// Version of the API, such as `8.0.2.0`.
    pub api_version: String,
    /// Number of failed logins in three minutes that lock an account for five minutes. Default: 5, as in vCenter.
    pub lockout_after: Option<usize>,
    /// Maximum number of SOAP sessions; further logins are answered with 503.
    pub session_limit: Option<usize>,
    /// Time after which an unused session ends.
    pub session_idle: Duration,
    /// Number of objects on a page if the client does not request another one.
    pub page: usize,
    /// Maximum number of objects on a page, whatever the client requests.
    pub max_page: usize,
    /// Whether the property path `config.extraConfig["key"]` is known. If not, it is reported as missing, as govmomi's simulator does.
    pub keyed_paths: bool,
    /// Whether the ID of a SOAP session is accepted in REST requests, as from vCenter 8.0U3 on.
    pub shared_sessions: bool,
    /// Bearer token of the session manager.
    pub session_manager_token: String,
    /// Privileges that the user lacks on all objects.
    pub withheld_privileges: BTreeSet<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            instance_uuid: "00000000-0000-4000-8000-000000000001".to_owned(),
            certificate: None,
            api_version: "8.0.2.0".to_owned(),
            lockout_after: Some(5),
            session_limit: None,
            session_idle: Duration::from_secs(1800),
            page: 100,
            max_page: usize::MAX,
            keyed_paths: true,
            shared_sessions: true,
            session_manager_token: "session-manager-token".to_owned(),
            withheld_privileges: BTreeSet::new(),
        }
    }
}
