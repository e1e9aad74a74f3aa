//! Every permission of the process is needed: the manager runs as a process with its rendered roles, acquires its leases,
//! authenticates clients and acts as its controllers; without any one verb of these roles a request is denied. The permissions are
//! read from the roles, so an unneeded one fails the test. Permissions of controllers without their own accounts are tested in the
//! stories of the controllers.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline_apiserver::ApiServer;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::manifests::{documents, manifests, post, server};
use crate::support::{Program, Scratch, bowline};

/// Flags that enable everything the process has permissions for.
const FLAGS: [&str; 9] = [
    "--use-service-account-credentials",
    "--enable-leader-migration",
    "--cluster-cidr=10.244.0.0/16",
    "--allocate-node-cidrs=false",
    "--route-reconciliation-period=1s",
    "--node-monitor-period=100ms",
    "--node-deletion-grace-period=0",
    "--node-deletion-confirm-period=0",
    "--node-deletion-max-share=1",
];
const LEASES: [&str; 2] = ["cloud-controller-manager", "cloud-provider-extraction-migration"];
const ACCOUNT: &str = "system:serviceaccount:kube-system:cloud-controller-manager";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Verb, resource, and name of the object for a permission on one object.
type Use = (String, String, Option<String>);

/// Splits a role into one rule per use, so that one can be removed.
fn uses(role: &Value) -> Vec<(Use, Value)> {
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap_or_default() };
    let mut uses = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        let names: Vec<_> = texts(&rule["resourceNames"]).into_iter().map(Some).collect();
        for name in if names.is_empty() { vec![None] } else { names } {
            for verb in texts(&rule["verbs"]) {
                let resource = texts(&rule["resources"]).remove(0);
                let mut alone = json!({"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": [verb]});
                if let Some(name) = &name {
                    alone["resourceNames"] = json!([name]);
                }
                uses.push(((verb, resource, name.clone()), alone));
            }
        }
    }
    uses
}

fn is_role(object: &Value) -> bool {
    object["kind"] == "Role" || object["kind"] == "ClusterRole"
}

/// Rendered objects of the process, without the workload. Those of the console are for its users.
fn rendered() -> Vec<Value> {
    let texts = documents(&manifests(&FLAGS));
    let objects = texts.iter().map(|text| serde_saphyr::from_str(text).unwrap());
    let is_of_console = |object: &Value| object["metadata"]["name"].as_str().unwrap().starts_with("bowline-console");
    objects.filter(|object: &Value| object["kind"] != "DaemonSet" && !is_of_console(object)).collect()
}

/// A cluster with a manager that lacks a permission.
struct World {
    server: ApiServer,
    admin: kube::Client,
    cloud: Program,
    endpoint: String,
    scratch: Scratch,
}

impl World {
    async fn without(missing: Option<&Use>) -> World {
        let server = server().await;
        for mut object in rendered() {
            if is_role(&object) {
                let kept = uses(&object).into_iter().filter(|(known, _)| Some(known) != missing);
                object["rules"] = kept.map(|(_, rule)| rule).collect();
            }
            post(&server, &object, object.to_string()).await;
        }
        server.add_token("scraper-token", "scraper", &[]);
        let mut cloud = Program::start("needed", &["cloud", "--listen=127.0.0.1:0"]);
        let endpoint = cloud.wait_for("cloud ready at ");
        World { admin: server.in_process_client(), server, cloud, endpoint, scratch: Scratch::new("needed") }
    }

