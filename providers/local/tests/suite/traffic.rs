//! Traffic through the load balancers of a cloud with a data plane.
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bowline_cloud::{CloudProvider, LoadBalancers};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::testing::desired;
use bowline_core::{Address, AddressType, DesiredLoadBalancer, IpMode, LoadBalancerSpec, PortSpec, Protocol};
use bowline_local::{
    BalancerOptions, CloudOptions, Config, LocalCloud, LocalProvider, ManagementClient, NewMachine, serve,
};
use bowline_simulator::drive::Driver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Separate loopback network for each test, because tests run concurrently.
fn network() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    format!("127.{}.{}", 100 + std::process::id() % 100, NEXT.fetch_add(1, Ordering::SeqCst))
}

/// Backend on a node port that responds with its address and the received data.
struct Backend {
    address: SocketAddr,
    running: JoinHandle<()>,
}

impl Backend {
    async fn start(ip: &str, port: u16) -> Backend {
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let running = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut received = [0; 128];
                    let count = stream.read(&mut received).await.unwrap_or_default();
                    let received = String::from_utf8_lossy(&received[..count]).into_owned();
                    let _ = stream.write_all(format!("{} {received}", address.ip()).as_bytes()).await;
                });
            }
        });
        Backend { address, running }
    }

    async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

struct World {
    cloud: LocalCloud,
    provider: LocalProvider,
    net: String,
}

impl World {
    fn open(net: String, snapshot: Option<PathBuf>) -> World {
        let balancers = BalancerOptions {
            pool: vec![format!("{net}.0/28").parse().unwrap(), "::1/128".parse().unwrap()],
            data_plane: true,
            ..BalancerOptions::default()
        };
        let cloud = LocalCloud::open(CloudOptions { snapshot, balancers, ..CloudOptions::default() }).unwrap();
        World { provider: LocalProvider::in_process(cloud.clone(), &Config::default()), cloud, net }
    }

    fn new() -> World {
        World::open(network(), None)
    }

    fn node(&self, number: u8) -> String {
        format!("{}.{}", self.net, 100 + number)
    }

    /// Desired load balancer with these ports and nodes.
    fn desired(&self, nodes: u8, ports: Vec<PortSpec>) -> DesiredLoadBalancer {
        let names: Vec<_> = (1..=nodes).map(|number| format!("n{number}")).collect();
        let mut desired = desired("shop/web", &names.iter().map(String::as_str).collect::<Vec<_>>());
        Arc::make_mut(&mut desired.settings).health_check_interval = Some(Duration::from_millis(50));
        changed(&desired, |spec| {
            spec.ports = ports;
            spec.targets.edit(|targets| {
                for (target, number) in targets.iter_mut().zip(1..) {
                    target.addresses = vec![Address::new(AddressType::InternalIP, self.node(number))];
                }
            });
        })
    }

    fn balancers(&self) -> &dyn LoadBalancers {
        self.provider.load_balancers().unwrap()
    }

    /// Applies the desired state and returns the addresses.
    async fn converge(&self, desired: &DesiredLoadBalancer) -> Vec<IpAddr> {
        let settled = Driver::new(self.balancers()).settle(&mut desired.clone()).await.unwrap();
        let ingress = settled.state.map(|state| state.status.ingress).unwrap_or_default();
        ingress.iter().map(|entry| entry.ip.as_ref().unwrap().parse().unwrap()).collect()
    }
}

fn changed(desired: &DesiredLoadBalancer, change: impl FnOnce(&mut LoadBalancerSpec)) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    change(Arc::make_mut(desired.spec.as_mut().unwrap()));
    desired
}

fn port(protocol: Protocol, port: u16, node_port: u16) -> PortSpec {
    PortSpec { name: String::new(), protocol, port, node_port: Some(node_port), app_protocol: None }
}

/// Sends a request and returns the response.
async fn request(address: SocketAddr) -> std::io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"hello").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(TIMEOUT, exchange).await?
}

