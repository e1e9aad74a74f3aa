//! Instance metadata service (IMDSv2), and the credentials endpoint of containers.

use std::time::Duration;

use bowline_simulator::{Call, Fields, Record, Reply};
use serde_json::json;
use tokio::time::Instant;

use crate::options::CONTAINER_TOKEN;
use crate::params::text;
use crate::simulator::State;

/// Name of the role in the instance profile.
pub(crate) const ROLE: &str = "control-plane";

/// Maximum time to live of a token: six hours.
const LONGEST: u64 = 21_600;

/// An endpoint other than the query APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Instance,
    Container,
}

impl Endpoint {
    /// Endpoint of a request; `None` for a query API.
    pub(crate) fn of(call: &Call) -> Option<Endpoint> {
        match call.segments().as_slice() {
            ["latest", ..] => Some(Endpoint::Instance),
            ["v1" | "v2", "credentials", ..] => Some(Endpoint::Container),
            _ => None,
        }
    }

    /// Name in journal entries and faults.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Endpoint::Instance => "imds",
            Endpoint::Container => "container",
        }
    }
}

pub(crate) fn answer(state: &mut State, call: &Call, endpoint: Endpoint) -> Reply {
    match (endpoint, call.method.as_str(), call.path.get(1..).unwrap_or_default().join("/").as_str()) {
        (Endpoint::Container, "GET", _) => container_credentials(state, call),
        (Endpoint::Instance, "PUT", "api/token") => token(state, call),
        (Endpoint::Instance, "GET", path) => {
            let token = call.header("x-aws-ec2-metadata-token").unwrap_or_default();
            let is_valid = state.tokens.get(token).is_some_and(|expires| *expires > Instant::now());
            if is_valid { read(state, path) } else { Reply::text(401, "401 - Unauthorized") }
        }
        _ => Reply::text(405, "405 - Method Not Allowed"),
    }
}

fn token(state: &mut State, call: &Call) -> Reply {
    let ttl = call.header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|ttl| ttl.parse::<u64>().ok());
    let Some(ttl) = ttl.filter(|ttl| (1..=LONGEST).contains(ttl)) else {
        return Reply::text(400, "400 - Bad Request");
    };
    let token = format!("{}==", state.ids.hex());
    state.tokens.insert(token.clone(), Instant::now() + Duration::from_secs(ttl));
    Reply::text(200, token).with("x-aws-ec2-metadata-token-ttl-seconds", ttl.to_string())
}

/// Value at a path below `/latest`.
fn read(state: &mut State, path: &str) -> Reply {
    let not_found = || Reply::text(404, "404 - Not Found");
    let own = state.own_instance.clone();
    let Some(instance) = state.records.get("instance", &own).cloned() else { return not_found() };
    let role = format!("meta-data/iam/security-credentials/{ROLE}");
    if path == role {
        let arn = format!("arn:aws:sts::{}:assumed-role/{ROLE}/{own}", state.options.account);
        return Reply::json(200, credentials(state, &arn, &[("Code", "Success"), ("Type", "AWS-HMAC")]).into());
    }
    let value = match path {
        "dynamic/instance-identity/document" => return Reply::text(200, document(state, &instance)),
        "meta-data/iam/security-credentials" => ROLE.to_owned(),
        "meta-data/instance-id" => own,
        "meta-data/instance-type" => instance.text("instanceType").to_owned(),
        "meta-data/hostname" | "meta-data/local-hostname" => instance.text("privateDnsName").to_owned(),
        "meta-data/local-ipv4" => instance.text("privateIpAddress").to_owned(),
        "meta-data/placement/region" => state.options.region.clone(),
        "meta-data/placement/availability-zone" => zone(&instance),
        "meta-data/services/domain" => "amazonaws.com".to_owned(),
        _ => match interface(&state.interfaces(&own), path) {
            Some(value) => value,
            None => return not_found(),
        },
    };
    Reply::text(200, value)
}

/// Value at a path of a network interface: its MAC address, VPC or subnet.
fn interface(interfaces: &[&Record], path: &str) -> Option<String> {
    let interface = interfaces.first()?;
    let mac = interface.text("macAddress");
    match path.strip_prefix("meta-data/network/interfaces/macs") {
        Some("") => Some(format!("{mac}/")),
        Some(rest) => match rest.strip_prefix('/')?.strip_prefix(mac)? {
            "/vpc-id" => Some(interface.text("vpcId").to_owned()),
            "/subnet-id" => Some(interface.text("subnetId").to_owned()),
            _ => None,
        },
        None => Some(mac.to_owned()).filter(|_| path == "meta-data/mac"),
    }
}

fn zone(instance: &Record) -> String {
    instance.get("placement").map(|placement| text(placement, "availabilityZone").to_owned()).unwrap_or_default()
}

fn document(state: &State, instance: &Record) -> String {
    let [id, kind, ip] = ["instanceId", "instanceType", "privateIpAddress"].map(|field| instance.text(field));
    let (account, region, zone) = (&state.options.account, &state.options.region, zone(instance));
    let document = json!({"accountId": account, "architecture": "x86_64", "availabilityZone": zone, "imageId": "ami-0simulated",
        "instanceId": id, "instanceType": kind, "privateIp": ip, "region": region, "version": "2017-09-30"});
    format!("{document:#}")
}

fn container_credentials(state: &mut State, call: &Call) -> Reply {
    if call.header("authorization") != Some(CONTAINER_TOKEN) {
        return Reply::json(401, json!({"code": "AccessDenied", "message": "invalid Authorization"}));
    }
    let arn = format!("arn:aws:sts::{}:assumed-role/task/container", state.options.account);
    Reply::json(200, credentials(state, &arn, &[("RoleArn", &arn)]).into())
}

/// Session credentials in the format of both endpoints.
fn credentials(state: &mut State, arn: &str, fields: &[(&str, &str)]) -> Record {
    let mut issued = state.issue(arn, state.options.session);
    let token = issued.remove("SessionToken");
    issued.set("Token", token);
    issued.set("LastUpdated", state.clock.format("%Y-%m-%dT%H:%M:%SZ"));
    fields.iter().for_each(|(field, value)| issued.set(field, *value));
    issued
}
