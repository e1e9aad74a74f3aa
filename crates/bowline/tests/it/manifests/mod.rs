//! Output of `bowline manifests` on an API server with RBAC: it passes strict validation, and grants exactly the permissions that
//! the manager needs. The generated files in `deploy/` have the same contents.

mod chart;
mod helm;
mod needed;
mod schema;

use std::process::{Command, Stdio};

use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use http_body_util::BodyExt as _;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::support::{Scratch, bowline, refused, skip, workspace};

/// Paths of the kinds.
pub(crate) const PATHS: [(&str, &str); 11] = [
    ("Namespace", "/api/v1/namespaces"),
    ("ServiceAccount", "/api/v1/namespaces/NS/serviceaccounts"),
    ("Secret", "/api/v1/namespaces/NS/secrets"),
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("Role", "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles"),
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings"),
    ("Service", "/api/v1/namespaces/NS/services"),
    ("PodDisruptionBudget", "/apis/policy/v1/namespaces/NS/poddisruptionbudgets"),
    ("DaemonSet", "/apis/apps/v1/namespaces/NS/daemonsets"),
    ("Deployment", "/apis/apps/v1/namespaces/NS/deployments"),
];

async fn server() -> ApiServer {
    let options = Options { authorization: AuthorizationMode::Rbac, ..Options::default() };
    ApiServer::start(options).await.unwrap()
}

