//! `bowline console` and `bowline top` as processes, with a manager that runs with the printed manifests, in an API server with RBAC.
//! Their user has only the role that the manifests contain.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};
use serde_json::{Value, json};

use crate::manifests::{create, documents, post};
use crate::support::{BOWLINE, Program, Scratch, bowline, finish, skip, within};

const ACCOUNT: &str = "system:serviceaccount:kube-system:cloud-controller-manager";
const TIMEOUT: Duration = Duration::from_secs(60);
/// Election times short enough for a test.
const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];

/// A cluster with the manifests, a Node and a Service, and its cloud.
struct World {
    server: ApiServer,
    _cloud: Program,
    endpoint: String,
    scratch: Scratch,
}

/// A manager process and its port.
struct Manager {
    program: Program,
    port: u16,
}

impl World {
    async fn start() -> World {
        let options =
            Options { authorization: AuthorizationMode::Rbac, loopback_endpoints: true, ..Options::default() };
        let server = ApiServer::start(options).await.unwrap();
        let manifests = bowline(&["manifests", "--cloud-provider=local"]);
        let printed = String::from_utf8(manifests.stdout).unwrap();
        let without_pods: Vec<String> =
            documents(&printed).into_iter().filter(|text| !text.contains("DaemonSet")).collect();
        create(&server, &without_pods.join("\n---\n")).await;
        let mut cloud = Program::start("console", &["cloud", "--listen=127.0.0.1:0"]);
        let endpoint = cloud.wait_for("cloud ready at ");
        let world = World { server, _cloud: cloud, endpoint, scratch: Scratch::new("console") };
        world.bind_role("jane").await;
        world.create_objects().await;
        world
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = hyper::Request::builder().method(method).uri(path);
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = request.header("content-type", content_type).body(body.to_string().into_bytes()).unwrap();
        self.server.in_process_client().request(request).await.unwrap()
    }

    /// Lets the user use the console, as the guide says.
    async fn bind_role(&self, user: &str) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": "kube-system"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bowline-console-user"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        post(&self.server, &binding, binding.to_string()).await;
    }

    async fn create_objects(&self) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        assert!(bowline(&["cloud", "add", &endpoint, "worker-1", "--address=InternalIP=10.0.0.1"]).status.success());
        let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"});
        self.send("POST", "/api/v1/nodes", &json!({"metadata": {"name": "worker-1"}, "spec": {"taints": [taint]}}))
            .await;
        let service = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        self.send("POST", "/api/v1/namespaces/default/services", &service).await;
    }

    fn kubeconfig(&self, user: &str, groups: &[&str]) -> PathBuf {
        let text = self.server.kubeconfig_for(user, groups).unwrap();
        self.scratch.file(&format!("{}.kubeconfig", user.replace(':', "-")), text)
    }

    /// Starts a manager that competes for the Lease.
    fn manager(&self) -> Manager {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        let kubeconfig = self.kubeconfig(ACCOUNT, &groups);
        let config = self.scratch.file("local.yaml", format!("endpoint: {}\n", self.endpoint));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let own = [
            "--cloud-provider=local".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--configure-cloud-routes=false".to_owned(),
        ];
        let arguments: Vec<&str> = own.iter().map(String::as_str).chain(SHORT).collect();
        Manager { program: Program::start("console", &arguments), port }
    }

    /// Creates the Pod of a manager on the host network of this machine, as a DaemonSet does.
    async fn create_pod(&self, manager: &Manager) {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_lowercase();
        let name = format!("cloud-controller-manager-{}", manager.port);
        let labels = json!({"app.kubernetes.io/name": "bowline"});
        let container =
            json!({"name": "bowline", "image": "bowline", "args": [format!("--secure-port={}", manager.port)]});
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "nodeName": host, "hostNetwork": true, "serviceAccountName": "cloud-controller-manager", "containers": [container],
            },
        });
        self.send("POST", "/api/v1/namespaces/kube-system/pods", &pod).await;
        let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
        self.send("PATCH", &format!("/api/v1/namespaces/kube-system/pods/{name}/status"), &status).await;
    }

    async fn delete_pods(&self) {
        let options = json!({"gracePeriodSeconds": 0});
        self.send("DELETE", "/api/v1/namespaces/kube-system/pods", &options).await;
    }

    /// Runs `bowline top` for a user.
    fn top(&self, user: &str, flags: &[&str]) -> (Option<i32>, String, String) {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig(user, &[]).display());
        let output = bowline(&[&["top", &kubeconfig], flags].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Waits until the output of `bowline top` contains all words.
    fn top_shows(&self, words: &[&str], manager: &Manager) -> String {
        let shown = within(TIMEOUT, || {
            let (code, text, _) = self.top("jane", &["--once"]);
            (code == Some(0) && words.iter().all(|word| text.contains(word))).then_some(text)
        });
        shown.unwrap_or_else(|| panic!("{:?}; log: {}", self.top("jane", &["--once"]), manager.program.output()))
    }
}

