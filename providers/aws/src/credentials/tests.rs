//! Tests of the chain, each source and the signature, against recorded requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use async_trait::async_trait;
use bowline_cloud::{BuildInputs, CallPolicy, Calls};
use bowline_config::{ConfigFile, Environment};
use bowline_http::{Client, Handler, RequestError};
use bytes::Bytes;
use http::{Request, Response};
use serde::Deserialize;
use tokio::time::{advance, sleep};

use super::*;
use crate::api::{Query, Service};
use crate::endpoints::ApiName;

const SECRET: &str = "wJalrXUtnFEMI";

/// AWS, its metadata service and a container endpoint.
#[derive(Default)]
pub(super) struct Cloud {
    requests: Mutex<Vec<Request<Bytes>>>,
    /// Number of credentials that were issued.
    issued: AtomicI64,
    /// Access keys that EC2 rejects, and the code of the error.
    rejected: Mutex<Vec<(String, &'static str)>>,
    /// Paths that fail with this status.
    failing: Mutex<Vec<(&'static str, u16)>>,
    /// Seconds by which the clock of AWS differs.
    skew: AtomicI64,
    /// Lifetime of issued credentials.
    lifetime: AtomicI64,
}

type Answer = std::result::Result<Response<Bytes>, RequestError>;

fn answer(status: u16, body: impl Into<String>) -> Response<Bytes> {
    Response::builder().status(status).body(Bytes::from(body.into())).unwrap()
}

#[async_trait]
impl Handler for Cloud {
    async fn handle(&self, request: Request<Bytes>) -> Answer {
        let response = self.respond(&request);
        self.requests.lock().unwrap().push(request);
        Ok(response)
    }
}

impl Cloud {
    fn new() -> Arc<Cloud> {
        let cloud = Cloud::default();
        cloud.lifetime.store(3600, SeqCst);
        Arc::new(cloud)
    }

    fn respond(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let (host, path) = (request.uri().host().unwrap(), request.uri().path());
        if let Some((_, status)) =
            self.failing.lock().unwrap().iter().find(|(failing, _)| path.contains(failing) || host.contains(failing))
        {
            return answer(*status, "no");
        }
        match (host, path) {
            (host, _) if host.starts_with("sts.") => self.sts(request),
            (host, _) if host.starts_with("ec2.") => self.ec2(request),
            ("169.254.169.254", "/latest/api/token") => answer(200, "session-1"),
            (_, "/latest/meta-data/iam/security-credentials/") => answer(200, "node-role\n"),
            (_, "/latest/meta-data/iam/security-credentials/node-role") => answer(200, self.document("IMDS")),
            (_, "/v1/credentials") => answer(200, self.document("POD")),
            _ => answer(404, "nothing here"),
        }
    }

    fn expiry(&self) -> String {
        (Timestamp::now() + jiff::SignedDuration::from_secs(self.lifetime.load(SeqCst))).to_string()
    }

    fn key(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.issued.fetch_add(1, SeqCst) + 1)
    }

    fn document(&self, prefix: &str) -> String {
        let (key, expiry) = (self.key(prefix), self.expiry());
        format!(
            r#"{{"Code": "Success", "AccessKeyId": "{key}", "SecretAccessKey": "{SECRET}", "Token": "t", "Expiration": "{expiry}"}}"#
        )
    }

    fn sts(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let action = if body.contains("WebIdentity") { "AssumeRoleWithWebIdentity" } else { "AssumeRole" };
        let key = self.key(if action == "AssumeRole" { "ROLE" } else { "WEB" });
        answer(
            200,
            format!(
                "<{action}Response><{action}Result><Credentials><AccessKeyId>{key}</AccessKeyId>\
             <SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{}</Expiration></Credentials>\
             </{action}Result></{action}Response>",
                self.expiry()
            ),
        )
    }

    fn ec2(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let error = |code: &str| {
            let date =
                std::time::SystemTime::from(Timestamp::now() + jiff::SignedDuration::from_secs(self.skew.load(SeqCst)));
            let date = jiff::fmt::rfc2822::DateTimePrinter::new()
                .timestamp_to_rfc9110_string(&Timestamp::try_from(date).unwrap())
                .unwrap();
            let body =
                format!("<Response><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors></Response>");
            let mut response = answer(400, body);
            response.headers_mut().insert("date", date.parse().unwrap());
            response
        };
        let signed = text(request, "x-amz-date");
        let signed: Timestamp = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", signed)
            .unwrap()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .unwrap()
            .timestamp();
        let skew = signed.duration_since(Timestamp::now()).as_secs() - self.skew.load(SeqCst);
        if skew.abs() > 300 {
            return error("RequestExpired");
        }
        let key = key_of(request);
        match self.rejected.lock().unwrap().iter().find(|(rejected, _)| *rejected == key) {
            Some((_, code)) => error(code),
            None => answer(200, "<R><requestId>1</requestId></R>"),
        }
    }

    /// Returns the access keys of the calls to EC2.
    fn keys(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.uri().host().unwrap().starts_with("ec2.")).map(key_of).collect()
    }

