//! Name resolution and CA certificates in an empty root.

use kube::config::Kubeconfig;

use crate::container::Container;
use crate::dns::Dns;
use crate::network::alone;
use crate::support::Server;

const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A command that reads from the API server once.
const PLAN: [&str; 5] =
    ["/bowline", "plan", "--kubeconfig=/kubeconfig", "--cloud-provider=local", "--controllers=cloud-node"];

/// A cluster without Nodes, so that its cloud is not called, and a container that connects to it by name.
struct World {
    container: Container,
    server: Server,
    dns: Dns,
}

impl World {
    fn new(test: &str) -> World {
        let world = World {
            container: Container::new(test),
            server: Server::start(test, &[]),
            dns: Dns::start(&["api.cluster.test"]),
        };
        world.container.put(CERTIFICATES, world.server.authority());
        world
    }

    /// Runs the command with this server name, without a CA in the kubeconfig; returns exit code and output.
    fn plan(&self, name: &str) -> (Option<i32>, String) {
        let mut kubeconfig = Kubeconfig::read_from(self.server.kubeconfig()).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
        cluster.server = Some(self.server.url().replace("127.0.0.1", name));
        cluster.certificate_authority_data = None;
        // The name in the certificate, independent of the resolved name.
        cluster.tls_server_name = Some("kubernetes.default.svc".to_owned());
        self.container.put("/kubeconfig", serde_json::to_string(&kubeconfig).unwrap());
        let output = self.container.command(&PLAN).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&printed).into_owned())
    }

    /// Runs the command, which must succeed, and returns the DNS queries.
    #[track_caller]
    fn resolve(&self, name: &str) -> Vec<String> {
        let (code, printed) = self.plan(name);
        let queries = self.dns.queries();
        assert_eq!(code, Some(0), "{printed}; DNS queries: {queries:?}");
        queries
    }
}

#[test]
fn names_are_resolved_by_dns_with_and_without_nsswitch_conf() {
    alone(async || {
        let world = World::new("names");
        world.container.put("/etc/resolv.conf", "nameserver 127.0.0.1\n");
        assert_eq!(world.resolve("api.cluster.test"), ["api.cluster.test"]);
        world.container.remove("/etc/nsswitch.conf");
        assert_eq!(world.resolve("api.cluster.test"), ["api.cluster.test"]);
    });
}

#[test]
fn search_domains_and_ndots_apply_as_in_a_pod() {
    alone(async || {
        let world = World::new("search");
        let options = "nameserver 127.0.0.1\nsearch nowhere.test cluster.test\noptions ndots:5\n";
        world.container.put("/etc/resolv.conf", options);
        assert_eq!(world.resolve("api"), ["api.nowhere.test", "api.cluster.test"]);
        // Fewer than five dots: the search domains come first.
        let tried = ["api.cluster.test.nowhere.test", "api.cluster.test.cluster.test", "api.cluster.test"];
        assert_eq!(world.resolve("api.cluster.test"), tried);
    });
}

#[test]
fn names_in_the_hosts_file_need_no_dns() {
    alone(async || {
        let world = World::new("hosts");
        world.container.put("/etc/hosts", "127.0.0.1 api\n");
        assert_eq!(world.resolve("api"), [""; 0]);
    });
}

#[test]
fn an_unknown_name_is_an_error() {
    alone(async || {
        let world = World::new("unknown");
        world.container.put("/etc/resolv.conf", "nameserver 127.0.0.1\n");
        let (code, printed) = world.plan("missing.cluster.test");
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains("no answer from the API server"), "{printed}");
        assert_eq!(world.dns.queries(), ["missing.cluster.test"]);
    });
}

#[test]
fn only_the_ca_certificates_of_the_image_are_trusted() {
    alone(async || {
        let world = World::new("trust");
        world.container.put("/etc/hosts", "127.0.0.1 api\n");
        world.resolve("api");
        world.container.remove(CERTIFICATES);
        let (code, printed) = world.plan("api");
        assert_eq!(code, Some(1), "{printed}");
    });
}
