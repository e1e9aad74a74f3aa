//! Credentials of requests: access keys, session tokens and the scope of signatures. The signature itself is not checked.

use std::time::Duration;

use bowline_simulator::{Call, Fields, Record};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tokio::time::Instant;

use crate::options::{ACCESS_KEY, SECRET_KEY};
use crate::simulator::State;
use crate::wire::{Api, Failure, require};

/// Signature algorithm in the `Authorization` header.
const ALGORITHM: &str = "AWS4-HMAC-SHA256 ";

/// An access key.
#[derive(Debug, Clone)]
pub(crate) struct AccessKey {
    pub(crate) secret: String,
    /// Session token; empty for a key without expiry.
    pub(crate) token: String,
    pub(crate) expires: Option<Instant>,
    /// ARN of the identity.
    pub(crate) arn: String,
}

impl AccessKey {
    /// Key of the account, which does not expire.
    pub(crate) fn of_account(account: &str) -> (String, AccessKey) {
        let arn = format!("arn:aws:iam::{account}:user/simulated");
        let (secret, token) = (SECRET_KEY.to_owned(), String::new());
        (ACCESS_KEY.to_owned(), AccessKey { secret, token, expires: None, arn })
    }
}

impl State {
    /// Issues session credentials, with the field names of STS.
    pub(crate) fn issue(&mut self, arn: &str, lifetime: Duration) -> Record {
        let [id, secret, token] = [self.ids.hex(), self.ids.hex(), self.ids.hex()];
        let id = format!("ASIA{}", id.to_uppercase().get(..16).unwrap_or_default());
        let mut issued = Record::new();
        issued.set("AccessKeyId", id.clone());
        issued.set("SecretAccessKey", format!("{secret}/session"));
        // Real tokens have characters that must be encoded in a form and kept in a header.
        issued.set("SessionToken", format!("FwoGZXIvYXdzE{token}+/{secret}=="));
        issued.set("Expiration", self.clock.date_in(lifetime).strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let [secret, token] = ["SecretAccessKey", "SessionToken"].map(|field| issued.text(field).to_owned());
        let expires = Instant::now().checked_add(lifetime);
        self.keys.insert(id, AccessKey { secret, token, expires, arn: arn.to_owned() });
        issued
    }
}

/// Checks the credentials of a request and returns the ARN of the identity.
pub(crate) fn check(state: &State, api: Api, call: &Call) -> Result<String, Failure> {
    let header = call.header("authorization").unwrap_or_default();
    let missing =
        || Failure::new("MissingAuthenticationToken", "Request is missing Authentication Token").with_status(403);
    require(!header.is_empty(), missing)?;
    let incomplete = || Failure::new("IncompleteSignature", "Authorization header cannot be parsed");
    let parts = header.strip_prefix(ALGORITHM).ok_or_else(incomplete)?;
    let part = |name: &str| parts.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
    let scope: Vec<&str> = part("Credential").unwrap_or_default().split('/').collect();
    let [id, date, region, service, "aws4_request"] = scope.as_slice() else { return Err(incomplete()) };
    require(part("Signature").is_some_and(|signature| signature.len() == 64), incomplete)?;
    let key = check_key(state, api, call, id)?;
    check_scope(state, api, region, service)?;
    check_headers(call, api, part("SignedHeaders").unwrap_or_default())?;
    check_date(state, api, call.header("x-amz-date").unwrap_or_default(), date)?;
    Ok(key.arn.clone())
}

fn check_key<'a>(state: &'a State, api: Api, call: &Call, id: &str) -> Result<&'a AccessKey, Failure> {
    let unknown = || match api {
        Api::Ec2 => auth_failure(),
        _ => forbidden("InvalidClientTokenId", "The security token included in the request is invalid."),
    };
    let key = state.keys.get(id).ok_or_else(unknown)?;
    require(call.header("x-amz-security-token").unwrap_or_default() == key.token, unknown)?;
    let is_expired = key.expires.is_some_and(|expires| expires <= Instant::now());
    require(!is_expired, || match api {
        Api::Ec2 => Failure::new("RequestExpired", "Request has expired."),
        _ => forbidden("ExpiredToken", "The security token included in the request is expired"),
    })?;
    Ok(key)
}

fn check_scope(state: &State, api: Api, region: &str, service: &str) -> Result<(), Failure> {
    require(service == api.signing_name(), || {
        mismatch(api, format!("Credential should be scoped to correct service: '{}'.", api.signing_name()))
    })?;
    // The global endpoint of STS takes the region us-east-1, whatever the region of the client.
    let is_known = region == state.options.region || api == Api::Sts && region == "us-east-1";
    require(is_known, || mismatch(api, format!("Credential should be scoped to a valid region, not '{region}'. ")))
}

fn check_headers(call: &Call, api: Api, signed: &str) -> Result<(), Failure> {
    let signed: Vec<&str> = signed.split(';').collect();
    let is_missing = |name: &&str| call.headers.contains_key(*name) && !signed.contains(name);
    let mut required =
        ["host", "x-amz-date", "x-amz-security-token", "x-amz-source-arn", "x-amz-source-account"].into_iter();
    require(!required.any(|name| is_missing(&name)), || mismatch(api, "SignedHeaders lacks a required header"))?;
    require(signed.is_sorted(), || mismatch(api, "SignedHeaders is not sorted"))
}

/// Checks that the date of the request is that of the scope, and that the clocks agree if the options limit the difference.
fn check_date(state: &State, api: Api, sent: &str, scope: &str) -> Result<(), Failure> {
    let date = DateTime::strptime("%Y%m%dT%H%M%SZ", sent).ok().and_then(|date| date.to_zoned(TimeZone::UTC).ok());
    let date = date.ok_or_else(|| Failure::new("IncompleteSignature", "Authorization header requires 'X-Amz-Date'"))?;
    require(sent.starts_with(scope), || {
        mismatch(api, "Date in Credential scope does not match the date of the request")
    })?;
    let now = state.clock.date_in(Duration::ZERO);
    let skew = Duration::try_from(date.timestamp().duration_since(now).abs()).unwrap_or_default();
    require(state.options.clock_skew.is_none_or(|limit| skew <= limit), || match api {
        Api::Ec2 => Failure::new("RequestExpired", "Request has expired."),
        _ => mismatch(api, format!("Signature expired: {sent} is too far from {now}")),
    })
}

fn auth_failure() -> Failure {
    Failure::new("AuthFailure", "AWS was not able to validate the provided access credentials").with_status(401)
}

/// Error for a signature that does not match. EC2 has one error for all of them.
fn mismatch(api: Api, message: impl Into<String>) -> Failure {
    if api == Api::Ec2 { auth_failure() } else { forbidden("SignatureDoesNotMatch", message) }
}

fn forbidden(code: &str, message: impl Into<String>) -> Failure {
    Failure::new(code, message).with_status(403)
}