    fn requests_to(&self, part: &str) -> Vec<Request<Bytes>> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.uri().to_string().contains(part)).cloned().collect()
    }

    fn reject(&self, key: &str, code: &'static str) {
        self.rejected.lock().unwrap().push((key.to_owned(), code));
    }
}

fn text<'a>(request: &'a Request<Bytes>, header: &str) -> &'a str {
    request.headers().get(header).map_or("", |value| value.to_str().unwrap())
}

fn key_of(request: &Request<Bytes>) -> String {
    let header = text(request, "authorization");
    header.split_once("Credential=").and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default().to_owned()
}

fn body_of(request: &Request<Bytes>) -> String {
    String::from_utf8(request.body().to_vec()).unwrap()
}

/// A client of EC2 with credentials from these variables and this file.
struct Bench {
    cloud: Arc<Cloud>,
    ec2: Service,
    credentials: Credentials,
}

impl Bench {
    fn new(variables: &[(&str, &str)], file: &str) -> Bench {
        let cloud = Cloud::new();
        let environment = Environment::from_iter(variables.iter().copied());
        let calls = Calls::new(CallPolicy { max_attempts: 1, ..CallPolicy::default() });
        let inputs = BuildInputs { environment, calls, ..BuildInputs::default() };
        let (cluster, file) =
            ("kubernetes".into(), ConfigFile::from_text("c", format!("[Global]\nRegion=eu-west-1\n{file}")));
        let context = inputs.context(Some(&file), &cluster);
        let config = Arc::new(Config::read(&context).unwrap());
        let endpoints = Endpoints::new(config.clone());
        let http = Client::in_process(cloud.clone(), Duration::from_secs(5));
        let credentials = Credentials::new(&config, &endpoints, &http, &context).unwrap();
        let signer = Signer { credentials: credentials.clone(), endpoints, api: ApiName::Ec2 };
        let ec2 = Service::new(http, &inputs.calls, crate::api::ec2::API, "agent".parse().unwrap(), signer);
        Bench { cloud, ec2, credentials }
    }

    async fn call(&self) -> Result<()> {
        #[derive(Deserialize)]
        struct Empty {}
        self.ec2.send::<Empty>(Query::create("CreateSecurityGroup")).await.map(drop)
    }

    async fn source(&self) -> String {
        self.credentials.source().await.unwrap()
    }

    /// Returns the error of a call, which contains no secret.
    async fn error(&self) -> String {
        let error = self.call().await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
        error.to_string()
    }
}

const STATIC: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", SECRET)];

/// A folder for the files of one test, removed on drop.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("bowline-aws-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// ---- sources

