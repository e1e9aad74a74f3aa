//! taint, cordon, uncordon, drain.

use crate::kubectl::client::with_every_kubectl;

#[test]
fn taints_are_added_and_removed() {
    with_every_kubectl("taint", &[], |kubectl| {
        kubectl.run("apply -f examples/node.yaml");
        let keys = "get node worker-1 -o jsonpath={.spec.taints[*].key}";
        kubectl.run("taint node worker-1 storm=true:NoExecute").says(&["node/worker-1 tainted"]);
        kubectl.run(keys).says(&["storm", "node.cloudprovider.kubernetes.io/uninitialized"]);
        kubectl.refused("taint node worker-1 storm=false:NoExecute").says(&["already has storm taint"]);
        kubectl.run("taint node worker-1 node.cloudprovider.kubernetes.io/uninitialized-").says(&["untainted"]);
        // Admission adds the other taint to every new Node.
        kubectl.run(keys).prints("storm node.kubernetes.io/not-ready");
        kubectl.run("taint nodes --all calm:PreferNoSchedule").says(&["node/worker-2 tainted"]);
    });
}

#[test]
fn cordon_and_uncordon_work() {
    with_every_kubectl("cordon", &[], |kubectl| {
        kubectl.run("apply -f examples/node.yaml");
        kubectl.run("cordon worker-1").says(&["node/worker-1 cordoned"]);
        kubectl.run("cordon worker-1").says(&["already cordoned"]);
        kubectl.run("get node worker-1").says(&["SchedulingDisabled"]);
        kubectl.run("get nodes --field-selector spec.unschedulable=true -o name").prints("node/worker-1");
        kubectl.run("uncordon worker-1").says(&["node/worker-1 uncordoned"]);
        kubectl.run("get node worker-1 -o jsonpath={.spec.unschedulable}").prints("");
    });
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: lookout}
spec:
  nodeName: worker-1
  containers: [{name: lookout, image: lookout}]
";

#[test]
fn drain_evicts_pods() {
    with_every_kubectl("drain", &[], |kubectl| {
        kubectl.run("apply -f examples/node.yaml");
        let pod = kubectl.manifest("pod.yaml", POD);
        kubectl.run(&format!("create -f {pod}"));
        kubectl.refused("drain worker-1").says(&["node/worker-1 cordoned", "use --force to override"]);
        kubectl.run("get pod lookout -o name").prints("pod/lookout");
        // There is no kubelet to end the Pod after its grace period.
        let drained = kubectl.run("drain worker-1 --force --grace-period=0 --timeout=60s");
        if kubectl.since(22) {
            // Older versions use a removed version of the eviction API, and delete instead.
            drained.says(&["pod/lookout evicted", "node/worker-1 drained"]);
        }
        kubectl.run("get pods").says(&["No resources found"]);
    });
}
