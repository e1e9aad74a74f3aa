//! apply, diff, patch, label, annotate, create, delete, wait.

use crate::kubectl::client::{Kubectl, with_every_kubectl};

const CONFIG: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: chart}
data: {depth: shallow, tide: high}
";

fn config(kubectl: &Kubectl, key: &str, value: &str) -> String {
    kubectl.manifest("chart.yaml", &CONFIG.replace(key, value))
}

#[test]
fn apply_creates_changes_and_detects_no_change() {
    with_every_kubectl("apply", &[], |kubectl| {
        let first = config(kubectl, "", "");
        kubectl.run(&format!("apply -f {first}")).says(&["configmap/chart created"]);
        kubectl.run(&format!("apply -f {first}")).says(&["configmap/chart unchanged"]);
        let second = config(kubectl, "depth: shallow, ", "");
        kubectl.run(&format!("apply -f {second}")).says(&["configmap/chart configured"]);
        kubectl.run("get cm chart -o jsonpath={.data}").prints(r#"{"tide":"high"}"#);
        kubectl.run("apply -f examples/service.yaml").says(&["service/web created"]);
        kubectl.run("apply -f examples/service.yaml").says(&["service/web unchanged"]);
        if kubectl.since(29) {
            kubectl.run("apply -f examples/service.yaml --dry-run=server").says(&["unchanged (server dry run)"]);
        }
        kubectl.run("delete -f examples/service.yaml").says(&[r#"service "web" deleted"#]);
    });
}

const LIST: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: chart}, data: {depth: shallow}}
- {apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: crew}, spec: {minAvailable: 50%}}
";