/// Requests a path of the page.
fn request(address: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// `bowline console`, and how to read its document.
struct Console {
    program: Program,
    address: String,
    token: String,
}

impl Console {
    fn start(world: &World) -> Console {
        let kubeconfig = format!("--kubeconfig={}", world.kubeconfig("jane", &[]).display());
        let mut program = Program::start("console", &["console", &kubeconfig]);
        let url = program.wait_for("http://");
        let (address, token) = url.split_once("/#token=").unwrap();
        Console { address: address.to_owned(), token: token.trim().to_owned(), program }
    }

    fn document(&self) -> (u16, Value) {
        let headers = format!("X-Bowline-Token: {}\r\n", self.token);
        let (status, body) = request(&self.address, "/document?epoch=&since=0", &headers);
        (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{status} {body}")))
    }

    fn epoch(&self) -> Option<String> {
        let (status, document) = self.document();
        (status == 200).then(|| document["epoch"].as_str().unwrap().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_printed_role_sees_nodes_and_services_of_the_leader() {
    let world = World::start().await;
    let manager = world.manager();
    world.create_pod(&manager).await;
    let text = world.top_shows(&["worker-1", "default/web", "SERVICES", "leader"], &manager);
    assert!(!text.contains('\u{1b}'), "no escapes without a terminal: {text}");
    let (code, json, _) = world.top("jane", &["-o", "json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, document["complete"].as_bool()), (Some(0), Some(true)));
    assert!(document["items"]["node/worker-1"].is_object(), "{json}");

    let mut console = Console::start(&world);
    assert_eq!(request(&console.address, "/", "").0, 200);
    assert_eq!(request(&console.address, "/document", "").0, 401, "without the token of the URL");
    let (status, document) = console.document();
    assert!(status == 200 && document["items"]["service/default/web"].is_object(), "{status} {document}");
    assert!(console.program.stop("-INT").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_role_the_message_names_the_permission_and_the_command() {
    let world = World::start().await;
    let (code, text, error) = world.top("eve", &["--once"]);
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(error.contains("no permission to get the Lease kube-system/cloud-controller-manager"), "{error}");
    assert!(error.contains("--clusterrole=bowline-console-user"), "{error}");
    let kubeconfig = format!("--kubeconfig={}", world.kubeconfig("eve", &[]).display());
    let console = bowline(&["console", &kubeconfig]);
    assert_eq!((console.status.code(), console.stdout.len()), (Some(1), 0));
    let (_, _, error) = world.top("jane", &["--once"]);
    assert!(error.contains("there is no Lease kube-system/cloud-controller-manager"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_a_second_manager_that_takes_over() {
    let world = World::start().await;
    let mut first = world.manager();
    world.create_pod(&first).await;
    world.top_shows(&["leader"], &first);
    let console = Console::start(&world);
    let epoch = console.epoch().unwrap();
    let second = world.manager();
    assert!(first.program.stop("-TERM").success());
    world.delete_pods().await;
    let missing = within(TIMEOUT, || {
        let (status, document) = console.document();
        (status == 502).then(|| document["error"].as_str().unwrap().to_owned())
    });
    assert!(missing.is_some(), "the page says why there is no document");
    world.create_pod(&second).await;
    let followed = within(TIMEOUT, || console.epoch().filter(|other| *other != epoch));
    assert!(followed.is_some(), "{:?}; log: {}", console.document(), second.program.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_reached_directly_needs_its_certificate_authority() {
    let world = World::start().await;
    let manager = world.manager();
    let url = format!("--manager=https://127.0.0.1:{}", manager.port);
    let (code, _, error) = world.top("jane", &[&url]);
    assert!(code == Some(2) && error.contains("--manager-certificate-authority"), "{error}");
    let insecure = [url.as_str(), "--insecure-skip-tls-verify", "--once"];
    // The manager trusts the API server's client CA, which signs this certificate, and asks it for the permission.
    let denied = within(TIMEOUT, || {
        let (code, _, error) = world.top("jane", &insecure);
        (code == Some(1) && error.contains("no permission to read /consolez")).then_some(())
    });
    assert!(denied.is_some(), "{:?}", world.top("jane", &insecure));
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "joe"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bowline-console"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}],
    });
    post(&world.server, &binding, binding.to_string()).await;
    let (code, text, error) = world.top("joe", &insecure);
    assert!(code == Some(0) && text.contains("bowline"), "{text} {error}");
    // Its self-signed certificate is not of another CA.
    let authority =
        world.scratch.file("ca.crt", rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem());
    let authority = format!("--manager-certificate-authority={}", authority.display());
    let (code, _, error) = world.top("joe", &[&url, &authority, "--once"]);
    assert!(code == Some(1) && error.contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_keys_select_tables_and_the_terminal_is_restored() {
    if Command::new("setsid").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("no setsid of util-linux for a controlling terminal");
    }
    let world = World::start().await;
    let manager = world.manager();
    world.create_pod(&manager).await;
    world.top_shows(&["worker-1", "default/web"], &manager);
    let pty = openpty(&Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }, None).unwrap();
    let former = tcgetattr(&pty.slave).unwrap();
    let side = || Stdio::from(pty.slave.try_clone().unwrap());
    let child = Command::new("setsid")
        .args(["--ctty", "env", "-u", "NO_COLOR", "LC_ALL=C.UTF-8", "TERM=xterm-256color", BOWLINE, "top"])
        .arg(format!("--kubeconfig={}", world.kubeconfig("jane", &[]).display()))
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
    let mut keyboard = File::from(pty.master);
    let (mut screen, output) = (keyboard.try_clone().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let written = output.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            written.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
    let output = || String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
    let shown = |word: &str| {
        assert!(within(TIMEOUT, || output().contains(word).then_some(())).is_some(), "{word:?} in {:?}", output());
    };
    shown("[1 Attention");
    assert!(!tcgetattr(&pty.slave).unwrap().local_flags.contains(LocalFlags::ICANON));
    keyboard.write_all(b"\x1b[C").unwrap();
    shown("[2 Nodes 1]");
    shown("worker-1");
    keyboard.write_all(b"3\r").unwrap();
    shown("A Service. The service-controller creates");
    keyboard.write_all(b"q").unwrap();
    let status = finish(child, Duration::from_secs(20)).status;
    assert!(status.success(), "{status}: {:?}", output());
    shown("\x1b[?1049l");
    assert_eq!(tcgetattr(&pty.slave).unwrap().local_flags, former.local_flags);
}
