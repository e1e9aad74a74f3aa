//! Tests of profiles.

use super::*;

const CONFIG: &str = "
# both
[default]
region = eu-west-1
[profile base]
aws_access_key_id = from-config
aws_secret_access_key = s
[profile dev] ; the team's
role_arn = arn:aws:iam::1:role/dev # comment
source_profile = base
external_id=x
Role_Session_Name = me
s3 =
  role_arn = nested
[profile own]
role_arn = arn:aws:iam::1:role/own
source_profile = own
aws_access_key_id = own
aws_secret_access_key = s
[profile chained]
role_arn = arn:aws:iam::1:role/chained
source_profile = dev
[profile instance]
role_arn = r
credential_source = Ec2InstanceMetadata
[profile container]
role_arn = r
credential_source = EcsContainer
[profile environment]
role_arn = r
credential_source = Environment
[profile irsa]
role_arn = r
web_identity_token_file = /token
[profile process]
credential_process = /bin/x
[profile sso]
sso_session = corp
[sso-session corp]
aws_access_key_id = wrong
[profile mfa]
role_arn = r
source_profile = base
mfa_serial = m
[profile a]
role_arn = r
source_profile = b
[profile b]
role_arn = r
source_profile = a
[profile orphan]
role_arn = r
[profile lost]
role_arn = r
source_profile = missing
[profile hollow]
role_arn = r
source_profile = default
[profile strange]
role_arn = r
credential_source = Moon
";

const CREDENTIALS: &str = "
[base]
aws_access_key_id = from-credentials
aws_session_token = t
[static]
aws_access_key_id = AKID
aws_secret_access_key = a=b#c
";

/// Describes a plan without secrets.
fn shown(plan: &Plan) -> String {
    match plan {
        Plan::Keys(keys, source) => format!("{} of {source}", keys.access_key_id),
        Plan::WebIdentity(WebIdentity { role, token_file }) => format!("{} with {token_file}", role.arn),
        Plan::Role { role, source } => {
            let id = role.external_id.as_deref().unwrap_or_default();
            format!("{} {}{id} by ({})", role.arn, role.session, shown(source))
        }
        Plan::Environment => "environment".to_owned(),
        Plan::Container => "container".to_owned(),
        Plan::Metadata => "metadata".to_owned(),
    }
}

fn plan(name: &str) -> std::result::Result<Option<String>, String> {
    let plan = Profiles::parse(CONFIG, CREDENTIALS).plan(name, true).map_err(|error| error.message().to_owned())?;
    Ok(plan.map(|plan| shown(&plan)))
}

#[test]
fn a_profile_says_where_its_credentials_come_from() {
    for (name, expected) in [
        ("default", None),
        ("base", Some("from-credentials of profile \"base\"")),
        ("static", Some("AKID of profile \"static\"")),
        ("dev", Some("arn:aws:iam::1:role/dev mex by (from-credentials of profile \"base\")")),
        ("own", Some("arn:aws:iam::1:role/own  by (own of profile \"own\")")),
        (
            "chained",
            Some(
                "arn:aws:iam::1:role/chained  by (arn:aws:iam::1:role/dev mex by (from-credentials of profile \"base\"))",
            ),
        ),
        ("instance", Some("r  by (metadata)")),
        ("container", Some("r  by (container)")),
        ("environment", Some("r  by (environment)")),
        ("irsa", Some("r with /token")),
    ] {
        assert_eq!(plan(name), Ok(expected.map(str::to_owned)), "{name}");
    }
}

#[test]
fn a_profile_that_cannot_be_used_says_why() {
    for (name, expected) in [
        ("missing", "AWS_PROFILE: there is no profile \"missing\""),
        ("corp", "there is no profile \"corp\""),
        ("process", "profile \"process\": credential_process is not supported"),
        ("sso", "profile \"sso\": sso_session is not supported"),
        ("mfa", "profile \"mfa\": mfa_serial is not supported"),
        ("a", "profile \"a\" is its own source_profile, through a, b"),
        ("orphan", "profile \"orphan\" has a role_arn and no source for it"),
        ("lost", "profile \"lost\": there is no source_profile \"missing\""),
        ("hollow", "profile \"hollow\": the source_profile \"default\" has no credentials"),
        ("strange", "credential_source \"Moon\" is not Environment, EcsContainer or Ec2InstanceMetadata"),
    ] {
        let error = plan(name).unwrap_err();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn the_default_profile_may_be_missing() {
    assert!(Profiles::parse("", "").plan(DEFAULT, false).unwrap().is_none());
    let found = Profiles::parse("[default]\naws_access_key_id=a\naws_secret_access_key=b", "");
    assert_eq!(
        found.plan(DEFAULT, false).unwrap().map(|plan| shown(&plan)).as_deref(),
        Some("a of profile \"default\"")
    );
    let value = Profiles::parse("", CREDENTIALS).0["static"]["aws_secret_access_key"].clone();
    assert_eq!(value, "a=b#c", "only a space begins a comment");
}
