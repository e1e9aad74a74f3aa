//! get, describe, explain, events, and discovery.

use crate::kubectl::client::{Kubectl, with_every_kubectl};

/// Creates two Nodes, and a Service of type LoadBalancer.
fn create_small_cluster(kubectl: &Kubectl) {
    kubectl.run("apply -f examples/node.yaml -f examples/service.yaml").says(&[
        "node/worker-1 created",
        "node/worker-2 created",
        "service/web created",
    ]);
}

const NODE_STATUS: &str = r#"{"status":{
    "conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"ready"}],
    "addresses":[{"type":"InternalIP","address":"10.0.0.7"},{"type":"ExternalIP","address":"203.0.113.7"}],
    "capacity":{"cpu":"4","memory":"8Gi"},
    "nodeInfo":{"kubeletVersion":"v1.36.0","osImage":"BowlineOS","kernelVersion":"6.1","containerRuntimeVersion":"cri://1",
        "machineID":"m","systemUUID":"s","bootID":"b","kubeProxyVersion":"","operatingSystem":"linux","architecture":"amd64"}}}"#;

fn set_status(kubectl: &Kubectl, object: &str, status: &str) {
    let compact: String = status.split_whitespace().collect();
    kubectl.run(&format!("patch {object} --subresource=status --type=merge -p={compact}")).says(&["patched"]);
}