#[tokio::test]
async fn keys_in_the_environment_come_first() {
    let mut variables = STATIC.to_vec();
    variables.extend([
        ("AWS_SESSION_TOKEN", "session"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/none"),
        ("AWS_ROLE_ARN", "r"),
    ]);
    let bench = Bench::new(&variables, "");
    bench.call().await.unwrap();
    let requests = bench.cloud.requests_to("ec2.");
    let authorization = text(&requests[0], "authorization");
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{authorization}");
    assert!(authorization.contains("/eu-west-1/ec2/aws4_request"), "{authorization}");
    assert_eq!(text(&requests[0], "x-amz-security-token"), "session");
    assert_eq!((bench.source().await.as_str(), bench.cloud.requests.lock().unwrap().len()), ("the environment", 1));
}

#[tokio::test]
async fn a_web_identity_token_is_read_again_for_each_renewal() {
    let folder = Folder::new("irsa");
    let token = folder.write("token", "first\n");
    let variables = [
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/ccm"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.as_str()),
        ("AWS_ROLE_SESSION_NAME", "me"),
    ];
    let bench = Bench::new(&variables, "");
    bench.call().await.unwrap();
    folder.write("token", "second\n");
    bench.cloud.reject("WEB1", "ExpiredToken");
    bench.call().await.unwrap();
    assert_eq!(bench.cloud.keys(), ["WEB1", "WEB1", "WEB2"]);
    let requests = bench.cloud.requests_to("sts.");
    assert_eq!(requests[0].uri(), "https://sts.eu-west-1.amazonaws.com/");
    assert_eq!(text(&requests[0], "authorization"), "", "the token is the proof");
    let expected = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&WebIdentityToken=first\
                    &RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fccm&RoleSessionName=me";
    assert_eq!(body_of(&requests[0]), expected);
    assert!(body_of(&requests[1]).contains("WebIdentityToken=second"));
}

#[tokio::test]
async fn the_role_of_a_profile_is_assumed_with_its_source() {
    let folder = Folder::new("profile");
    let text_of = "[profile dev]\nrole_arn = arn:aws:iam::1:role/dev\nsource_profile = base\nexternal_id = x\n";
    let config = folder.write("config", text_of);
    let credentials =
        folder.write("credentials", &format!("[base]\naws_access_key_id=BASE\naws_secret_access_key={SECRET}\n"));
    let variables =
        [("AWS_CONFIG_FILE", config.as_str()), ("AWS_SHARED_CREDENTIALS_FILE", &credentials), ("AWS_PROFILE", "dev")];
    let bench = Bench::new(&variables, "");
    bench.call().await.unwrap();
    let requests = bench.cloud.requests_to("sts.");
    assert_eq!((key_of(&requests[0]).as_str(), bench.cloud.keys()), ("BASE", vec!["ROLE1".to_owned()]));
    let body = body_of(&requests[0]);
    assert!(body.contains("ExternalId=x") && body.contains("RoleSessionName=aws-cloud-provider"), "{body}");
    assert_eq!(bench.source().await, "the role arn:aws:iam::1:role/dev");
}

#[tokio::test]
async fn a_rotated_credentials_file_is_read_when_aws_rejects_the_old_keys() {
    let folder = Folder::new("rotated");
    let keys = |id: &str| format!("[default]\naws_access_key_id={id}\naws_secret_access_key={SECRET}\n");
    folder.write("credentials", &keys("OLD"));
    let home = folder.0.join("home");
    std::fs::create_dir_all(home.join(".aws")).unwrap();
    std::fs::write(home.join(".aws/credentials"), keys("OLD")).unwrap();
    let bench = Bench::new(&[("HOME", home.to_str().unwrap())], "");
    bench.call().await.unwrap();
    bench.cloud.reject("OLD", "InvalidClientTokenId");
    assert!(bench.error().await.contains("InvalidClientTokenId"), "the file has the same keys");
    assert_eq!(bench.cloud.keys(), ["OLD", "OLD"], "they are not sent again");
    std::fs::write(home.join(".aws/credentials"), keys("NEW")).unwrap();
    bench.call().await.unwrap();
    assert_eq!(bench.cloud.keys(), ["OLD", "OLD", "OLD", "NEW"]);
}

#[tokio::test]
async fn the_container_endpoint_gets_the_token_of_the_file() {
    let folder = Folder::new("pod");
    let token = folder.write("token", "eks-token");
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.as_str()),
    ];
    let bench = Bench::new(&variables, "");
    bench.call().await.unwrap();
    let requests = bench.cloud.requests_to("169.254.170.23");
    assert_eq!(requests[0].uri(), "http://169.254.170.23/v1/credentials");
    assert_eq!((text(&requests[0], "authorization"), bench.cloud.keys()), ("eks-token", vec!["POD1".to_owned()]));
    let bench = Bench::new(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v1/credentials")], "");
    bench.call().await.unwrap();
    assert_eq!(bench.cloud.requests_to("169.254.170.2/").len(), 1);
    bench.cloud.failing.lock().unwrap().push(("169.254.170.2", 403));
    bench.cloud.reject("POD1", "ExpiredToken");
    assert!(bench.error().await.contains("container_credentials_get"));
}

#[tokio::test]
async fn the_instance_role_comes_from_the_metadata_service_with_a_session_token() {
    let bench = Bench::new(&[], "");
    bench.call().await.unwrap();
    bench.call().await.unwrap();
    let requests = bench.cloud.requests_to("169.254.169.254");
    let shown: Vec<_> =
        requests.iter().map(|request| format!("{} {}", request.method(), request.uri().path())).collect();
    let expected = [
        "PUT /latest/api/token",
        "GET /latest/meta-data/iam/security-credentials/",
        "GET /latest/meta-data/iam/security-credentials/node-role",
    ];
    assert_eq!(shown, expected);
    assert_eq!(text(&requests[0], "x-aws-ec2-metadata-token-ttl-seconds"), "21600");
    assert!(requests[1..].iter().all(|request| text(request, "x-aws-ec2-metadata-token") == "session-1"));
    assert_eq!(
        (bench.source().await.as_str(), bench.cloud.keys()),
        ("the role node-role of this instance", vec!["IMDS1".to_owned(); 2])
    );
}