/// Returns the output of the command.
fn manifests(flags: &[&str]) -> String {
    let output = bowline(&[&["manifests", "--cloud-provider", "local"], flags].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Splits a YAML stream into documents.
pub(crate) fn documents(text: &str) -> Vec<String> {
    text.split("\n---\n").map(str::to_owned).filter(|document| !document.trim().is_empty()).collect()
}

/// Creates the objects with strict validation; returns the created objects.
pub(crate) async fn create(server: &ApiServer, text: &str) -> Vec<Value> {
    let mut created = Vec::new();
    for document in documents(text) {
        created.push(create_one(server, document).await);
    }
    created
}

async fn create_one(server: &ApiServer, document: String) -> Value {
    let object: Value = serde_saphyr::from_str(&document).unwrap();
    post(server, &object, document).await
}

/// Posts an object as this text, with strict validation.
pub(crate) async fn post(server: &ApiServer, object: &Value, text: String) -> Value {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let path = PATHS.iter().find(|(known, _)| object["kind"] == *known).unwrap().1.replace("NS", namespace);
    let request = hyper::Request::post(format!("{path}?fieldValidation=Strict"))
        .header("content-type", "application/yaml")
        .body(kube::client::Body::from(text.clone().into_bytes()))
        .unwrap();
    let response = server.in_process_client().send(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(status.is_success(), "{status}: {}\n{text}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

/// Pod spec of the last document, the workload.
fn pod(objects: &[Value]) -> &Value {
    &objects.last().unwrap()["spec"]["template"]["spec"]
}

#[tokio::test]
async fn all_objects_pass_strict_validation_with_all_flags() {
    let cases: [&[&str]; 8] = [
        &[],
        &["--kind", "Deployment", "--replicas", "3", "--api-server", "[fd00::1]:6443"],
        &["--namespace", "clouds", "--image", "registry.example/bowline@sha256:0123"],
        &["--node-selector", "node-role.kubernetes.io/control-plane=true", "--leader-elect=false"],
        &["--", "--cluster-cidr=10.244.0.0/16,fd00:10::/48", "--allocate-node-cidrs", "--controllers=*,-service"],
        &["--cluster-name", "it's \"mine\": #1", "-v4"],
        &["--image-pull-secret", "registry", "--image-pull-secret=1e3"],
        &[
            "--service-account-annotation=eks.amazonaws.com/role-arn=arn:aws:iam::1:role/a",
            "--service-account-annotation=b=no",
        ],
    ];
    for flags in cases {
        let objects = create(&server().await, &manifests(flags)).await;
        assert!(objects.len() >= 5, "{flags:?}");
    }
}

#[tokio::test]
async fn the_pods_can_start_in_a_new_cluster() {
    let objects = create(&server().await, &manifests(&["--api-server", "10.0.0.1:6443"])).await;
    let pod = pod(&objects);
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("Default")));
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["nodeSelector"], json!({"node-role.kubernetes.io/control-plane": ""}));
    let tolerates = |key: &str, effect: &str| {
        let tolerations = pod["tolerations"].as_array().unwrap().iter();
        tolerations.clone().any(|one| {
            one["key"] == key && one["operator"] == "Exists" && (one["effect"] == effect || one["effect"].is_null())
        })
    };
    for (key, effect) in [
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ("node-role.kubernetes.io/control-plane", "NoSchedule"),
        ("node-role.kubernetes.io/control-plane", "NoExecute"),
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/network-unavailable", "NoSchedule"),
        ("node-role.kubernetes.io/etcd", "NoExecute"),
        ("CriticalAddonsOnly", "NoExecute"),
    ] {
        assert!(tolerates(key, effect), "{key}:{effect}");
    }
    let environment = &pod["containers"][0]["env"];
    assert_eq!(environment[0], json!({"name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1"}));
    assert_eq!(environment[1], json!({"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}));
}

#[tokio::test]
async fn the_container_has_minimal_privileges() {
    let objects = create(&server().await, &manifests(&[])).await;
    let (pod, container) = (pod(&objects), &pod(&objects)["containers"][0]);
    let context = &pod["securityContext"];
    assert_eq!((&context["runAsNonRoot"], &context["runAsUser"]), (&json!(true), &json!(65532)));
    assert_eq!(context["seccompProfile"], json!({"type": "RuntimeDefault"}));
    let expected = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(container["securityContext"], expected);
    assert_eq!(container["resources"]["requests"], json!({"cpu": "20m", "memory": "32Mi"}));
    for probe in ["livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!((&get["scheme"], &get["port"]), (&json!("HTTPS"), &json!(10258)), "{probe}");
    }
    // 0440: readable by the Pod's fsGroup.
    assert_eq!(pod["volumes"][0]["secret"]["defaultMode"], 288);
    assert_eq!(context["fsGroup"], 65532);
}

#[tokio::test]
async fn a_configuration_file_is_put_into_the_secret_unchanged_and_mounted() {
    let scratch = Scratch::new("manifests-config");
    let text = "# ours\nendpoint: http://10.0.0.9:7480\n\nidPrefix: \"other\"\n";
    let file = scratch.file("cloud.yaml", text);
    let text_of = |objects: &[Value]| {
        let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
        let data = secret["data"]["local.yaml"].as_str().unwrap();
        String::from_utf8(base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).unwrap()).unwrap()
    };
    let objects = create(&server().await, &manifests(&["--cloud-config", file.to_str().unwrap()])).await;
    assert_eq!(text_of(&objects), text);
    let args = pod(&objects)["containers"][0]["args"].clone();
    assert_eq!(args[1], "--cloud-config=/etc/bowline/local.yaml");
    assert!(
        text_of(&create(&server().await, &manifests(&[])).await).starts_with("# Endpoint of the cloud"),
        "a template"
    );
}

#[tokio::test]
async fn an_openstack_manager_uses_the_secret_of_the_go_manager() {
    let scratch = Scratch::new("manifests-openstack");
    let openstack = |flags: &[&str]| {
        let output = bowline(&[&["manifests", "--cloud-provider=openstack"], flags].concat());
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (without, warnings) = openstack(&[]);
    assert!(warnings.contains("create secret generic cloud-config --from-file=cloud.conf"), "{warnings}");
    let objects = create(&server().await, &without).await;
    assert!(objects.iter().all(|object| object["kind"] != "Secret"), "an existing Secret must not be overwritten");
    let pod = pod(&objects);
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "cloud-config");
    assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/config");
    assert_eq!(pod["containers"][0]["args"][1], "--cloud-config=/etc/config/cloud.conf");

    let text = "[Global]\nauth-url = https://keystone.example.com\nuser-id = u\npassword = \"a#b\"\ntenant-id = t\n";
    let file = scratch.file("mine.conf", text);
    let (with, warnings) = openstack(&["--cloud-config", file.to_str().unwrap()]);
    assert!(!warnings.contains("cloud-config"), "{warnings}");
    let objects = create(&server().await, &with).await;
    let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    assert_eq!(secret["metadata"]["name"], "cloud-config");
    let data = secret["data"]["cloud.conf"].as_str().unwrap();
    let data = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).unwrap();
    assert_eq!(String::from_utf8(data).unwrap(), text);

    let local = scratch.file("local.yaml", "idPrefix: other\n");
    let both = format!("local={}", local.display());
    let (both, _) = openstack(&["--cloud-provider=local", "--cloud-config", &both]);
    let objects = create(&server().await, &both).await;
    let names: Vec<_> =
        objects.iter().filter(|object| object["kind"] == "Secret").map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, ["bowline"]);
    let args = objects.last().unwrap()["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    for flag in ["openstack=/etc/config/cloud.conf", "local=/etc/bowline/local.yaml"] {
        assert!(args.contains(&format!("--cloud-config={flag}")), "{args}");
    }
}

#[tokio::test]
async fn flags_of_a_provider_and_annotations_of_the_service_account_are_rendered() {
    let aws = |flags: &[&str]| {
        let output = bowline(&[&["manifests", "--cloud-provider=aws"], flags].concat());
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let role = "eks.amazonaws.com/role-arn";
    let annotation = format!("--service-account-annotation={role}=arn:aws:iam::123456789012:role/ccm");
    let (plain, warnings) = aws(&[&annotation]);
    assert_eq!(warnings, "");
    let objects = create(&server().await, &plain).await;
    assert_eq!(objects[0]["metadata"]["annotations"][role], "arn:aws:iam::123456789012:role/ccm");
    assert_eq!(pod(&objects)["containers"][0]["args"][1], "--cloud-config=/etc/bowline/aws.conf");
    let (tagging, _) = aws(&["--controllers=*,tagging", "--tags=a=1,b=2", "--resources=instance"]);
    let args = pod(&create(&server().await, &tagging).await)["containers"][0]["args"].to_string();
    assert!(args.contains("--tags=a=1,b=2") && args.contains("--resources=instance"), "{args}");
}

#[tokio::test]
async fn the_examples_of_each_cloud_pass_strict_validation_and_use_known_annotations() {
    for (cloud, minimum) in [("aws", 4), ("digitalocean", 6), ("openstack", 5), ("vsphere", 4)] {
        let reference = workspace().join(format!("docs/reference/{cloud}-annotations.md"));
        let reference = std::fs::read_to_string(reference).unwrap();
        let mut count = 0;
        for path in std::fs::read_dir(workspace().join("examples").join(cloud)).unwrap() {
            let path = path.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let created = create(&server().await, &std::fs::read_to_string(&path).unwrap()).await;
            let annotations = created[0]["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            for key in annotations.keys() {
                assert!(reference.contains(&format!("## `{key}`")), "{}: {key}", path.display());
            }
            count += 1;
        }
        assert!(count >= minimum, "examples of {cloud} are missing");
    }
}

#[test]
fn the_example_configurations_of_vsphere_are_valid_and_name_their_secrets() {
    for (file, secrets) in [
        ("vsphere.conf", "vsphere-cloud-secret"),
        ("vsphere.ini", "vsphere-cloud-secret"),
        ("nsx.conf", "nsx-cloud-secret, vsphere-cloud-secret"),
    ] {
        let path = workspace().join("examples/vsphere").join(file).display().to_string();
        let output = bowline(&["manifests", "--cloud-provider=vsphere", "--cloud-config", &path]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&format!("resourceNames: [{secrets}]")), "{file}: {text}");
    }
}

/// Kinds of cert-manager, which the API server does not have, are left out.
#[tokio::test]
async fn the_admission_server_of_digitalocean_passes_strict_validation() {
    let text =
        std::fs::read_to_string(workspace().join("deploy/kubernetes/digitalocean/admission-server.yaml")).unwrap();
    let server = server().await;
    let mut kinds = Vec::new();
    for document in documents(&text) {
        let object: Value = serde_saphyr::from_str(&document).unwrap();
        kinds.push(object["kind"].as_str().unwrap().to_owned());
        if PATHS.iter().any(|(known, _)| object["kind"] == *known) {
            post(&server, &object, document).await;
        }
    }
    assert_eq!(kinds, ["Issuer", "Certificate", "Deployment", "Service", "ValidatingWebhookConfiguration"]);
}

#[tokio::test]
async fn files_named_by_flags_are_put_into_the_secret_and_the_flags_are_changed() {
    let scratch = Scratch::new("manifests-files");
    let migration = "kind: LeaderMigrationConfiguration\napiVersion: controllermanager.config.k8s.io/v1\n\
                     leaderName: mine\ncontrollerLeaders:\n  - name: route\n    component: '*'\n";
    let file = scratch.file("migration file.yaml", migration);
    let document = "apiVersion: cloudcontrollermanager.config.k8s.io/v1alpha1\n\
                    kind: CloudControllerManagerConfiguration\nGeneric:\n  LeaderElection:\n    resourceName: other\n";
    let config = scratch.file("config.yaml", document);
    let flags = [
        "--enable-leader-migration".to_owned(),
        format!("--leader-migration-config={}", file.display()),
        format!("--config={}", config.display()),
        "--configure-cloud-routes=false".to_owned(),
    ];
    let server = server().await;
    let objects = create(&server, &manifests(&flags.each_ref().map(String::as_str))).await;
    let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    let args: Vec<&str> =
        pod(&objects)["containers"][0]["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for (flag, text) in [("leader-migration-config", migration), ("config", document)] {
        let data = secret["data"][flag].as_str().unwrap();
        let data = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).unwrap();
        assert_eq!(String::from_utf8(data).unwrap(), text);
        let expected = format!("--{flag}=/etc/bowline/{flag}");
        assert_eq!(args.iter().filter(|arg| arg.starts_with(&format!("--{flag}="))).collect::<Vec<_>>(), [&expected]);
    }
    // The permissions follow the contents of the files.
    for name in ["mine", "other"] {
        let what = format!("update leases.coordination.k8s.io kube-system/{name}");
        assert!(may(&account(&server, "kube-system"), &what).await, "{what}");
    }
}

#[tokio::test]
async fn flags_reach_the_manager_unchanged() {
    let flag = "--cluster-name=$(HOME) $5 \"a\": b # ü\u{2028}";
    let objects = create(&server().await, &manifests(&[flag])).await;
    let args = pod(&objects)["containers"][0]["args"].as_array().unwrap();
    let given: Vec<String> = args.iter().map(|arg| arg.as_str().unwrap().replace("$$", "$")).collect();
    assert!(given.contains(&flag.to_owned()), "{given:?}");
    assert!(args.iter().any(|arg| arg.as_str().unwrap().contains("$$(HOME) $$5")), "kubelets expand: {args:?}");
}

#[tokio::test]
async fn leases_in_another_namespace_have_a_role_there() {
    let server = server().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leases"}});
    post(&server, &namespace, namespace.to_string()).await;
    create(&server, &manifests(&["--namespace", "clouds", "--leader-elect-resource-namespace=leases"])).await;
    let client = account(&server, "clouds");
    for what in [
        "update leases.coordination.k8s.io leases/cloud-controller-manager",
        "create events leases/",
        "watch configmaps kube-system/extension-apiserver-authentication",
    ] {
        assert!(may(&client, what).await, "{what}");
    }
    assert!(!may(&client, "update leases.coordination.k8s.io kube-system/cloud-controller-manager").await);
}

#[tokio::test]
async fn only_secrets_named_by_the_configuration_can_be_read() {
    let scratch = Scratch::new("manifests-secret");
    let file = scratch.file("cloud.yaml", "tokenSecret: vault/local-cloud\n");
    let file = file.to_str().unwrap();
    let server = server().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vault"}});
    post(&server, &namespace, namespace.to_string()).await;
    let objects = create(&server, &manifests(&["--cloud-config", file])).await;
    let role = objects.iter().find(|object| object["kind"] == "Role" && object["metadata"]["namespace"] == "vault");
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["local-cloud"], "verbs": ["list", "watch"]});
    assert_eq!(role.unwrap()["rules"], json!([rule]));
    let client = account(&server, "kube-system");
    assert!(may(&client, "watch secrets vault/local-cloud").await);
    for what in ["watch secrets vault/other", "watch secrets vault/", "get secrets vault/local-cloud"] {
        assert!(!may(&client, what).await, "{what}");
    }
    assert!(
        !manifests(&[]).contains("secrets"),
        "without Secrets in the configuration there is no permission to read any"
    );
}

