//! API server and cloud in separate processes, with accessors for both.

use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::support::{Program, Server, bowline};

/// API server and cloud, with the flags to connect to both.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) _cloud: Program,
    pub(crate) endpoint: String,
    pub(crate) reach: Vec<String>,
    pub(crate) client: kube::Client,
}

impl World {
    pub(crate) async fn start(test: &str) -> World {
        World::start_with(test, &[]).await
    }

    /// Starts the API server with these flags.
    pub(crate) async fn start_with(test: &str, flags: &[&str]) -> World {
        let server = Server::start(test, &[&["--debug-endpoints"], flags].concat());
        let mut cloud = Program::start(test, &["cloud", "--listen=127.0.0.1:0", "--data-plane=false"]);
        let endpoint = cloud.wait_for("cloud ready at ");
        let config = server.scratch.file("local.yaml", format!("endpoint: {endpoint}\n"));
        let reach = vec![
            "--cloud-provider=local".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", server.kubeconfig().display()),
        ];
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        World { server, _cloud: cloud, endpoint, reach, client: kube::Client::try_from(config).unwrap() }
    }

    /// Enables the background loop of the local cloud that tags machines.
    pub(crate) fn tag_machines(&mut self) {
        let config = format!("endpoint: {}\ntagMachines: true\n", self.endpoint);
        let config = self.server.scratch.file("tags.yaml", config);
        let flag = self.reach.iter_mut().find(|flag| flag.starts_with("--cloud-config=")).unwrap();
        *flag = format!("--cloud-config={}", config.display());
    }

    pub(crate) fn run(&self, command: &str, flags: &[&str]) -> Output {
        let words = [command].into_iter().chain(self.reach.iter().map(String::as_str)).chain(flags.iter().copied());
        bowline(&words.collect::<Vec<_>>())
    }

    /// Runs `bowline plan` for load balancers and Nodes, without routes.
    pub(crate) fn plan(&self, flags: &[&str]) -> Output {
        self.run("plan", &[&["--configure-cloud-routes=false"], flags].concat())
    }

    pub(crate) fn manager(&self, test: &str, flags: &[&str]) -> Program {
        // The test sends no requests to the manager, and the default port may be in use.
        let alone = ["--leader-elect=false", "--configure-cloud-routes=false", "--secure-port=0"];
        let words = self.reach.iter().map(String::as_str).chain(alone).chain(flags.iter().copied());
        Program::start(test, &words.collect::<Vec<_>>())
    }

    pub(crate) fn cloud(&self, arguments: &[&str]) -> String {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let words = ["cloud"].iter().chain(arguments).copied().chain([endpoint.as_str()]);
        let output = bowline(&words.collect::<Vec<_>>());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn create_node(&self, name: &str) {
        let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": name}, "spec": {"taints": [taint]}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    /// Creates a Service of type LoadBalancer.
    pub(crate) async fn create_service(&self, name: &str, annotations: Value) {
        let service = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 8080}]},
        });
        let services = self.services();
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Lets requests for Services with this verb fail with this status.
    pub(crate) async fn fail(&self, verb: &str, code: u16) {
        self.fail_with("services", verb, code).await;
    }

    /// Lets requests for Nodes with this verb fail with this status.
    pub(crate) async fn fail_nodes(&self, verb: &str, code: u16) {
        self.fail_with("nodes", verb, code).await;
    }

    async fn fail_with(&self, resource: &str, verb: &str, code: u16) {
        let effect = json!({"status": {"code": code}});
        let rule = json!({"verb": verb, "resource": resource, "effect": effect});
        let request = hyper::Request::post("/debug/faults").body(rule.to_string().into_bytes()).unwrap();
        self.client.request_text(request).await.unwrap();
    }

    /// Waits until the Service matches the condition.
    pub(crate) async fn until(&self, name: &str, manager: &Program, is_so: impl Fn(Option<Service>) -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while !is_so(self.services().get_opt(name).await.unwrap()) {
            assert!(tokio::time::Instant::now() < deadline, "{name}: timed out; log: {}", manager.output());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Creates a Service and runs the manager until it has a load balancer.
    pub(crate) async fn balance(&self, name: &str) {
        self.create_service(name, json!({})).await;
        let mut manager = self.manager(name, &[]);
        self.until(name, &manager, |service| service.is_some_and(|service| address(&service).is_some())).await;
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    }

    /// Name and resource version of every Node, Service and Event.
    pub(crate) async fn versions(&self) -> Vec<String> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let services = Api::<Service>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let nodes = nodes.items.into_iter().map(|node| node.metadata);
        let nodes = nodes.chain(services.items.into_iter().map(|service| service.metadata));
        let all = nodes.chain(events.items.into_iter().map(|event| event.metadata));
        all.map(|object| format!("{:?} {:?}", object.name, object.resource_version)).collect()
    }

    /// Number of write requests, from the API server's metrics.
    pub(crate) async fn api_writes(&self) -> u64 {
        let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
        let metrics = self.client.request_text(request).await.unwrap();
        let counts = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        let is_read =
            |line: &&str| ["GET", "LIST", "WATCH"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        let writes =
            counts.filter(|line| !is_read(line)).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        writes.sum::<f64>() as u64
    }

    /// Write calls to the cloud since the last call of this function.
    pub(crate) fn cloud_writes(&self) -> Vec<String> {
        let is_read = |line: &&str| ["find", "list", "get", "observe-"].iter().any(|read| line.starts_with(read));
        let calls = self.cloud(&["calls", "--reset"]);
        calls.lines().filter(|line| !is_read(line)).map(str::to_owned).collect()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// First load balancer address of a Service.
pub(crate) fn address(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.ip.clone()
}