    fn start(&self, port: u16) -> Program {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        let kubeconfig = self.scratch.file("kubeconfig", self.server.kubeconfig_for(ACCOUNT, &groups).unwrap());
        let config = self.scratch.file("local.yaml", format!("endpoint: {}\n", self.endpoint));
        let own = [
            "--cloud-provider=local".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        let arguments: Vec<&str> = own.iter().map(String::as_str).chain(FLAGS).collect();
        Program::start("needed", &arguments)
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), "kube-system")
    }

    /// Lets another holder acquire or release the lease.
    async fn hold(&self, name: &str, holder: &str) {
        let now = jiff::Timestamp::now();
        let spec = json!({
            "holderIdentity": holder, "leaseDurationSeconds": 3600, "acquireTime": format!("{now:.6}"),
            "renewTime": format!("{now:.6}"), "leaseTransitions": 1,
        });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec,
        });
        let params = PatchParams::apply("other").force();
        self.leases().patch(name, &params, &Patch::Apply(&lease)).await.unwrap();
    }

    async fn is_acquired(&self, name: &str) {
        let acquired = async || {
            let holder = self.leases().get_opt(name).await.unwrap()?.spec?.holder_identity.unwrap_or_default();
            (!holder.is_empty() && holder != "other").then_some(())
        };
        eventually(acquired).await;
    }

    fn watches_of_leases(&self) -> u64 {
        let requests = self.server.requests();
        let watches = requests.iter().filter(|(kind, _)| (kind.verb, kind.resource) == ("watch", "leases"));
        watches.map(|(_, count)| count).sum()
    }

    /// Releases both leases, one after the other, for the waiting standby.
    async fn release_both(&self) {
        for (number, name) in (1..).zip(LEASES) {
            eventually(async || (self.watches_of_leases() >= number).then_some(())).await;
            self.hold(name, "").await;
            self.is_acquired(name).await;
        }
    }

    /// Creates a machine with its Node, and a Service: work for each controller.
    async fn create_objects(&self) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let added = bowline(&["cloud", "add", &endpoint, "a", "--address=InternalIP=10.0.0.1"]);
        assert!(added.status.success(), "{added:?}, {}", self.cloud.output());
        let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"});
        let node = json!({
            "metadata": {"name": "a"},
            "spec": {"taints": [taint], "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
        });
        let nodes: Api<Node> = Api::all(self.admin.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let service = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        let services: Api<Service> = Api::namespaced(self.admin.clone(), "default");
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    }

    /// Waits until the Node is initialised and has a route, and the Service has an address.
    async fn objects_are_reconciled(&self) {
        let reachable = async || {
            let node = Api::<Node>::all(self.admin.clone()).get("a").await.unwrap();
            let conditions = node.status?.conditions?;
            conditions.iter().any(|one| one.type_ == "NetworkUnavailable" && one.status == "False").then_some(())
        };
        eventually(reachable).await;
        let initialised = async || {
            let node = Api::<Node>::all(self.admin.clone()).get("a").await.unwrap();
            let taints = node.spec?.taints.unwrap_or_default();
            taints.iter().all(|taint| !taint.key.ends_with("/uninitialized")).then_some(())
        };
        eventually(initialised).await;
        let addressed = async || {
            let services: Api<Service> = Api::namespaced(self.admin.clone(), "default");
            services.get("web").await.unwrap().status?.load_balancer?.ingress.map(|_| ())
        };
        eventually(addressed).await;
    }

    /// Waits until two Nodes without a machine are deleted, one after the other: the second deletion reads the record of the first.
    async fn nodes_are_deleted(&self) {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        for name in ["first", "second"] {
            let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("local://{name}")}});
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
            eventually(async || nodes.get_opt(name).await.unwrap().is_none().then_some(())).await;
        }
    }

    /// Requests metrics with a bearer token; any response is sufficient.
    async fn request_metrics(&self, port: u16) {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.token = Some("scraper-token".to_owned().into());
        let client = kube::Client::try_from(config).unwrap();
        let reviewed = async || {
            let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
            let _ = client.request_text(request).await;
            let requests = self.server.requests();
            requests.keys().any(|kind| kind.resource == "subjectaccessreviews").then_some(())
        };
        eventually(reviewed).await;
    }

    /// Returns all denied requests.
    fn denied(&self) -> BTreeSet<(String, String)> {
        let denied = self.server.requests().into_keys().filter(|kind| kind.code == 403);
        let denied = denied.map(|kind| {
            let resource = format!("{}/{}", kind.resource, kind.subresource);
            (kind.verb.to_owned(), resource.trim_end_matches('/').to_owned())
        });
        denied.collect()
    }

    async fn run(&self, are_held: bool, port: u16) {
        if are_held {
            self.release_both().await;
        }
        for name in LEASES {
            self.is_acquired(name).await;
        }
        self.request_metrics(port).await;
        self.create_objects().await;
        self.objects_are_reconciled().await;
        self.nodes_are_deleted().await;
    }
}

/// Polls until there is a result, or the caller drops the future.
async fn eventually<T>(poll: impl AsyncFn() -> Option<T>) -> T {
    loop {
        if let Some(result) = poll().await {
            return result;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the denied requests of a manager without this permission; `are_held`: another holder has the leases at first.
async fn denied_without(missing: Option<&Use>, are_held: bool) -> BTreeSet<(String, String)> {
    let (world, port) = (World::without(missing).await, free_port());
    for name in LEASES.iter().filter(|_| are_held) {
        world.hold(name, "other").await;
    }
    let manager = world.start(port);
    let denied = eventually(async || (!world.denied().is_empty()).then_some(()));
    let ended = async {
        tokio::select! {
            () = denied => {}
            () = world.run(are_held, port) => {}
        }
    };
    let in_time = tokio::time::timeout(TIMEOUT, ended).await;
    assert!(in_time.is_ok(), "without {missing:?}: {}", manager.output());
    world.denied()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_needs_all_its_permissions() {
    for are_held in [true, false] {
        assert_eq!(denied_without(None, are_held).await, BTreeSet::new(), "with all permissions");
    }
    let all: Vec<Use> = rendered().iter().filter(|object| is_role(object)).flat_map(uses).map(|(one, _)| one).collect();
    assert!(all.len() >= 20, "{all:?}");
    let outcomes = futures::stream::iter(all).map(|missing| async move {
        // Creating a lease requires that it does not exist.
        let creates_leases = missing.0 == "create" && missing.1 == "leases";
        let denied = denied_without(Some(&missing), !creates_leases).await;
        (missing, denied)
    });
    let outcomes: Vec<(Use, BTreeSet<(String, String)>)> = outcomes.buffer_unordered(3).collect().await;
    for (missing, denied) in outcomes {
        let expected = BTreeSet::from([(missing.0.clone(), missing.1.clone())]);
        assert_eq!(denied, expected, "without {missing:?}");
    }
}