#[tokio::test]
async fn without_leader_election_the_rollout_recreates_the_pod() {
    let alone = ["--kind", "Deployment", "--replicas", "1", "--leader-elect=false"];
    let objects = create(&server().await, &manifests(&alone)).await;
    assert_eq!(objects.last().unwrap()["spec"]["strategy"]["type"], "Recreate");
    let objects = create(&server().await, &manifests(&["--kind", "Deployment"])).await;
    let affinity = &pod(&objects)["affinity"]["podAntiAffinity"];
    assert!(affinity["requiredDuringSchedulingIgnoredDuringExecution"].is_array(), "one pod on a node: {affinity}");
}

#[tokio::test]
async fn a_drain_evicts_one_pod_of_a_deployment_at_a_time() {
    let objects = create(&server().await, &manifests(&["--kind", "Deployment"])).await;
    let budget = objects.iter().find(|object| object["kind"] == "PodDisruptionBudget").unwrap();
    assert_eq!(
        (&budget["spec"]["maxUnavailable"], &budget["metadata"]["namespace"]),
        (&json!(1), &json!("kube-system"))
    );
    let workload = objects.last().unwrap();
    assert_eq!(budget["spec"]["selector"], workload["spec"]["selector"], "it selects the Pods of the Deployment");
    assert!(!manifests(&[]).contains("PodDisruptionBudget"), "drains do not evict the Pods of a DaemonSet");
}