#[test]
fn a_list_is_applied_item_by_item() {
    with_every_kubectl("list", &[], |kubectl| {
        let list = kubectl.manifest("list.yaml", LIST);
        let created = ["configmap/chart created", "poddisruptionbudget.policy/crew created"];
        kubectl.run(&format!("apply -f {list}")).says(&created);
        kubectl.run(&format!("apply -f {list}")).says(&["configmap/chart unchanged", "crew unchanged"]);
        let list = kubectl.manifest("list.yaml", &LIST.replace("50%", "1"));
        kubectl.run(&format!("apply -f {list}")).says(&["configmap/chart unchanged", "crew configured"]);
        kubectl.run("get pdb").lists("NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE");
        kubectl.run("get pdb crew -o jsonpath={.spec}").prints(r#"{"minAvailable":1}"#);
        let other = LIST.replace("{name: chart}, data:", "{name: other}, dat: {}, data:");
        let other = kubectl.manifest("other.yaml", &other);
        kubectl.refused(&format!("apply -f {other}")).says(&[r#"unknown field "dat""#, "crew configured"]);
        kubectl.run(&format!("delete -f {list}")).says(&[r#""chart" deleted"#, r#""crew" deleted"#]);
    });
}

#[test]
fn apply_reports_errors_in_a_manifest() {
    with_every_kubectl("invalid", &[], |kubectl| {
        let text = "apiVersion: v1\nkind: Service\nmetadata: {name: odd}\nspec: {ports: [{port: 0, targetPort: 80}]}";
        let odd = kubectl.manifest("odd.yaml", text);
        kubectl.refused(&format!("apply -f {odd}")).says(&[
            r#"The Service "odd" is invalid: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"#,
        ]);
        if kubectl.since(29) {
            let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\ndat: {}";
            let odd = kubectl.manifest("odd.yaml", text);
            kubectl.refused(&format!("apply -f {odd}")).says(&[r#"unknown field "dat""#]);
        }
    });
}

#[test]
fn server_side_apply_owns_fields_and_reports_conflicts() {
    with_every_kubectl("server-side", &[], |kubectl| {
        let first = config(kubectl, "", "");
        kubectl.run(&format!("apply --server-side -f {first}")).says(&["configmap/chart serverside-applied"]);
        let second = config(kubectl, "shallow", "deep");
        let apply = format!("apply --server-side --field-manager=pilot -f {second}");
        kubectl.refused(&apply).says(&["conflict", ".data.depth"]);
        kubectl.run(&format!("{apply} --force-conflicts")).says(&["serverside-applied"]);
        kubectl.run("get cm chart -o jsonpath={.data.depth}").prints("deep");
        kubectl.run("apply --server-side -f examples/service.yaml").says(&["service/web serverside-applied"]);
        kubectl.run("apply --server-side -f examples/service.yaml").says(&["service/web serverside-applied"]);
    });
}

#[test]
fn diff_shows_what_apply_would_change() {
    with_every_kubectl("diff", &[], |kubectl| {
        if !kubectl.since(29) {
            return; // Older versions need OpenAPI v2, which is not served.
        }
        let first = config(kubectl, "", "");
        kubectl.refused(&format!("diff -f {first}")).says(&["+  depth: shallow"]);
        kubectl.run(&format!("apply -f {first}"));
        kubectl.run(&format!("diff -f {first}")).prints("");
        let second = config(kubectl, "high", "low");
        kubectl.refused(&format!("diff -f {second}")).says(&["-  tide: high", "+  tide: low"]);
        kubectl.refused(&format!("diff --server-side --force-conflicts -f {second}")).says(&["+  tide: low"]);
        kubectl.run("get cm chart -o jsonpath={.data.tide}").prints("high");
    });
}

#[test]
fn all_three_patch_types_work() {
    with_every_kubectl("patch", &[], |kubectl| {
        kubectl.run("apply -f examples/service.yaml -f examples/node.yaml");
        let ports = "get svc web -o jsonpath={.spec.ports[*].name}";
        kubectl
            .run(r#"patch svc web -p={"spec":{"ports":[{"port":8443,"name":"admin"}]}}"#)
            .says(&["service/web patched"]);
        kubectl.run(ports).says(&["http", "https", "admin"]);
        kubectl
            .run(r#"patch svc web --type=merge -p={"spec":{"ports":[{"port":80,"name":"only"}]}}"#)
            .says(&["patched"]);
        kubectl.run(ports).prints("only");
        kubectl.run(r#"patch svc web --type=json -p=[{"op":"replace","path":"/spec/ports/0/name","value":"last"}]"#);
        kubectl.run(ports).prints("last");
        kubectl
            .run(r#"patch svc web --type=merge -p={"spec":{"ports":[{"port":80,"name":"last"}]}}"#)
            .says(&["no change"]);
        kubectl.run(r#"patch node worker-1 -p={"spec":{"providerID":"local://1"}}"#).says(&["node/worker-1 patched"]);
        kubectl
            .refused(r#"patch node worker-1 -p={"spec":{"providerID":"local://2"}}"#)
            .says(&["spec.providerID: Invalid value", "cannot be modified"]);
        if kubectl.since(24) {
            let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"}]}}}"#;
            kubectl.run(&format!("patch svc web --subresource=status --type=merge -p={status}")).says(&["patched"]);
            kubectl.run("get svc web").says(&["203.0.113.9"]);
        }
    });
}

#[test]
fn label_and_annotate_add_change_and_remove() {
    with_every_kubectl("label", &[], |kubectl| {
        kubectl.run("apply -f examples/node.yaml");
        kubectl.run("label node worker-1 zone=harbour").says(&["node/worker-1 labeled"]);
        kubectl.refused("label node worker-1 zone=sea").says(&["already has a value"]);
        kubectl.run("label node worker-1 zone=sea --overwrite").says(&["node/worker-1 labeled"]);
        kubectl.run("get nodes -l zone=sea -o name").prints("node/worker-1");
        kubectl.run("label node worker-1 zone-").says(&["node/worker-1"]);
        kubectl.run("get nodes -l zone").says(&["No resources found"]);
        kubectl.run("annotate node --all berth=12").says(&["node/worker-1 annotate", "node/worker-2 annotate"]);
        kubectl.run("get node worker-2 -o jsonpath={.metadata.annotations.berth}").prints("12");
        kubectl.run("annotate node worker-2 berth-").says(&["node/worker-2 annotate"]);
        kubectl.refused("label node worker-1 zone=not/valid").says(&["invalid"]);
    });
}

#[test]
fn create_and_replace_work_for_many_kinds() {
    with_every_kubectl("create", &[], |kubectl| {
        kubectl.run("create namespace fleet").says(&["namespace/fleet created"]);
        kubectl.refused("create namespace fleet").says(&[r#"namespaces "fleet" already exists"#]);
        kubectl.run("create configmap chart --from-literal=depth=deep -n fleet").says(&["configmap/chart created"]);
        kubectl.run("create secret generic key --from-literal=k=v -n fleet").says(&["secret/key created"]);
        kubectl.run("get secret key -n fleet -o jsonpath={.data.k}").prints("dg==");
        kubectl.run("create service nodeport buoy --tcp=80:8080 -n fleet").says(&["service/buoy created"]);
        kubectl.run("create serviceaccount pilot -n fleet").says(&["serviceaccount/pilot created"]);
        kubectl.run("create deployment web --image=web -n fleet").says(&["deployment.apps/web created"]);
        kubectl.run("scale deployment web --replicas=3 -n fleet").says(&["deployment.apps/web scaled"]);
        kubectl.run("get deployment web -n fleet").says(&["0/3"]);
        kubectl.run("run lookout --image=lookout -n fleet").says(&["pod/lookout created"]);
        kubectl.run("get pod lookout -n fleet").lists("NAME READY STATUS RESTARTS AGE").says(&["0/1", "Pending"]);
        let manifest = config(kubectl, "shallow", "abyssal");
        kubectl.run(&format!("replace -n fleet -f {manifest}")).says(&["configmap/chart replaced"]);
        kubectl.run("get cm chart -n fleet -o jsonpath={.data.depth}").prints("abyssal");
    });
}

#[test]
fn delete_removes_objects_and_waits() {
    with_every_kubectl("delete", &[], |kubectl| {
        kubectl.run("apply -f examples/node.yaml -f examples/service.yaml");
        kubectl.run("delete node worker-1").says(&[r#"node "worker-1" deleted"#]);
        kubectl.run("delete nodes --all").says(&["worker-2"]);
        kubectl.run("get nodes").says(&["No resources found"]);
        kubectl.refused("delete node worker-1").says(&["NotFound"]);
        kubectl.run("delete node worker-1 --ignore-not-found");
        kubectl.run("delete svc -l app=web").says(&[r#"service "web" deleted"#]);
        kubectl.run("create namespace fleet");
        kubectl.run("create configmap chart -n fleet");
        kubectl.run("delete namespace fleet").says(&[r#"namespace "fleet" deleted"#]);
        kubectl.refused("get namespace fleet").says(&["NotFound"]);
        kubectl.run("get configmaps -n fleet").says(&["No resources found in fleet namespace."]);
    });
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_removed() {
    with_every_kubectl("finalizer", &[], |kubectl| {
        kubectl.run("create configmap anchor");
        kubectl.run(r#"patch cm anchor --type=merge -p={"metadata":{"finalizers":["example.com/chain"]}}"#);
        let deleting = kubectl.follow("delete cm anchor");
        let waiting = kubectl.follow("wait --for=delete cm/anchor --timeout=60s");
        deleting.sees(&["deleted"]);
        kubectl.run("get cm anchor -o jsonpath={.metadata.deletionGracePeriodSeconds}").prints("0");
        kubectl.run(r#"patch cm anchor --type=merge -p={"metadata":{"finalizers":null}}"#);
        deleting.ends();
        waiting.ends();
        kubectl.refused("get cm anchor").says(&["NotFound"]);
    });
}

#[test]
fn wait_observes_conditions_and_fields() {
    with_every_kubectl("wait", &[], |kubectl| {
        kubectl.run("apply -f examples/node.yaml -f examples/service.yaml");
        kubectl.refused("wait --for=condition=Ready node/worker-1 --timeout=1s").says(&["timed out"]);
        if !kubectl.since(24) {
            return;
        }
        let ready = kubectl.follow("wait --for=condition=Ready node/worker-1 --timeout=60s");
        let address = "jsonpath={.status.loadBalancer.ingress[0].ip}=203.0.113.9";
        let balanced = kubectl.follow(&format!("wait --for={address} service/web --timeout=60s"));
        let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
        kubectl.run(&format!("patch node worker-1 --subresource=status -p={status}"));
        let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"}]}}}"#;
        kubectl.run(&format!("patch svc web --subresource=status --type=merge -p={status}"));
        ready.sees(&["node/worker-1 condition met"]);
        balanced.sees(&["service/web condition met"]);
    });
}
