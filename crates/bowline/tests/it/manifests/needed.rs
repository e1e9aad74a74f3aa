//! Each right of the process is needed: the whole manager, as a process and with the roles that are rendered for it, takes
//! its leases, knows who asks, and acts as its controllers; without any verb of these roles it is refused something. The
//! rights are read from the roles, so one that nothing needs any more fails the test. Those of controllers, where they have
//! no accounts of their own, are taken away in the stories of the controllers.

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

/// Everything that the process has rights for is switched on.
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
const PATIENCE: Duration = Duration::from_secs(60);

/// A verb, a resource, and the name of the object if the right is for one.
type Use = (String, String, Option<String>);

/// A rule for each use, so that one can be left out.
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

/// What is rendered, but for the pods.
fn rendered() -> Vec<Value> {
    let texts = documents(&manifests(&FLAGS));
    let objects = texts.iter().map(|text| serde_saphyr::from_str(text).unwrap());
    objects.filter(|object: &Value| object["kind"] != "DaemonSet").collect()
}

/// A cluster with a manager that lacks a right.
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
        let endpoint = cloud.says("cloud ready at ");
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

    /// Somebody else has the lease, or has given it back.
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

    async fn is_taken(&self, name: &str) {
        let taken = async || {
            let holder = self.leases().get_opt(name).await.unwrap()?.spec?.holder_identity.unwrap_or_default();
            (!holder.is_empty() && holder != "other").then_some(())
        };
        eventually(taken).await;
    }

    fn watches_of_leases(&self) -> u64 {
        let requests = self.server.requests();
        let watches = requests.iter().filter(|(kind, _)| (kind.verb, kind.resource) == ("watch", "leases"));
        watches.map(|(_, count)| count).sum()
    }

    /// A standby that waits for both leases gets one after the other.
    async fn both_change_hands(&self) {
        for (number, name) in (1..).zip(LEASES) {
            eventually(async || (self.watches_of_leases() >= number).then_some(())).await;
            self.hold(name, "").await;
            self.is_taken(name).await;
        }
    }

    /// A machine with its Node, and a Service: work for each controller.
    async fn give_work(&self) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let added = bowline(&["cloud", "add", &endpoint, "a", "--address=InternalIP=10.0.0.1"]);
        assert!(added.status.success(), "{added:?}, {}", self.cloud.said());
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

    /// The Node is initialised and reachable, and the Service has an address.
    async fn work_is_done(&self) {
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

    /// A Node without a machine is deleted, and then another one: the second deletion finds the record of the first.
    async fn nodes_are_deleted(&self) {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        for name in ["first", "second"] {
            let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("local://{name}")}});
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
            eventually(async || nodes.get_opt(name).await.unwrap().is_none().then_some(())).await;
        }
    }

    /// Somebody with a token wants to see metrics; an answer is enough, whatever it is.
    async fn is_asked_for_metrics(&self, port: u16) {
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

    /// What was refused to anybody.
    fn refusals(&self) -> BTreeSet<(String, String)> {
        let refused = self.server.requests().into_keys().filter(|kind| kind.code == 403);
        let told = refused.map(|kind| {
            let resource = format!("{}/{}", kind.resource, kind.subresource);
            (kind.verb.to_owned(), resource.trim_end_matches('/').to_owned())
        });
        told.collect()
    }

    async fn story(&self, are_held: bool, port: u16) {
        if are_held {
            self.both_change_hands().await;
        }
        for name in LEASES {
            self.is_taken(name).await;
        }
        self.is_asked_for_metrics(port).await;
        self.give_work().await;
        self.work_is_done().await;
        self.nodes_are_deleted().await;
    }
}

/// Asks until there is an answer; who waits for something else, too, gives up on this.
async fn eventually<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What is refused to a manager without this, where others hold the leases at first, or nobody does.
async fn told_without(missing: Option<&Use>, are_held: bool) -> BTreeSet<(String, String)> {
    let (world, port) = (World::without(missing).await, free_port());
    for name in LEASES.iter().filter(|_| are_held) {
        world.hold(name, "other").await;
    }
    let manager = world.start(port);
    let refused = eventually(async || (!world.refusals().is_empty()).then_some(()));
    let ended = async {
        tokio::select! {
            () = refused => {}
            () = world.story(are_held, port) => {}
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, ended).await;
    assert!(in_time.is_ok(), "without {missing:?}: {}", manager.said());
    world.refusals()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_needs_all_that_it_is_given() {
    for are_held in [true, false] {
        assert_eq!(told_without(None, are_held).await, BTreeSet::new(), "with all rights");
    }
    let all: Vec<Use> = rendered().iter().filter(|object| is_role(object)).flat_map(uses).map(|(one, _)| one).collect();
    assert!(all.len() >= 20, "{all:?}");
    let told = futures::stream::iter(all).map(|missing| async move {
        // To make a lease takes one that is not there.
        let makes_leases = missing.0 == "create" && missing.1 == "leases";
        let refused = told_without(Some(&missing), !makes_leases).await;
        (missing, refused)
    });
    let told: Vec<(Use, BTreeSet<(String, String)>)> = told.buffer_unordered(3).collect().await;
    for (missing, refused) in told {
        let expected = BTreeSet::from([(missing.0.clone(), missing.1.clone())]);
        assert_eq!(refused, expected, "without {missing:?}");
    }
}
