//! Third part of the tour: a Service of type LoadBalancer.

use std::time::Duration;

use super::context::Context;
use super::run::address_of;
use super::{Step, TourAction};
use crate::assertion::Assertion;
use crate::manifest::{HELLO, HELLO_UDP};
use crate::traffic::Probe;

/// Name of the Service.
const SERVICE: &str = "hello";

/// Pods of the Service: the one that is deleted, and the one that remains.
const DELETED_POD: &str = "hello-1";
const REMAINING_POD: &str = "hello-2";

/// Time for which no request may reach the deleted Pod.
const NO_ERROR_PERIOD: Duration = Duration::from_secs(1);

/// Returns the steps; none if load balancers cannot be reached on this system.
pub(super) fn steps(context: &Context) -> Vec<Step> {
    if !context.subnet.is_reachable() {
        return Vec::new();
    }
    vec![
        context.create_load_balancer(),
        context.delete_pod(),
        context.add_udp_port(),
        context.policy_local(),
        context.delete_service(),
    ]
}

/// Returns the assertion that requests to this port reach exactly these Pods.
fn reaches(probe: fn(String, u16) -> Probe, port: u16, pods: &[&str]) -> Assertion {
    Assertion::AnsweredBy(probe(SERVICE.to_owned(), port), pods.iter().map(|pod| (*pod).to_owned()).collect())
}

impl Context {
    fn curl(&self) -> String {
        format!("curl -sS http://{}:{}", address_of(SERVICE), self.ports.http)
    }

    fn create_load_balancer(&self) -> Step {
        let description = format!(
            "Two Pods and a Service of type LoadBalancer are created. The cloud creates a load balancer with an address\n\
             of its own and all Nodes as targets, and the controller writes the address to the status of the Service. A\n\
             connection to the address is forwarded to a Node, and from there to one of the Pods in turn. Port {} does\n\
             not require root.",
            self.ports.http
        );
        let views = vec![
            format!("kubectl get service {SERVICE}"),
            format!("for n in 1 2 3 4; do {}; done", self.curl()),
            "bowline cloud balancers".to_owned(),
            format!("kubectl describe service {SERVICE}"),
        ];
        let commands = [vec![HELLO.command(self.ports)], views];
        let assertions = vec![
            Assertion::HasAddress(SERVICE.to_owned()),
            reaches(Probe::Http, self.ports.http, &[DELETED_POD, REMAINING_POD]),
        ];
        self.step("Create a load balancer", description, TourAction::Apply(HELLO, self.ports), commands, assertions)
    }

    fn delete_pod(&self) -> Step {
        let description = format!(
            "The Pod {DELETED_POD} is deleted. Its connections are closed, and new ones reach {REMAINING_POD}. The\n\
             address does not change, and no request fails."
        );
        let views = vec![format!("for n in 1 2 3 4; do {}; done", self.curl()), "kubectl get pods -o wide".to_owned()];
        let commands = [vec![format!("kubectl delete pod {DELETED_POD}")], views];
        let assertions = vec![reaches(Probe::Http, self.ports.http, &[REMAINING_POD])];
        let step =
            self.step("Delete a Pod", description, TourAction::DeletePod(DELETED_POD.to_owned()), commands, assertions);
        Step { duration: NO_ERROR_PERIOD, ..step }
    }

    fn add_udp_port(&self) -> Step {
        let description = "The Service gets a second port, for UDP. The load balancer is updated in place: it keeps its address, and\n\
                    established connections stay open.";
        let talk = format!("exec 3<>/dev/udp/$0/{}; echo ahoy >&3; timeout 5 head -n 2 <&3", self.ports.udp);
        let views = vec![format!("kubectl get service {SERVICE}"), format!("bash -c '{talk}' {}", address_of(SERVICE))];
        let commands = [vec![HELLO_UDP.command(self.ports)], views];
        let assertions = vec![
            reaches(Probe::Udp, self.ports.udp, &[REMAINING_POD]),
            reaches(Probe::Http, self.ports.http, &[REMAINING_POD]),
        ];
        self.step(
            "Add a UDP port",
            description.to_owned(),
            TourAction::Apply(HELLO_UDP, self.ports),
            commands,
            assertions,
        )
    }

    fn policy_local(&self) -> Step {
        let description = format!(
            "With externalTrafficPolicy: Local, a Node accepts traffic for its own Pods only. The load balancer checks\n\
             the health-check node port of each Node, and forwards connections only to Nodes with a ready Pod: the one\n\
             with {REMAINING_POD}."
        );
        let port = format!("kubectl get service {SERVICE} -o jsonpath='{{.spec.healthCheckNodePort}}'");
        let patch = format!(r#"kubectl patch service {SERVICE} -p '{{"spec":{{"externalTrafficPolicy":"Local"}}}}'"#);
        let health =
            format!("for ip in {}; do curl -sS -w '\\n' http://$ip:$({port})/healthz; done", self.some_addresses());
        let commands = [vec![patch], vec![health, self.curl()]];
        let assertions = vec![
            Assertion::OnlyNodesWithPods(SERVICE.to_owned()),
            reaches(Probe::Http, self.ports.http, &[REMAINING_POD]),
        ];
        self.step(
            "Set externalTrafficPolicy: Local",
            description,
            TourAction::SetPolicyLocal(SERVICE.to_owned()),
            commands,
            assertions,
        )
    }

    /// Returns the addresses of the first machines, for a shell loop.
    fn some_addresses(&self) -> String {
        let addresses = (1..=self.nodes.min(3)).map(|number| self.subnet.machine(number).to_string());
        addresses.collect::<Vec<_>>().join(" ")
    }

    fn delete_service(&self) -> Step {
        let description = "The Service is deleted. A finalizer keeps it until the load balancer is deleted in the cloud. After that\n\
                    nothing listens on the address, and another Service may get it.";
        let views = vec!["kubectl get services".to_owned(), "bowline cloud balancers".to_owned()];
        let commands = [vec![format!("kubectl delete service {SERVICE}")], views];
        let service = SERVICE.to_owned();
        let assertions = vec![
            Assertion::NoService(service.clone()),
            Assertion::NotAnswering(Probe::Http(service.clone(), self.ports.http)),
        ];
        self.step(
            "Delete the Service",
            description.to_owned(),
            TourAction::DeleteService(service),
            commands,
            assertions,
        )
    }
}
