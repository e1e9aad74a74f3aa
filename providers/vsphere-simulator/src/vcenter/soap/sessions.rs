//! The session manager: logins, sessions and clone tickets.

use bowline_simulator::Call;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Fault, Outcome, Request, Returned};
use crate::vcenter::schema::Type;
use crate::vcenter::simulator::{LOCKED, Session, State};

/// Name of the cookie with the session.
pub(in crate::vcenter) const SESSION_COOKIE: &str = "vmware_soap_session";

/// ID of the session in the cookie; empty if there is none.
pub(in crate::vcenter) fn session_cookie(call: &Call) -> String {
    let cookies =
        call.header("cookie").unwrap_or_default().split(';').filter_map(|cookie| cookie.trim().split_once('='));
    let id = cookies.filter(|(name, _)| *name == SESSION_COOKIE).map(|(_, value)| value.trim_matches('"')).next();
    id.unwrap_or_default().to_owned()
}

pub(super) fn is_login(method: &str) -> bool {
    ["Login", "LoginByToken", "CloneSession"].contains(&method)
}

pub(super) fn call(state: &mut State, request: &Request) -> Outcome {
    match request.method.as_str() {
        "Login" => {
            let (user, password) = (request.arguments.text("userName"), request.arguments.text("password"));
            let is_open = state.sessions.contains_key(&request.session);
            let accepted = !is_open && state.accepts(user, password);
            if accepted { Ok(open(state, user)) } else { Err(Fault::invalid_login()) }
        }
        "LoginByToken" => {
            let assertion = request.header.as_ref().and_then(|header| header.find("Assertion"));
            let user = assertion.and_then(|assertion| state.tokens.get(assertion.attribute("ID")?)).cloned();
            user.map(|user| open(state, &user)).ok_or_else(Fault::invalid_login)
        }
        "CloneSession" => {
            let user = state.tickets.remove(request.arguments.text("cloneTicket"));
            user.map(|user| open(state, &user)).ok_or_else(Fault::invalid_login)
        }
        "AcquireCloneTicket" => {
            let user = state.session(request)?.user.clone();
            Ok(Returned::Value(Type::of("string"), state.new_ticket(&user).into()))
        }
        "SessionIsActive" => {
            let key = request.arguments.text("sessionID");
            let is_active = state.sessions.values().any(|session| session.key == key);
            Ok(Returned::Value(Type::of("boolean"), is_active.into()))
        }
        "Logout" => {
            state.sessions.remove(&request.session);
            Ok(Returned::Nothing)
        }
        _ => Err(Fault::invalid_request()),
    }
}

/// Opens a session.
fn open(state: &mut State, user: &str) -> Returned {
    let (id, key, login) = (state.ids.hex(), state.ids.uuid(), state.now());
    let session = Session::new(key, user, login);
    let value = described(&session, state);
    state.sessions.insert(id.clone(), session);
    Returned::Session(id, value)
}

/// A session as `UserSession`.
pub(super) fn described(session: &Session, state: &State) -> Value {
    json!({
        "key": session.key, "userName": session.user, "fullName": session.user, "loginTime": session.login,
        "lastActiveTime": state.now(), "locale": "en_US", "messageLocale": "en_US", "extensionSession": false,
        "ipAddress": "127.0.0.1", "userAgent": "", "callCount": 0,
    })
}

impl State {
    /// Session of a request.
    pub(super) fn session(&mut self, request: &Request) -> Result<&mut Session, Fault> {
        self.sessions.get_mut(&request.session).ok_or_else(|| Fault::not_authenticated(&request.this))
    }

    /// Whether there is a user with this password. Counts failures, and accepts nothing while the account is locked.
    pub(in crate::vcenter) fn accepts(&mut self, user: &str, password: &str) -> bool {
        let failures = self.failures.entry(user.to_owned()).or_default();
        let limit = self.options.lockout_after.unwrap_or(usize::MAX);
        failures.retain(|failed| failed.elapsed() < LOCKED);
        if failures.len() >= limit {
            return false;
        }
        if user == self.options.user && password == self.options.password {
            failures.clear();
            return true;
        }
        failures.push(Instant::now());
        false
    }
}