// ---- permissions

/// Whether the account has this permission: `verb resource[.group] [namespace/name]`.
async fn may(client: &kube::Client, what: &str) -> bool {
    let mut words = what.split(' ');
    let (verb, resource) = (words.next().unwrap(), words.next().unwrap());
    let (namespace, name) = words.next().and_then(|place| place.split_once('/')).unwrap_or_default();
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = json!({
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
        "name": name,
    });
    let review = json!({"spec": {"resourceAttributes": attributes}});
    let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

fn account(server: &ApiServer, namespace: &str) -> kube::Client {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    server.in_process_client_for(&format!("system:serviceaccount:{namespace}:cloud-controller-manager"), &groups)
}

const ALLOWED: [&str; 19] = [
    "list nodes",
    "watch nodes",
    "get nodes",
    "patch nodes",
    "delete nodes",
    "patch nodes/status",
    "list services",
    "watch services",
    "get services",
    "patch services/status",
    "create events default/",
    "patch events default/x",
    "create leases.coordination.k8s.io kube-system/",
    "get leases.coordination.k8s.io kube-system/cloud-controller-manager",
    "update leases.coordination.k8s.io kube-system/cloud-controller-manager",
    "watch leases.coordination.k8s.io kube-system/cloud-controller-manager",
    "create tokenreviews.authentication.k8s.io",
    "create subjectaccessreviews.authorization.k8s.io",
    "watch configmaps kube-system/extension-apiserver-authentication",
];

const FORBIDDEN: [&str; 20] = [
    "get secrets kube-system/bowline",
    "list secrets",
    "list pods",
    "create pods default/",
    "delete pods default/x",
    "create nodes",
    "update nodes",
    "update nodes/status",
    "update services",
    "patch services default/x",
    "delete services default/x",
    "update services/status default/x",
    "list configmaps",
    "get configmaps kube-system/other",
    "update leases.coordination.k8s.io kube-system/kube-controller-manager",
    "delete leases.coordination.k8s.io kube-system/cloud-controller-manager",
    "create leases.coordination.k8s.io default/",
    "create serviceaccounts/token kube-system/node-controller",
    "bind clusterroles.rbac.authorization.k8s.io",
    "impersonate users",
];

#[tokio::test]
async fn the_account_has_exactly_the_permissions_of_the_manager() {
    for namespace in ["kube-system", "clouds"] {
        let server = server().await;
        create(&server, &manifests(&["--namespace", namespace])).await;
        let client = account(&server, namespace);
        for what in ALLOWED {
            assert!(may(&client, what).await, "{namespace}: {what}");
        }
        for what in FORBIDDEN {
            assert!(!may(&client, what).await, "{namespace}: {what}");
        }
    }
}

#[tokio::test]
async fn disabled_features_get_no_permissions() {
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--authentication-skip-lookup"], &["get configmaps kube-system/extension-apiserver-authentication"]),
        (&["--controllers=service"], &["patch nodes", "delete nodes", "patch nodes/status", "get nodes"]),
        (&["--controllers=cloud-node"], &["list services", "patch services/status", "delete nodes"]),
        (
            &["--leader-elect=false", "--controllers=*,-cloud-node-lifecycle"],
            &["create leases.coordination.k8s.io kube-system/"],
        ),
        (
            &["--leader-elect-resource-name=mine"],
            &["update leases.coordination.k8s.io kube-system/cloud-controller-manager"],
        ),
    ];
    for (flags, forbidden) in cases {
        let server = server().await;
        create(&server, &manifests(flags)).await;
        for what in forbidden {
            assert!(!may(&account(&server, "kube-system"), what).await, "{flags:?}: {what}");
        }
    }
}

