//! Authentication: passwords, client certificates, access tokens of VMC, and sessions.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bowline_simulator::{Call, Reply};
use serde_json::json;
use tokio::time::Instant;

use super::options::Scheme;
use super::simulator::State;
use super::wire::{Outcome, error};

/// Request header with the name of the client certificate, as a proxy that ends TLS sends it.
pub const CERTIFICATE_HEADER: &str = "x-client-certificate";

/// Path where VMC exchanges a refresh token for an access token.
const EXCHANGE: [&str; 7] = ["csp", "gateway", "am", "api", "auth", "api-tokens", "authorize"];

/// Sessions, tokens and failed attempts.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    /// Name of the certificate that all clients present.
    pub(crate) certificate: Option<String>,
    /// Time at which each access token expires.
    pub(crate) tokens: BTreeMap<String, Instant>,
    pub(crate) sessions: BTreeMap<String, Session>,
    /// Consecutive wrong passwords, and the time of the last one.
    failures: u32,
    failed: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Session {
    xsrf: String,
    used: Instant,
}

/// Answers the calls that establish a session or exchange a token; `None` for all other calls.
pub(crate) fn answer(state: &mut State, call: &Call) -> Option<Outcome> {
    match (call.method.as_str(), call.segments().as_slice()) {
        ("POST", ["api", "session", "create"]) => Some(create_session(state, call)),
        ("POST", path) if path == EXCHANGE => Some(exchange(state, call)),
        _ => None,
    }
}

/// Returns the user who sent the call. A certificate precedes all headers.
pub(crate) fn admit(state: &mut State, call: &Call) -> Result<String, Reply> {
    let certificate = state.auth.certificate.as_deref().or(call.header(CERTIFICATE_HEADER)).map(str::to_owned);
    if let Some(name) = certificate {
        let is_known = accepts(state, Scheme::Certificate) && state.options.principals.contains(&name);
        return if is_known { Ok(name) } else { Err(refused()) };
    }
    if let Some(token) = call.header("csp-auth-token") {
        return check_token(state, token);
    }
    if let Some(value) = call.header("authorization") {
        return check_authorization(state, value);
    }
    match cookie(call) {
        Some(session) => check_session(state, call, session),
        None => Err(error(401, 401, "Authentication is required")),
    }
}

fn accepts(state: &State, scheme: Scheme) -> bool {
    state.options.schemes.contains(&scheme)
}

fn refused() -> Reply {
    error(403, 403, "The credentials were incorrect or the account specified has been locked.")
}

fn check_token(state: &State, token: &str) -> Result<String, Reply> {
    let expires = state.auth.tokens.get(token).filter(|_| accepts(state, Scheme::Vmc));
    match expires {
        Some(expires) if Instant::now() < *expires => Ok("vmc".to_owned()),
        _ => Err(error(401, 401, "The access token is invalid or expired")),
    }
}

fn check_authorization(state: &mut State, value: &str) -> Result<String, Reply> {
    let (word, encoded) = value.split_once(' ').unwrap_or_default();
    let scheme = match word {
        "Basic" => Scheme::Basic,
        "Remote" => Scheme::Remote,
        _ => return Err(refused()),
    };
    let decoded = BASE64_STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let (user, password) = decoded.as_deref().and_then(|pair| pair.split_once(':')).unwrap_or_default();
    check_password(state, scheme, user, password)
}

/// Checks a password. After too many wrong ones in succession, the account is locked.
fn check_password(state: &mut State, scheme: Scheme, user: &str, password: &str) -> Result<String, Reply> {
    let (limit, time) = state.options.lockout;
    if state.auth.failed.is_some_and(|failed| failed.elapsed() >= time) {
        (state.auth.failures, state.auth.failed) = (0, None);
    }
    if state.auth.failures >= limit {
        return Err(refused());
    }
    if !accepts(state, scheme) || user != state.options.user || password != state.options.password {
        (state.auth.failures, state.auth.failed) = (state.auth.failures + 1, Some(Instant::now()));
        return Err(refused());
    }
    state.auth.failures = 0;
    Ok(user.to_owned())
}

// ---- sessions

fn create_session(state: &mut State, call: &Call) -> Outcome {
    let form = call.form();
    let field = |name: &str| form.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let (user, password) = (field("j_username").unwrap_or_default(), field("j_password").unwrap_or_default());
    check_password(state, Scheme::Session, user, password)?;
    let (id, xsrf) = (state.ids.hex().to_uppercase(), state.ids.uuid());
    state.auth.sessions.insert(id.clone(), Session { xsrf: xsrf.clone(), used: Instant::now() });
    let cookie = format!("JSESSIONID={id}; Path=/; Secure; HttpOnly; SameSite=Lax");
    Ok(Reply::empty(200).with("set-cookie", cookie).with("x-xsrf-token", xsrf))
}

/// ID of the session in the cookies.
fn cookie(call: &Call) -> Option<&str> {
    let mut cookies = call.header("cookie")?.split(';');
    cookies.find_map(|cookie| cookie.trim().strip_prefix("JSESSIONID="))
}

fn check_session(state: &mut State, call: &Call, id: &str) -> Result<String, Reply> {
    let (lifetime, user) = (state.options.session_lifetime, state.options.user.clone());
    let session = state.auth.sessions.get_mut(id).filter(|session| session.used.elapsed() < lifetime);
    let session = session.ok_or_else(|| error(401, 401, "The session is unknown or expired"))?;
    if call.header("x-xsrf-token") != Some(&session.xsrf) {
        return Err(error(403, 98, "Bad XSRF token"));
    }
    session.used = Instant::now();
    Ok(user)
}

// ---- VMC

fn exchange(state: &mut State, call: &Call) -> Outcome {
    let is_form = call.header("content-type").is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    let sent = call.form().into_iter().find(|(key, _)| key == "refresh_token").map(|(_, value)| value);
    if !is_form || !accepts(state, Scheme::Vmc) || sent.as_ref() != Some(&state.options.refresh_token) {
        let message = "invalid_grant: Invalid refresh token";
        return Err(Reply::json(400, json!({"statusCode": 400, "moduleCode": 540, "message": message})));
    }
    let (token, lifetime) = (state.ids.hex(), state.options.token_lifetime);
    state.auth.tokens.insert(token.clone(), Instant::now() + lifetime);
    let seconds = lifetime.as_secs();
    let expires_in = if state.options.token_lifetime_as_text { json!(seconds.to_string()) } else { json!(seconds) };
    Ok(Reply::json(
        200,
        json!({
            "id_token": state.ids.hex(),
            "token_type": "bearer",
            "expires_in": expires_in,
            "scope": "ALL_PERMISSIONS openid",
            "access_token": token,
            "refresh_token": state.options.refresh_token,
        }),
    ))
}
