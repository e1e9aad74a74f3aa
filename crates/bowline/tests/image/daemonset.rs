//! The program as started by the rendered DaemonSet: command, arguments, environment, volumes, user and permissions come from the
//! manifests, and the API server enforces their roles.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    Container as ContainerSpec, EnvVar, HTTPGetAction, Node, PodSpec, Probe, Secret, ServiceAccount, Volume,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::container::{Confinement, Container};
use crate::network::alone;
use crate::support::{Program, Server, bowline};

/// Mount path of a Pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Entry point of the image.
const ENTRY_POINT: &str = "/bowline";

const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn the_rendered_daemonset_initialises_a_node_and_its_probes_succeed() {
    alone(async || {
        let cluster = Cluster::start().await;
        let pod = cluster.apply_manifests().await;
        let mut program = cluster.run(&pod).await;
        cluster.register_machine("worker-1").await;
        cluster.initialised("worker-1", &program).await;
        let probes = probes(&pod);
        assert!(!probes.is_empty(), "the Pod must have probes");
        for probe in probes {
            probe_succeeds(&probe, &program).await;
        }
        let status = program.stop("-TERM");
        assert_eq!(status.code(), Some(0), "{}", program.output());
    });
}

// ---- cluster

/// API server with RBAC, and a cloud.
struct Cluster {
    server: Server,
    cloud: Program,
    endpoint: String,
    client: kube::Client,
    container: Container,
}

impl Cluster {
    async fn start() -> Cluster {
        let server = Server::start("daemonset", &["--authorization-mode=RBAC"]);
        let mut cloud = Program::start("daemonset", &["cloud", "--listen=127.0.0.1:0"]);
        let endpoint = cloud.wait_for("cloud ready at ");
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        Cluster { server, cloud, endpoint, client, container: Container::new("daemonset") }
    }

    /// Applies the manifests as `kubectl apply --server-side --validate=strict` does. Returns the Pod that the kubelet would start.
    async fn apply_manifests(&self) -> PodSpec {
        let file = self.cloud.scratch.file("local.yaml", format!("endpoint: {}\n", self.endpoint));
        let config = format!("--cloud-config={}", file.display());
        let rendered = bowline(&["manifests", "--cloud-provider=local", &config]);
        assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
        let mut pod = None;
        for object in documents(&String::from_utf8(rendered.stdout).unwrap()) {
            if object["kind"] == "DaemonSet" {
                let set: DaemonSet = serde_json::from_value(object.clone()).unwrap();
                pod = set.spec.unwrap().template.spec;
            }
            self.apply(&object).await;
        }
        pod.expect("the default workload is a DaemonSet")
    }

    async fn apply(&self, object: &Value) {
        let field = |name: &str| object[name].as_str().unwrap_or_default();
        let (group, version) = field("apiVersion").split_once('/').unwrap_or(("", field("apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, field("kind")));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let strict = PatchParams::apply("image-test").validation_strict();
        let applied = api.patch(name, &strict, &Patch::Apply(object)).await;
        applied.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    /// Creates a machine, and a Node as its kubelet with `--cloud-provider=external` registers it.
    async fn register_machine(&self, name: &str) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let added = bowline(&["cloud", "add", &endpoint, name, "--id=one", "--address=InternalIP=10.0.0.1"]);
        assert!(added.status.success());
        let taint = json!({ "key": TAINT, "value": "true", "effect": "NoSchedule" });
        let node = json!({ "metadata": { "name": name }, "spec": { "taints": [taint] } });
        self.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    async fn initialised(&self, name: &str, program: &Program) {
        let is_done = |node: Node| {
            let spec = node.spec.unwrap_or_default();
            spec.provider_id.is_some() && spec.taints.unwrap_or_default().iter().all(|taint| taint.key != TAINT)
        };
        let waiting = async {
            while !is_done(self.nodes().get(name).await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, waiting).await;
        assert!(found.is_ok(), "still tainted; log: {}", program.output());
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }
}

/// Parses a stream of YAML documents.
fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---").map(|text| serde_saphyr::from_str(text).unwrap());
    documents.filter(|document: &Value| !document.is_null()).collect()
}

// ---- kubelet

impl Cluster {
    /// Starts the Pod as the kubelet does: volumes, environment, user, capabilities.
    async fn run(&self, pod: &PodSpec) -> Program {
        let [container] = &pod.containers[..] else { panic!("one container is expected") };
        assert_eq!(pod.host_network, Some(true), "the network of this test is the host network");
        self.mount_account(pod).await;
        let confinement =
            Confinement { empty: self.mount_volumes(pod, container).await, ..confinement(pod, container) };
        let variables = self.variables(container);
        let entry_point = vec![ENTRY_POINT.to_owned()];
        let command = container.command.clone().unwrap_or(entry_point);
        let arguments = container.args.iter().flatten();
        let command: Vec<_> = command.iter().chain(arguments).map(|word| expanded(word, &variables)).collect();
        let command: Vec<_> = command.iter().map(String::as_str).collect();
        let mut command = self.container.confined(&confinement, &command);
        Program::start_command("daemonset-pod", command.envs(&variables))
    }

    /// Mounts token, CA and namespace of the service account.
    async fn mount_account(&self, pod: &PodSpec) {
        let namespace = "kube-system";
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(3607), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let account = pod.service_account_name.as_deref().expect("the Pod must have its own service account");
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        self.container.put(&format!("{ACCOUNT}/token"), answer.status.and_then(|status| status.token).unwrap());
        self.container.put(&format!("{ACCOUNT}/ca.crt"), self.server.authority());
        self.container.put(&format!("{ACCOUNT}/namespace"), namespace);
    }

    /// Mounts Secrets; returns the paths of emptyDir volumes.
    async fn mount_volumes(&self, pod: &PodSpec, container: &ContainerSpec) -> Vec<String> {
        let mut empty = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            match volume.unwrap_or_else(|| panic!("no volume {}", mount.name)) {
                Volume { empty_dir: Some(_), .. } => empty.push(mount.mount_path.clone()),
                Volume { secret: Some(secret), .. } => {
                    self.mount_secret(secret.secret_name.as_deref().unwrap(), &mount.mount_path).await;
                }
                volume => panic!("unsupported volume: {volume:?}"),
            }
        }
        empty
    }

    async fn mount_secret(&self, name: &str, directory: &str) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "kube-system");
        let secret = secrets.get(name).await.unwrap();
        for (file, text) in secret.data.unwrap_or_default() {
            self.container.put(&format!("{directory}/{file}"), text.0);
        }
    }

    /// Environment of the container, with the address of the API server.
    fn variables(&self, container: &ContainerSpec) -> BTreeMap<String, String> {
        let address = self.server.url().trim_start_matches("https://").trim_end_matches('/');
        let (host, port) = address.rsplit_once(':').unwrap();
        let cluster = [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)];
        let cluster = cluster.map(|(name, value)| (name.to_owned(), value.to_owned()));
        cluster.into_iter().chain(container.env.iter().flatten().map(variable)).collect()
    }
}