#[tokio::test]
async fn cl4_with_separate_accounts_the_controllers_have_the_permissions_instead_of_the_process() {
    let server = server().await;
    create(&server, &manifests(&["--use-service-account-credentials"])).await;
    let process = account(&server, "kube-system");
    for what in ["patch nodes", "delete nodes", "patch services/status default/x", "create events default/"] {
        assert!(!may(&process, what).await, "the process: {what}");
    }
    assert!(may(&process, "create serviceaccounts/token kube-system/node-controller").await);
    assert!(!may(&process, "create serviceaccounts/token kube-system/default").await);
    let cases: [(&str, &[&str]); 2] = [
        (
            "node-controller",
            &["get nodes", "patch nodes", "delete nodes", "patch nodes/status", "create events default/"],
        ),
        (
            "service-controller",
            &["get services default/x", "patch services/status default/x", "patch events default/x"],
        ),
    ];
    for (name, allowed) in cases {
        let client = server.in_process_client_for(&format!("system:serviceaccount:kube-system:{name}"), &[]);
        for what in allowed {
            assert!(may(&client, what).await, "{name}: {what}");
        }
    }
    let service = server.in_process_client_for("system:serviceaccount:kube-system:service-controller", &[]);
    assert!(!may(&service, "delete nodes").await);
}

