//! The second act: a Service gets an address, and traffic flows.

use std::time::Duration;

use super::scene::Scene;
use super::{Act, Step};
use crate::claim::Claim;
use crate::manifest::{HELLO, HELLO_UDP};
use crate::traffic::Probe;

/// The Service.
const SERVICE: &str = "hello";

/// Its Pods: the one that goes, and the one that stays.
const GOES: &str = "hello-1";
const STAYS: &str = "hello-2";

/// How long nobody may be sent to a Pod that is gone, to be believed.
const MOVED: Duration = Duration::from_secs(1);

/// Prints the address of the Service.
const ADDRESS: &str = "kubectl get service hello -o jsonpath='{.status.loadBalancer.ingress[0].ip}'";

/// All of it, or nothing where no traffic can flow.
pub(super) fn steps(scene: &Scene<'_>) -> Vec<Step> {
    if !scene.subnet.is_reachable() {
        return Vec::new();
    }
    vec![scene.ask(), scene.move_away(), scene.datagrams(), scene.only_local(), scene.give_back()]
}

/// It is answered on this port, by these Pods and no others.
fn answered(probe: fn(String, u16) -> Probe, port: u16, pods: &[&str]) -> Claim {
    Claim::AnsweredBy(probe(SERVICE.to_owned(), port), pods.iter().map(|pod| (*pod).to_owned()).collect())
}

impl Scene<'_> {
    fn curl(&self) -> String {
        format!("curl -sS http://$({ADDRESS}):{}", self.ports.http)
    }

    fn ask(&self) -> Step {
        let what = format!(
            "Two Pods and a Service of type LoadBalancer are applied. The cloud makes a balancer with an address of its\n\
             own, the Nodes are behind it, and the Service says where it is. Whoever connects there reaches a Pod, in turn:\n\
             first the balancer chooses a Node, and then the Node chooses a Pod. Port {} needs no root.",
            self.ports.http
        );
        let commands = vec![
            HELLO.command(self.ports),
            format!("until {}; do sleep 1; done", self.curl()),
            format!("kubectl get service {SERVICE}"),
            format!("for n in 1 2 3 4; do {}; done", self.curl()),
            format!("kubectl describe service {SERVICE}"),
        ];
        let claims =
            vec![Claim::HasAddress(SERVICE.to_owned()), answered(Probe::Http, self.ports.http, &[GOES, STAYS])];
        self.step("Ask for a load balancer", what, Act::Apply(HELLO, self.ports), commands, claims)
    }

    fn move_away(&self) -> Step {
        let what = format!(
            "The Pod {GOES} is deleted. Its connections end with it, and new ones go to {STAYS}; the address stays, and\n\
             nobody is turned away."
        );
        let commands = vec![
            format!("kubectl delete pod {GOES}"),
            format!("for n in 1 2 3 4; do {}; done", self.curl()),
            "kubectl get pods -o wide".to_owned(),
        ];
        let claims = vec![answered(Probe::Http, self.ports.http, &[STAYS])];
        let step = self.step("Stop a backend", what, Act::DeletePod(GOES.to_owned()), commands, claims);
        Step { lasting: MOVED, ..step }
    }

    fn datagrams(&self) -> Step {
        let what = "The Service gets a second port, for UDP. The balancer is changed while it works: it keeps its address,\n\
                    and whoever is connected stays connected.";
        let talk = format!("exec 3<>/dev/udp/$0/{}; echo ahoy >&3; timeout 5 head -n 2 <&3", self.ports.udp);
        let commands = vec![
            HELLO_UDP.command(self.ports),
            format!("until bash -c '{talk}' $({ADDRESS}); do sleep 1; done"),
            format!("kubectl get service {SERVICE}"),
        ];
        let claims =
            vec![answered(Probe::Udp, self.ports.udp, &[STAYS]), answered(Probe::Http, self.ports.http, &[STAYS])];
        self.step("Speak UDP, too", what.to_owned(), Act::Apply(HELLO_UDP, self.ports), commands, claims)
    }

    fn only_local(&self) -> Step {
        let what = format!(
            "With the policy Local, a Node answers for its own Pods only. On the health-check node port each Node tells the\n\
             balancer whether it has any, and the balancer goes to those that do: the one with {STAYS}."
        );
        let port = format!("kubectl get service {SERVICE} -o jsonpath='{{.spec.healthCheckNodePort}}'");
        let commands = vec![
            format!(r#"kubectl patch service {SERVICE} -p '{{"spec":{{"externalTrafficPolicy":"Local"}}}}'"#),
            "sleep 2".to_owned(),
            format!("for ip in {}; do curl -sS -w '\\n' http://$ip:$({port})/healthz; done", self.some_addresses()),
            format!("until {}; do sleep 1; done", self.curl()),
        ];
        let claims =
            vec![Claim::OnlyNodesWithPods(SERVICE.to_owned()), answered(Probe::Http, self.ports.http, &[STAYS])];
        self.step("Only where a Pod is", what, Act::PolicyLocal(SERVICE.to_owned()), commands, claims)
    }

    /// The addresses of the first machines, for a loop.
    fn some_addresses(&self) -> String {
        let addresses = (1..=self.nodes.min(3)).map(|number| self.subnet.machine(number).to_string());
        addresses.collect::<Vec<_>>().join(" ")
    }

    fn give_back(&self) -> Step {
        let what = "The Service is deleted. A finalizer keeps it until the balancer is gone from the cloud; then nothing\n\
                    listens at the address any more, and the next Service may have it.";
        let commands =
            vec![format!("kubectl delete service {SERVICE} --timeout=60s"), "kubectl get services".to_owned()];
        let service = SERVICE.to_owned();
        let claims =
            vec![Claim::NoService(service.clone()), Claim::Silent(Probe::Http(service.clone(), self.ports.http))];
        self.step("Give the address back", what.to_owned(), Act::DeleteService(service), commands, claims)
    }
}