#[tokio::test]
async fn without_any_source_the_error_names_all_of_them() {
    let bench = Bench::new(&[("AWS_EC2_METADATA_DISABLED", "true")], "");
    let error = bench.error().await;
    for expected in ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "disabled by AWS_EC2_METADATA_DISABLED"] {
        assert!(error.contains(expected), "{error}");
    }
    let bench = Bench::new(&[], "");
    bench.cloud.failing.lock().unwrap().push(("security-credentials/", 404));
    assert!(bench.error().await.contains("the instance has no IAM role"));
    assert_eq!(bench.cloud.keys(), Vec::<String>::new());
}

// ---- role of the file

#[tokio::test]
async fn the_role_of_the_file_is_assumed_with_the_headers_of_the_go_manager() {
    let role = "RoleARN=arn:aws:iam::111122223333:role/ccm\n";
    for (file, source_arn) in [(role.to_owned(), ""), (format!("{role}SourceARN=arn:aws:eks:x\n"), "arn:aws:eks:x")] {
        let bench = Bench::new(&STATIC, &file);
        bench.call().await.unwrap();
        let requests = bench.cloud.requests_to("sts.");
        assert_eq!((requests.len(), key_of(&requests[0]).as_str()), (1, "AKID"));
        assert_eq!(text(&requests[0], "x-amz-source-account"), "111122223333");
        assert_eq!(text(&requests[0], "x-amz-source-arn"), source_arn);
        assert!(text(&requests[0], "authorization").contains("x-amz-source-account"), "the header is signed");
        assert_eq!(bench.cloud.keys(), ["ROLE1"]);
    }
}

// ---- renewal

#[tokio::test]
async fn rejected_credentials_are_renewed_once_and_the_call_is_repeated() {
    for code in ["ExpiredToken", "ExpiredTokenException", "AuthFailure", "InvalidClientTokenId", "RequestExpired"] {
        let bench = Bench::new(&[], "");
        bench.cloud.reject("IMDS1", code);
        bench.call().await.unwrap();
        assert_eq!(bench.cloud.keys(), ["IMDS1", "IMDS2"], "{code}");
        bench.cloud.reject("IMDS2", code);
        bench.cloud.reject("IMDS3", code);
        assert!(bench.error().await.contains(code));
        assert_eq!(bench.cloud.keys(), ["IMDS1", "IMDS2", "IMDS2", "IMDS3"], "{code}");
    }
    let bench = Bench::new(&[], "");
    bench.cloud.reject("IMDS1", "UnauthorizedOperation");
    assert!(bench.error().await.contains("UnauthorizedOperation"));
    assert_eq!(bench.cloud.keys(), ["IMDS1"], "a missing permission is no rejection of the credentials");
}

#[tokio::test(start_paused = true)]
async fn credentials_are_renewed_before_they_expire_and_stay_in_use_while_that_fails() {
    let bench = Bench::new(&[], "");
    bench.call().await.unwrap();
    bench.cloud.failing.lock().unwrap().push(("security-credentials", 500));
    advance(Duration::from_secs(3500)).await;
    bench.call().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    bench.call().await.unwrap();
    assert_eq!(bench.cloud.keys(), ["IMDS1"; 3]);
    bench.cloud.failing.lock().unwrap().clear();
    advance(Duration::from_secs(15)).await;
    bench.call().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    bench.call().await.unwrap();
    assert_eq!(bench.cloud.keys().last().unwrap(), "IMDS2");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_seem_expired_are_not_read_for_every_call() {
    let bench = Bench::new(&[], "");
    bench.cloud.lifetime.store(-600, SeqCst);
    for _ in 0..5 {
        bench.call().await.unwrap();
    }
    assert_eq!(bench.cloud.keys(), ["IMDS1"; 5]);
}

#[tokio::test]
async fn the_clock_is_corrected_once_without_new_credentials() {
    for skew in [7200, -7200] {
        let bench = Bench::new(&STATIC, "");
        bench.cloud.skew.store(skew, SeqCst);
        bench.call().await.unwrap();
        bench.call().await.unwrap();
        assert_eq!(bench.cloud.keys(), ["AKID"; 3], "only the first call is repeated");
    }
}