#[tokio::test]
async fn probes_use_the_listen_address_of_the_manager() {
    let pods = create(&server().await, &manifests(&["--bind-address=127.0.0.1", "--secure-port=11258"])).await;
    let container = &pod(&pods)["containers"][0];
    let get = &container["livenessProbe"]["httpGet"];
    assert_eq!((&get["host"], &get["port"]), (&json!("127.0.0.1"), &json!(11258)));
    let server = server().await;
    let silent = create(&server, &manifests(&["--secure-port=0"])).await;
    assert!(pod(&silent)["containers"][0].get("livenessProbe").is_none());
    assert!(!may(&account(&server, "kube-system"), "create tokenreviews.authentication.k8s.io").await);
}

// ---- command line

#[test]
fn invalid_flags_are_rejected_without_output() {
    let cases: [(&[&str], &str); 11] = [
        (&["--cloud-provider", "local", "--kubeconfig=/etc/kubernetes/admin.conf"], "--kubeconfig: "),
        (&["--cloud-provider", "local", "--authentication-kubeconfig=/x"], "their service account"),
        (&["--cloud-provider", "local", "--master=https://10.0.0.1"], "--master: the Pods would have no credentials"),
        (&["--cloud-provider", "local", "--cert-dir=/var/run/x"], "--cert-dir: "),
        (&["--cloud-provider", "local", "--client-ca-file=/nowhere.pem"], "/nowhere.pem"),
        (
            &["--cloud-provider", "local", "--kind", "Deployment", "--leader-elect=false"],
            "all Pods would run at the same time",
        ),
        (&["--cloud-provider", "lokal"], "unknown cloud provider \"lokal\"; did you mean local?"),
        (&["--cloud-provider", "local", "--cloud-config", "/nowhere"], "/nowhere"),
        (&["--cloud-provider", "local", "--controllers=nod"], "\"nod\" is not in the list of known controllers"),
        (&["--cloud-provider", "local", "--knots=8"], "--knots: unknown flag"),
        (&["--cloud-provider", "local", "--namespace", "Kube_System"], "expected at most 63 lowercase letters"),
    ];
    for (flags, expected) in cases {
        let out = refused(&[&["manifests"], flags].concat(), 2, &[expected]);
        assert!(!out.contains("apiVersion"), "{out}");
    }
}