#[test]
fn get_prints_the_usual_columns() {
    with_every_kubectl("get", &[], |kubectl| {
        create_small_cluster(kubectl);
        kubectl.run("get nodes").lists("NAME STATUS ROLES AGE VERSION").says(&["worker-1", "Unknown", "<none>"]);
        kubectl.run("get node worker-1 -o name").prints("node/worker-1");
        kubectl.run("get svc web").lists("NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE").says(&[
            "LoadBalancer",
            "10.96.",
            "<pending>",
            "80:3",
            "443:3",
        ]);
        kubectl.run("get svc web -o wide").says(&["SELECTOR", "app=web"]);
        kubectl.run("get ns").lists("NAME STATUS AGE").says(&["default", "kube-system", "kube-node-lease", "Active"]);
        kubectl.run("get all").says(&["service/kubernetes", "service/web"]);
        kubectl.run("get svc,nodes -A").says(&["service/web", "node/worker-2"]);
        kubectl.run("get pods").says(&["No resources found in default namespace."]);
        kubectl.refused("get node worker-9").says(&[r#"Error from server (NotFound): nodes "worker-9" not found"#]);
        kubectl.refused("get ships").says(&[r#"the server doesn't have a resource type "ships""#]);
    });
}

#[test]
fn get_selects_sorts_and_formats() {
    with_every_kubectl("select", &[], |kubectl| {
        create_small_cluster(kubectl);
        let names = "-o jsonpath={.items[*].metadata.name}";
        kubectl.run(&format!("get nodes {names}")).prints("worker-1 worker-2");
        kubectl.run(&format!("get nodes -l kubernetes.io/hostname=worker-2 {names}")).prints("worker-2");
        kubectl.run(&format!("get nodes --field-selector metadata.name!=worker-2 {names}")).prints("worker-1");
        kubectl.run(&format!("get svc --sort-by=.spec.type {names}")).prints("kubernetes web");
        kubectl.run("get svc --sort-by=.spec.type --no-headers").lists_in_order(&["kubernetes", "web"]);
        kubectl.run("get svc web -o yaml").says(&["apiVersion: v1", "kind: Service", "type: LoadBalancer"]);
        kubectl.run("get svc web -o json").says(&[r#""kind": "Service""#]);
        kubectl.run("get nodes -o custom-columns=N:.metadata.name,U:.spec.unschedulable").lists("worker-1 <none>");
        kubectl.run("get nodes --chunk-size=1").says(&["worker-1", "worker-2"]);
        kubectl.run("get nodes --show-labels").says(&["LABELS", "kubernetes.io/os=linux"]);
    });
}

#[test]
fn get_watch_prints_changes() {
    with_every_kubectl("watch", &[], |kubectl| {
        create_small_cluster(kubectl);
        let table = kubectl.follow("get nodes --watch");
        table.sees(&["NAME", "STATUS"]);
        table.sees(&["worker-2"]);
        // With --watch-only, the start of the watch would not be visible.
        let events = kubectl.follow("get services --watch --output-watch-events");
        events.sees(&["ADDED", "web"]);
        kubectl.run("cordon worker-1");
        table.sees(&["worker-1", "SchedulingDisabled"]);
        kubectl.run("create service clusterip late --tcp=80");
        events.sees(&["ADDED", "late"]);
        kubectl.run("label service late tide=high");
        events.sees(&["MODIFIED", "late"]);
        kubectl.run("delete service late");
        events.sees(&["DELETED", "late"]);
    });
}

#[test]
fn describe_prints_object_details_and_events() {
    with_every_kubectl("describe", &[], |kubectl| {
        create_small_cluster(kubectl);
        record_event(kubectl);
        let service = kubectl.run("describe service web");
        service
            .lists("Type: LoadBalancer")
            .lists("Selector: app=web")
            .lists("Port: http 80/TCP")
            .lists("TargetPort: 8080/TCP");
        service.says(&["NodePort:", "External Traffic Policy:", "EnsuringLoadBalancer", "Ensuring load balancer"]);
        let node = kubectl.run("describe node worker-1");
        node.says(&["node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule", "Non-terminated Pods:"]);
        node.lists("Unschedulable: false");
        if kubectl.since(24) {
            set_status(kubectl, "node/worker-1", NODE_STATUS);
            kubectl.run("describe node worker-1").says(&["KubeletReady", "InternalIP:", "10.0.0.7", "BowlineOS"]);
            kubectl.run("get node worker-1 -o wide").says(&[
                "Ready",
                "10.0.0.7",
                "203.0.113.7",
                "v1.36.0",
                "BowlineOS",
            ]);
        }
        kubectl.run("describe ns default").lists("Status: Active");
    });
}

/// Creates an Event for the Service, with its UID.
fn record_event(kubectl: &Kubectl) {
    let uid = kubectl.run("get service web -o jsonpath={.metadata.uid}").stdout;
    let event = kubectl.manifest("event.yaml", &EVENT.replace("UID", &uid));
    kubectl.run(&format!("create -f {event}")).says(&["event/web.1 created"]);
}

const EVENT: &str = "
apiVersion: v1
kind: Event
metadata: {name: web.1, namespace: default}
involvedObject: {apiVersion: v1, kind: Service, name: web, namespace: default, uid: UID}
type: Normal
reason: EnsuringLoadBalancer
message: Ensuring load balancer
source: {component: service-controller}
firstTimestamp: 2026-01-01T00:00:00Z
lastTimestamp: 2026-01-01T00:00:00Z
count: 1
";

#[test]
fn events_are_listed_in_both_api_groups() {
    with_every_kubectl("events", &[], |kubectl| {
        let event = kubectl.manifest("event.yaml", EVENT);
        kubectl.run(&format!("create -f {event}"));
        kubectl
            .run("get events")
            .lists("LAST SEEN TYPE REASON OBJECT MESSAGE")
            .says(&["service/web", "EnsuringLoadBalancer"]);
        kubectl.run("get events.events.k8s.io").says(&["service/web", "EnsuringLoadBalancer"]);
        kubectl.run("get events --field-selector involvedObject.name=other").says(&["No resources found"]);
        if kubectl.since(26) {
            kubectl.run("events").says(&["Service/web", "Ensuring load balancer"]);
            kubectl.run("events --for service/web --types=Warning").says(&["No events found"]);
        }
    });
}

#[test]
fn explain_documents_fields() {
    with_every_kubectl("explain", &[], |kubectl| {
        if !kubectl.since(29) {
            return; // Older versions need OpenAPI v2, which is not served.
        }
        kubectl.run("explain service").says(&["KIND:", "Service", "VERSION:", "v1", "spec", "status"]);
        kubectl.run("explain node.spec.taints").says(&["FIELD: taints", "effect", "<string>"]);
        kubectl.run("explain service --recursive").says(&["externalTrafficPolicy", "loadBalancerSourceRanges"]);
        kubectl.run("explain lease.spec --api-version=coordination.k8s.io/v1").says(&["holderIdentity"]);
        kubectl.refused("explain service.spec.anchor").says(&["does not exist"]);
    });
}

#[test]
fn version_and_discovery_work() {
    with_every_kubectl("discovery", &[], |kubectl| {
        kubectl.run("version -o json").says(&["serverVersion"]);
        kubectl.run("cluster-info").says(&["is running at", kubectl.server.url()]);
        kubectl.run("api-versions").says(&[
            "coordination.k8s.io/v1",
            "discovery.k8s.io/v1",
            "rbac.authorization.k8s.io/v1",
        ]);
        kubectl.run("api-resources -o wide").says(&["endpointslices", "serviceaccounts", "deletecollection"]);
        kubectl.run("get --raw /healthz").prints("ok");
        kubectl.run("get --raw /readyz?verbose").says(&["ok"]);
    });
}
