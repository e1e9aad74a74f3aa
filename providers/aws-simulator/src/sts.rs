//! STS: roles and identities.

use std::time::Duration;

use serde_json::json;

use crate::options::WEB_IDENTITY_TOKEN;
use crate::params::Params;
use crate::simulator::{Action, State};
use crate::wire::{Failure, Outcome, require};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new(
        "AssumeRole",
        "RoleArn! RoleSessionName! ExternalId DurationSeconds Policy PolicyArns.#.arn Tags.#.{Key,Value} SourceIdentity",
        assume_role,
    ),
    Action::new(
        "AssumeRoleWithWebIdentity",
        "RoleArn! RoleSessionName! WebIdentityToken! ProviderId DurationSeconds Policy PolicyArns.#.arn",
        assume_role_with_web_identity,
    ),
    Action::new("GetCallerIdentity", "", caller_identity),
];

fn assume_role(state: &mut State, params: &Params) -> Outcome {
    let expected = state.options.external_id.as_deref().unwrap_or_default();
    let denied = || {
        let (caller, role) = (&state.caller, params.text("RoleArn"));
        let message = format!("User: {caller} is not authorized to perform: sts:AssumeRole on resource: {role}");
        Failure::new("AccessDenied", message).with_status(403)
    };
    require(expected.is_empty() || params.text("ExternalId") == expected, denied)?;
    session(state, params)
}

fn assume_role_with_web_identity(state: &mut State, params: &Params) -> Outcome {
    let is_known = params.text("WebIdentityToken") == WEB_IDENTITY_TOKEN;
    require(is_known, || Failure::new("InvalidIdentityToken", "No OpenIDConnect provider found in your account"))?;
    let mut answer = session(state, params)?;
    answer["SubjectFromWebIdentityToken"] = json!("system:serviceaccount:kube-system:cloud-controller-manager");
    answer["Audience"] = json!("sts.amazonaws.com");
    Ok(answer)
}

fn session(state: &mut State, params: &Params) -> Outcome {
    let (role, name) = (params.text("RoleArn"), params.text("RoleSessionName"));
    let invalid = || Failure::validation(format!("{role} is invalid"));
    let (account, path) = role
        .strip_prefix("arn:aws:iam::")
        .and_then(|rest| rest.split_once(":role/"))
        .filter(|(account, path)| account.len() == 12 && !path.is_empty())
        .ok_or_else(invalid)?;
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
    require((2..=64).contains(&name.len()) && name.chars().all(is_legal), || {
        Failure::validation("1 validation error detected: roleSessionName is invalid")
    })?;
    let default = usize::try_from(state.options.session.as_secs()).unwrap_or(3600);
    let seconds = params.number("DurationSeconds")?.unwrap_or(default);
    require((1..=43_200).contains(&seconds), || Failure::validation("durationSeconds is invalid"))?;
    let arn = format!("arn:aws:sts::{account}:assumed-role/{}/{name}", path.rsplit('/').next().unwrap_or(path));
    let credentials = state.issue(&arn, Duration::from_secs(seconds as u64));
    let user = json!({"AssumedRoleId": format!("AROASIMULATED00000001:{name}"), "Arn": arn});
    Ok(json!({"Credentials": credentials, "AssumedRoleUser": user, "PackedPolicySize": 0}))
}

fn caller_identity(state: &mut State, _: &Params) -> Outcome {
    let account = state.caller.split(':').nth(4).unwrap_or_default();
    Ok(json!({"Arn": state.caller, "UserId": "AIDASIMULATED00000001", "Account": account}))
}