/// Resolves an environment variable as the kubelet does.
fn variable(variable: &EnvVar) -> (String, String) {
    let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
    let value = match field.map(|field| field.field_path.as_str()) {
        None => variable.value.clone().unwrap_or_default(),
        Some("metadata.namespace") => "kube-system".to_owned(),
        Some("metadata.name") => "bowline-x7x2k".to_owned(),
        Some("spec.nodeName") => "control-plane-1".to_owned(),
        Some("status.hostIP" | "status.podIP") => "127.0.0.1".to_owned(),
        Some(other) => panic!("unsupported field {other}"),
    };
    (variable.name.clone(), value)
}

/// Expands `$(NAME)` in a command.
fn expanded(word: &str, variables: &BTreeMap<String, String>) -> String {
    variables.iter().fold(word.to_owned(), |word, (name, value)| word.replace(&format!("$({name})"), value))
}

fn confinement(pod: &PodSpec, container: &ContainerSpec) -> Confinement {
    let (pod, own) = (pod.security_context.clone().unwrap_or_default(), container.security_context.clone().unwrap());
    assert_eq!(own.allow_privilege_escalation, Some(false));
    let dropped = own.capabilities.and_then(|capabilities| capabilities.drop).unwrap_or_default();
    assert_eq!(dropped, ["ALL"]);
    assert_eq!(own.run_as_non_root.or(pod.run_as_non_root), Some(true));
    let user = own.run_as_user.or(pod.run_as_user).expect("the kubelet must know that it is not root");
    let group = own.run_as_group.or(pod.run_as_group).unwrap_or(user);
    let read_only = own.read_only_root_filesystem == Some(true);
    Confinement { user: format!("{user}:{group}"), read_only, empty: Vec::new() }
}

/// Returns all probes of the Pod.
fn probes(pod: &PodSpec) -> Vec<HTTPGetAction> {
    let [container] = &pod.containers[..] else { panic!("one container is expected") };
    let all = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
    all.into_iter().flatten().map(|probe: &Probe| probe.http_get.clone().expect("an HTTP probe")).collect()
}

/// Sends the probe as a kubelet does, without verifying the certificate and without credentials, until it succeeds.
async fn probe_succeeds(probe: &HTTPGetAction, program: &Program) {
    let IntOrString::Int(port) = probe.port else { panic!("the port must be a number: {:?}", probe.port) };
    let host = probe.host.as_deref().unwrap_or("127.0.0.1");
    assert_eq!(probe.scheme.as_deref(), Some("HTTPS"));
    let mut config = kube::Config::new(format!("https://{host}:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).unwrap();
    let path = probe.path.clone().unwrap_or_default();
    let probing = async {
        loop {
            let request = hyper::Request::get(path.as_str()).body(Vec::new()).unwrap();
            match client.request_text(request).await {
                Ok(_) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let succeeded = tokio::time::timeout(TIMEOUT, probing).await;
    assert!(succeeded.is_ok(), "{path} never succeeds; log: {}", program.output());
}
