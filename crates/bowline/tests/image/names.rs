//! Names and certificates: what a program in an empty root has to find out by itself.

use kube::config::Kubeconfig;

use crate::container::Container;
use crate::dns::Dns;
use crate::network::alone;
use crate::support::Server;

const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A command that asks the API server once.
const READ_METHODS: [&str; 5] =
    ["/bowline", "plan", "--kubeconfig=/kubeconfig", "--cloud-provider=local", "--controllers=cloud-node"];

/// A cluster without nodes, whose cloud therefore is not asked, and a container from which it is to be reached by name.
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

    /// Looks once at the cluster under this name: the exit code, and what was said. Which authority to trust is not told.
    fn look(&self, name: &str) -> (Option<i32>, String) {
        let mut kubeconfig = Kubeconfig::read_from(self.server.kubeconfig()).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
        cluster.server = Some(self.server.url().replace("127.0.0.1", name));
        cluster.certificate_authority_data = None;
        // The name in the certificate; it is not the names that are tested with it.
        cluster.tls_server_name = Some("kubernetes.default.svc".to_owned());
        self.container.put("/kubeconfig", serde_json::to_string(&kubeconfig).unwrap());
        let output = self.container.command(&READ_METHODS).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The names that were asked for on the way to the cluster.
    #[track_caller]
    fn reach(&self, name: &str) -> Vec<String> {
        let (code, said) = self.look(name);
        let asked = self.dns.asked();
        assert_eq!(code, Some(0), "{said}; asked for: {asked:?}");
        asked
    }
}

#[test]
fn names_are_resolved_by_dns_with_and_without_nsswitch_conf() {
    alone(async || {
        let world = World::new("names");
        world.container.put("/etc/resolv.conf", "nameserver 127.0.0.1\n");
        assert_eq!(world.reach("api.cluster.test"), ["api.cluster.test"]);
        world.container.take_away("/etc/nsswitch.conf");
        assert_eq!(world.reach("api.cluster.test"), ["api.cluster.test"]);
    });
}

#[test]
fn search_domains_and_dots_count_as_a_pod_has_them() {
    alone(async || {
        let world = World::new("search");
        let options = "nameserver 127.0.0.1\nsearch nowhere.test cluster.test\noptions ndots:5\n";
        world.container.put("/etc/resolv.conf", options);
        assert_eq!(world.reach("api"), ["api.nowhere.test", "api.cluster.test"]);
        // Fewer than five dots: the domains come first.
        let tried = ["api.cluster.test.nowhere.test", "api.cluster.test.cluster.test", "api.cluster.test"];
        assert_eq!(world.reach("api.cluster.test"), tried);
    });
}

#[test]
fn names_of_the_hosts_file_are_found_without_any_dns() {
    alone(async || {
        let world = World::new("hosts");
        world.container.put("/etc/hosts", "127.0.0.1 api\n");
        assert_eq!(world.reach("api"), [""; 0]);
    });
}

#[test]
fn a_name_that_nobody_knows_is_an_error_and_no_crash() {
    alone(async || {
        let world = World::new("unknown");
        world.container.put("/etc/resolv.conf", "nameserver 127.0.0.1\n");
        let (code, said) = world.look("nobody.cluster.test");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("cannot reach the API server"), "{said}");
        assert_eq!(world.dns.asked(), ["nobody.cluster.test"]);
    });
}

#[test]
fn the_certificates_of_the_image_are_trusted_and_no_others() {
    alone(async || {
        let world = World::new("trust");
        world.container.put("/etc/hosts", "127.0.0.1 api\n");
        world.reach("api");
        world.container.take_away(CERTIFICATES);
        let (code, said) = world.look("api");
        assert_eq!(code, Some(1), "{said}");
    });
}