#[test]
fn the_same_flags_print_the_same_bytes() {
    let flags = ["--kind", "Deployment", "--cluster-cidr=10.244.0.0/16"];
    assert_eq!(manifests(&flags), manifests(&flags));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_the_manifests_strictly_and_builds_the_kustomize_base() {
    if !Command::new("kubectl").arg("version").arg("--client").output().is_ok_and(|output| output.status.success()) {
        return skip("no kubectl");
    }
    let server = server().await;
    let scratch = Scratch::new("manifests-kubectl");
    let kubeconfig = scratch.file("kubeconfig", server.kubeconfig());
    let file = scratch.file("bowline.yaml", manifests(&["--namespace", "clouds", "--kind", "Deployment"]));
    let kubectl = |arguments: &[&str]| {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&kubeconfig).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!String::from_utf8_lossy(&output.stderr).contains("Warning"), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let file = file.to_str().unwrap();
    kubectl(&["apply", "--server-side", "--validate=strict", "-f", file]);
    let again = kubectl(&["apply", "--server-side", "--validate=strict", "-f", file]);
    assert!(again.contains("deployment.apps/bowline serverside-applied"), "{again}");
    let base = workspace().join("deploy/kubernetes/local");
    let built = scratch.file("built.yaml", kubectl(&["kustomize", base.to_str().unwrap()]));
    let applied = kubectl(&["apply", "--server-side", "--validate=strict", "-f", built.to_str().unwrap()]);
    assert!(applied.contains("daemonset.apps/bowline serverside-applied"), "{applied}");
}
