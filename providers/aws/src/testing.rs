//! An AWS account for tests: prepared responses by action, and a record of the requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::BuildInputs;
use bowline_config::{ConfigFile, Environment};
use bowline_http::{Client, Handler, RequestError};
use bytes::Bytes;
use http::{Request, Response};

use crate::api::Tags;
use crate::{Aws, Config};

/// An account with one instance, on which the manager runs. Clones share it.
#[derive(Clone)]
pub(crate) struct Account(Arc<State>);

struct State {
    /// Status and body, by action or by a part of the URL.
    answers: Mutex<BTreeMap<String, (u16, String)>>,
    requests: Mutex<Vec<String>>,
}

/// Key of the response to dry runs.
const DRY_RUN: &str = "DryRun";

/// Creates tags.
pub(crate) fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const INSTANCE: &str = "<R><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId><vpcId>vpc-1</vpcId>\
    <subnetId>subnet-1</subnetId><privateDnsName>ip-10-0-0-1.ec2.internal</privateDnsName><tagSet><item>\
    <key>kubernetes.io/cluster/demo</key><value>owned</value></item></tagSet></item></instancesSet></item></reservationSet></R>";

const CALLER: &str = "<R><GetCallerIdentityResult><Account>111122223333</Account><Arn>arn:aws:sts::111122223333:role/ccm</Arn>\
    <UserId>u</UserId></GetCallerIdentityResult></R>";

impl Account {
    /// Creates an account.
    pub(crate) fn new() -> Account {
        let account = Account(Arc::new(State { answers: Mutex::default(), requests: Mutex::default() }));
        for (part, body) in [
            ("/latest/api/token", "session"),
            ("/latest/dynamic/instance-identity/document", r#"{"region": "eu-west-1"}"#),
            ("/latest/meta-data/instance-id", "i-1"),
            ("DescribeInstances", INSTANCE),
            ("GetCallerIdentity", CALLER),
        ] {
            account.answer(part, body);
        }
        account
    }

    /// Sets the response to an action, or to requests whose URL contains a part.
    pub(crate) fn answer(&self, part: &str, body: &str) {
        self.0.answers.lock().unwrap().insert(part.to_owned(), (200, body.to_owned()));
    }

    /// Lets an action, or requests whose URL contains a part, fail with this status.
    pub(crate) fn fail(&self, part: &str, status: u16) {
        self.0.answers.lock().unwrap().insert(part.to_owned(), (status, "no".to_owned()));
    }

    /// Lets an action fail with this status and code.
    pub(crate) fn refuse(&self, action: &str, status: u16, code: &str) {
        let body = format!("<R><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors></R>");
        self.0.answers.lock().unwrap().insert(action.to_owned(), (status, body));
    }

    /// Lets dry runs of `DescribeInstances` fail as AWS does for an allowed action.
    pub(crate) fn supports_dry_runs(&self) {
        self.refuse(DRY_RUN, 412, "DryRunOperation");
    }

    /// Returns the requests so far: actions with their parameters, or methods with their paths.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.requests.lock().unwrap().clone()
    }

    /// Returns the number of actions that change something.
    pub(crate) fn writes(&self) -> usize {
        let is_read = |request: &String| {
            ["Describe", "GET", "PUT /latest/api", "Get"].iter().any(|read| request.starts_with(read))
        };
        self.requests().iter().filter(|request| !is_read(request) && !request.contains("DryRun=true")).count()
    }

    /// Creates a provider with these lines in `[Global]`.
    pub(crate) fn provider(&self, lines: &str) -> Aws {
        let variables = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "s3cret")];
        let inputs = BuildInputs { environment: Environment::from_iter(variables), ..BuildInputs::default() };
        let (file, cluster) = (ConfigFile::from_text("cloud.conf", format!("[Global]\n{lines}")), "kubernetes".into());
        let config = Config::read(&inputs.context(Some(&file), &cluster)).unwrap();
        let http = Client::in_process(Arc::new(self.clone()), Duration::from_secs(5));
        Aws::over(config, http, &cluster).unwrap()
    }

    fn respond(&self, request: &Request<Bytes>) -> (u16, String) {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let url = request.uri().to_string();
        let action = body.strip_prefix("Action=").and_then(|rest| rest.split('&').next()).map(str::to_owned);
        let shown = match &action {
            Some(_) => body.trim_start_matches("Action=").to_owned(),
            None => format!("{} {}", request.method(), request.uri().path()),
        };
        self.0.requests.lock().unwrap().push(shown);
        let answers = self.0.answers.lock().unwrap();
        if let Some(answer) = answers
            .get(DRY_RUN)
            .filter(|_| body.contains("DryRun=true") && action.as_deref() == Some("DescribeInstances"))
        {
            return answer.clone();
        }
        let found = match &action {
            Some(action) => answers.get(action),
            None => answers.iter().rev().find(|(part, _)| url.contains(part.as_str())).map(|(_, answer)| answer),
        };
        found.cloned().unwrap_or((400, "<R><Errors><Error><Code>InvalidAction</Code></Error></Errors></R>".to_owned()))
    }
}

#[async_trait]
impl Handler for Account {
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        let (status, body) = self.respond(&request);
        let response = Response::builder().status(status).body(Bytes::from(body));
        response.map_err(|error| RequestError::Request(error.to_string()))
    }
}
