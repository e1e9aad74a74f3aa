//! A client of the simulator that sends forms and searches the XML of the answers.

use bowline_aws_simulator::{ACCESS_KEY, NewInstance, Options, Simulator};
use http::Request;

/// Version of each API.
const VERSIONS: [(&str, &str, &str); 4] = [
    ("ec2", "2016-11-15", "ec2"),
    ("elb", "2012-06-01", "elasticloadbalancing"),
    ("elbv2", "2015-12-01", "elasticloadbalancing"),
    ("sts", "2011-06-15", "sts"),
];

/// An account with two instances, and a client of it.
pub(crate) struct Client {
    pub(crate) cloud: Simulator,
    pub(crate) key: String,
    pub(crate) token: String,
    pub(crate) region: String,
    pub(crate) date: String,
    pub(crate) nodes: [String; 2],
}

impl Client {
    pub(crate) fn new(options: Options) -> Client {
        let region = options.region.clone();
        let cloud = Simulator::new(options);
        let nodes = ["node-1", "node-2"].map(|name| cloud.add_instance(NewInstance::named(name)));
        let date = "20260102T030405Z".to_owned();
        Client { cloud, key: ACCESS_KEY.to_owned(), token: String::new(), region, date, nodes }
    }

    /// Sends a request with an `Authorization` header, and additional headers.
    pub(crate) async fn send_with(&self, call: &str, form: &[(&str, &str)], headers: &[(&str, &str)]) -> (u16, String) {
        let (api, action) = call.split_once(' ').unwrap();
        let (_, version, service) = VERSIONS.into_iter().find(|(name, ..)| *name == api).unwrap();
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.append_pair("Action", action).append_pair("Version", version).extend_pairs(form);
        let scope = format!("{}/{}/{}/{service}/aws4_request", self.key, &self.date[..8], self.region);
        let signed = "host;x-amz-date;x-amz-security-token;x-amz-source-account;x-amz-source-arn";
        let signature = "0".repeat(64);
        let header = format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={signature}");
        let mut request = Request::post("http://aws.test/").header("x-amz-date", &self.date);
        if !self.key.is_empty() {
            request = request.header("authorization", header);
        }
        if !self.token.is_empty() {
            request = request.header("x-amz-security-token", &self.token);
        }
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = self.cloud.answer(request.body(body.finish().into()).unwrap()).await.unwrap();
        (answer.status().as_u16(), String::from_utf8(answer.body().to_vec()).unwrap())
    }

    /// Answer of a successful request, such as `ec2 DescribeInstances`.
    pub(crate) async fn ok(&self, call: &str, form: &[(&str, &str)]) -> String {
        let (status, body) = self.send_with(call, form, &[]).await;
        assert_eq!(status, 200, "{call}: {body}");
        body
    }

    /// Status and error code of a request; the code of a successful one is empty.
    pub(crate) async fn code(&self, call: &str, form: &[(&str, &str)]) -> (u16, String) {
        let (status, body) = self.send_with(call, form, &[]).await;
        (status, if status == 200 { String::new() } else { text(&body, "Code") })
    }

    /// Creates a security group and returns its ID.
    pub(crate) async fn group(&self, name: &str) -> String {
        let vpc = self.cloud.fixture().vpc;
        let form = [("GroupName", name), ("GroupDescription", "test"), ("VpcId", &vpc)];
        text(&self.ok("ec2 CreateSecurityGroup", &form).await, "groupId")
    }

    /// Creates a network load balancer and returns its ARN.
    pub(crate) async fn network_load_balancer(&self, name: &str, form: &[(&str, &str)]) -> String {
        let subnet = self.cloud.fixture().public_subnets[0].clone();
        let form = [&[("Name", name), ("Type", "network"), ("Subnets.member.1", &subnet)], form].concat();
        text(&self.ok("elbv2 CreateLoadBalancer", &form).await, "LoadBalancerArn")
    }

    /// Creates a classic load balancer with one listener.
    pub(crate) async fn classic_load_balancer(&self, name: &str, form: &[(&str, &str)]) -> String {
        let subnet = self.cloud.fixture().public_subnets[0].clone();
        let own = [
            ("LoadBalancerName", name),
            ("Subnets.member.1", &subnet),
            ("Listeners.member.1.Protocol", "tcp"),
            ("Listeners.member.1.LoadBalancerPort", "80"),
            ("Listeners.member.1.InstancePort", "30080"),
        ];
        self.ok("elb CreateLoadBalancer", &[&own, form].concat()).await
    }
}

/// Texts of all elements with this name that have no elements in them.
pub(crate) fn texts(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let inner = xml.split(&open).skip(1).filter_map(|rest| rest.split(&close).next());
    inner.filter(|text| !text.contains('<')).map(str::to_owned).collect()
}

/// Text of the first element with this name; empty if there is none.
pub(crate) fn text(xml: &str, name: &str) -> String {
    texts(xml, name).into_iter().next().unwrap_or_default()
}