/// Sends requests until this many responses in a row match.
async fn until(address: SocketAddr, in_a_row: u32, matches: impl Fn(&std::io::Result<String>) -> bool) {
    let retrying = async {
        let mut count = 0;
        while count < in_a_row {
            count = if matches(&request(address).await) { count + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, retrying).await.unwrap();
}

#[tokio::test]
async fn traffic_reaches_the_nodes_fails_over_and_ends_with_the_load_balancer() {
    let world = World::new();
    let first = Backend::start(&world.node(1), 0).await;
    let second = Backend::start(&world.node(2), first.address.port()).await;
    let desired = world.desired(2, vec![port(Protocol::Tcp, 8080, first.address.port())]);
    let address = SocketAddr::new(world.converge(&desired).await[0], 8080);
    let response = |backend: &Backend| format!("{} hello", backend.address.ip());
    let (one, two) = (response(&first), response(&second));
    until(address, 1, |answer| answer.as_ref().is_ok_and(|answer| *answer == one)).await;
    until(address, 1, |answer| answer.as_ref().is_ok_and(|answer| *answer == two)).await;
    first.stop().await;
    until(address, 10, |answer| answer.as_ref().is_ok_and(|answer| *answer == two)).await;

    let status = world.cloud.balancer_status(&world.cloud.balancers()[0].id).unwrap();
    assert!(status.listeners[0].counters.accepted >= 12, "{status:?}");
    assert_eq!(status.listeners[0].targets.len(), 2);

    let alone = changed(&desired, |spec| drop(spec.targets.edit(Vec::pop)));
    world.converge(&alone).await;
    until(address, 1, |answer| answer.as_ref().map_or(true, |answer| answer.is_empty())).await;
    world.converge(&DesiredLoadBalancer { spec: None, ..desired }).await;
    assert_eq!(request(address).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(world.cloud.addresses().is_empty());
}

#[tokio::test]
async fn settings_are_applied_to_the_data_plane() {
    let world = World::new();
    let backend = Backend::start(&world.node(1), 0).await;
    let mut desired = world.desired(1, vec![port(Protocol::Tcp, 8080, backend.address.port())]);
    Arc::make_mut(&mut desired.settings).proxy_protocol = Some(ProxyProtocol::V1);
    let address = SocketAddr::new(world.converge(&desired).await[0], 8080);
    until(address, 1, |answer| answer.as_ref().is_ok_and(|answer| answer.contains("PROXY TCP4 127.0.0.1 "))).await;
    let closed = changed(&desired, |spec| spec.source_ranges = vec!["192.0.2.0/24".parse().unwrap()]);
    world.converge(&closed).await;
    until(address, 3, |answer| answer.as_ref().map_or(true, |answer| answer.is_empty())).await;
    let id = world.cloud.balancers()[0].id.clone();
    assert!(world.cloud.balancer_status(&id).unwrap().listeners[0].counters.denied >= 3);
}

#[tokio::test]
async fn datagrams_reach_the_nodes() {
    let world = World::new();
    let backend = UdpSocket::bind((world.node(1), 0)).await.unwrap();
    let node_port = backend.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut buffer = [0; 64];
        while let Ok((count, from)) = backend.recv_from(&mut buffer).await {
            let _ = backend.send_to(&buffer[..count], from).await;
        }
    });
    let desired = world.desired(1, vec![port(Protocol::Udp, 5353, node_port)]);
    let address = SocketAddr::new(world.converge(&desired).await[0], 5353);
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(address).await.unwrap();
    client.send(b"ahoy").await.unwrap();
    let mut buffer = [0; 64];
    let count = tokio::time::timeout(TIMEOUT, client.recv(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(&buffer[..count], b"ahoy");
}

#[tokio::test]
async fn load_balancers_are_restored_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("bowline-local-traffic-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (net, file) = (network(), folder.join("cloud.json"));
    let world = World::open(net.clone(), Some(file.clone()));
    let backend = Backend::start(&world.node(1), 0).await;
    let desired = world.desired(1, vec![port(Protocol::Tcp, 8080, backend.address.port())]);
    let address = SocketAddr::new(world.converge(&desired).await[0], 8080);
    let before = (world.cloud.balancers(), world.cloud.addresses());
    world.cloud.close(Duration::ZERO).await;
    assert!(request(address).await.is_err());
    drop(world);
    let restarted = World::open(net, Some(file));
    restarted.cloud.ready().await;
    assert_eq!((restarted.cloud.balancers(), restarted.cloud.addresses()), before);
    until(address, 1, |answer| answer.as_ref().is_ok_and(|answer| answer.ends_with("hello"))).await;
    assert_eq!(restarted.converge(&desired).await, [address.ip()]);
    assert_eq!(restarted.cloud.writes(), 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_failed_listener_is_reported_in_the_status_and_retried() {
    let world = World::new();
    let blocker = std::net::TcpListener::bind(format!("{}.1:0", world.net)).unwrap();
    let taken = blocker.local_addr().unwrap().port();
    let desired = world.desired(1, vec![port(Protocol::Tcp, taken, 30000), port(Protocol::Tcp, 8080, 30000)]);
    world.converge(&desired).await;
    let state = world.balancers().observe(std::slice::from_ref(&desired)).await.remove(0).unwrap().unwrap();
    let entry = &state.status.ingress[0];
    assert_eq!(entry.ip_mode, Some(IpMode::Proxy));
    let errors: Vec<_> = entry.ports.iter().map(|port| (port.port, port.error.as_deref())).collect();
    assert_eq!(errors, [(8080, None), (taken, Some("CannotListen"))]);
    let ip = format!("{}.1", world.net);
    let cause = format!("another process listens on {ip}:{taken}; stop it, or use another address or port");
    assert_eq!(state.errors, [format!("port {taken}/TCP of {ip}: address in use: {cause}")]);
    // Once the port is free, the listener works without a change.
    drop(blocker);
    let works = async {
        while tokio::net::TcpStream::connect(format!("{ip}:{taken}")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, works).await.unwrap();
    let state = world.balancers().observe(std::slice::from_ref(&desired)).await.remove(0).unwrap().unwrap();
    assert!(state.errors.is_empty(), "{:?}", state.errors);
}

#[tokio::test]
async fn a_target_without_addresses_is_reached_by_its_machine() {
    let world = World::new();
    let backend = Backend::start(&world.node(1), 0).await;
    let machine = world.cloud.add(NewMachine { name: "n1".to_owned(), ..NewMachine::default() }).unwrap();
    let desired = changed(&world.desired(1, vec![port(Protocol::Tcp, 8080, backend.address.port())]), |spec| {
        spec.targets.edit(|targets| {
            targets[0].addresses.clear();
            targets[0].provider_id = bowline_core::ProviderId::new(&format!("local://{}", machine.spec.id));
        });
    });
    let address = SocketAddr::new(world.converge(&desired).await[0], 8080);
    assert!(request(address).await.map_or(true, |answer| answer.is_empty()), "the machine has no address yet");
    let here = Address::new(AddressType::InternalIP, world.node(1));
    world.cloud.change(&machine.spec.id, |spec| spec.addresses.push(here)).unwrap();
    until(address, 1, |answer| answer.as_ref().is_ok_and(|answer| answer.ends_with("hello"))).await;
}

#[tokio::test]
async fn the_management_api_reports_the_status_of_load_balancers() {
    let world = World::new();
    let backend = Backend::start(&world.node(1), 0).await;
    let desired = world.desired(1, vec![port(Protocol::Tcp, 8080, backend.address.port())]);
    let address = SocketAddr::new(world.converge(&desired).await[0], 8080);
    until(address, 1, Result::is_ok).await;
    let server = serve(world.cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let client = ManagementClient::new(&format!("http://{}", server.address())).unwrap();
    let client = client.with_token(&server.owner_token().into()).unwrap();
    let found = client.balancers().await.unwrap();
    assert_eq!((found.len(), found[0].addresses[0].ip), (1, address.ip()));
    let status = found[0].status.as_ref().unwrap();
    assert_eq!((status.listeners[0].port, status.listeners[0].targets[0].address), (8080, backend.address));
    assert_eq!(client.balancer(&found[0].balancer.id).await.unwrap().balancer, found[0].balancer);
    client.delete_balancer(&found[0].balancer.id).await.unwrap();
    until(address, 1, Result::is_err).await;
    assert!(client.addresses().await.unwrap().is_empty());
    server.shutdown().await;
}
