//! Two nodes as network namespaces, connected by a veth pair, without command-line tools.
#![allow(dead_code, reason = "two test binaries use different parts")]

use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use futures::TryStreamExt as _;
use nix::sched::{CloneFlags, setns, unshare};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::net::UdpSocket;
use tokio::time::{self, Instant};

/// Interface index of loopback.
const LOOPBACK: u32 = 1;

/// Protocol number of the cloud's routes.
const CLOUD: u8 = 0xb0;

/// Port of the pods.
const PORT: u16 = 4000;

/// Timeout of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum time of a packet.
const FLIGHT: Duration = Duration::from_millis(250);

/// Reports a skipped test, bypassing the capture of the test runner, in the format that the CI gate counts.
pub(crate) fn skip(why: &str) {
    let line = format!("\nSKIPPED: {why}\n1 skipped\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}

// ---- a network namespace

/// Network namespace that exists as long as this value.
pub(crate) struct Namespace {
    file: File,
}

impl Namespace {
    /// Creates a namespace; fails without privileges.
    fn new() -> io::Result<Namespace> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let file = thread::spawn(make).join().unwrap()?;
        Ok(Namespace { file })
    }

    /// Path of the namespace in this process.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Runs `work` in the namespace. Sockets stay in the namespace that opened them.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let entered = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(entered).join().unwrap())
    }

    fn kernel(&self) -> Handle {
        let runtime = tokio::runtime::Handle::current();
        let (connection, handle, _) = self.inside(|| {
            let _guard = runtime.enter();
            rtnetlink::new_connection().unwrap()
        });
        tokio::spawn(connection);
        handle
    }

    async fn add_address(&self, link: u32, ip: IpAddr, prefix: u8) {
        let mut request = self.kernel().address().add(link, ip, prefix);
        // Duplicate address detection takes a second and is not needed.
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        request.execute().await.unwrap();
    }

    fn open_socket(&self, ip: IpAddr) -> UdpSocket {
        let socket = self.inside(|| std::net::UdpSocket::bind((ip, PORT)).unwrap());
        socket.set_nonblocking(true).unwrap();
        UdpSocket::from_std(socket).unwrap()
    }

    /// Adds a route as an operator.
    pub(crate) async fn add_route(&self, destination: &str, via: IpAddr) {
        let (to, prefix) = destination.split_once('/').unwrap();
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(to.parse().unwrap(), prefix.parse().unwrap())
            .unwrap()
            .gateway(via)
            .unwrap();
        self.kernel().route().add(route.build()).execute().await.unwrap();
    }

    /// Destinations of the cloud's routes, sorted.
    pub(crate) async fn routes_of_the_cloud(&self) -> Vec<String> {
        self.routes(RouteProtocol::Other(CLOUD)).await
    }

    /// Destinations of operators' routes, sorted.
    pub(crate) async fn routes_of_operators(&self) -> Vec<String> {
        self.routes(RouteProtocol::Static).await
    }

    /// Removes the cloud's routes as an operator.
    pub(crate) async fn remove_routes_of_the_cloud(&self) {
        for route in self.dump(RouteProtocol::Other(CLOUD)).await {
            self.kernel().route().del(route).execute().await.unwrap();
        }
    }

    async fn routes(&self, protocol: RouteProtocol) -> Vec<String> {
        let mut ranges: Vec<_> = self.dump(protocol).await.iter().map(range).collect();
        ranges.sort();
        ranges
    }

    async fn dump(&self, protocol: RouteProtocol) -> Vec<RouteMessage> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut any = RouteMessage::default();
            any.header.address_family = family;
            let routes: Vec<_> = self.kernel().route().get(any).execute().try_collect().await.unwrap();
            all.extend(routes.into_iter().filter(|route| route.header.protocol == protocol));
        }
        all
    }
}

fn range(route: &RouteMessage) -> String {
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(ip.to_string()),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(ip.to_string()),
        _ => None,
    });
    format!("{}/{}", address.unwrap_or_default(), route.header.destination_prefix_length)
}

// ---- two nodes

/// Node with its addresses, pod CIDRs and one pod per family.
pub(crate) struct Node {
    pub(crate) namespace: Namespace,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ranges: Vec<String>,
    pods: Vec<UdpSocket>,
}

/// Creates two connected nodes without further routes, in IPv4, and in IPv6 if the machine supports it. Without privileges it
/// reports the skipped test and returns `None`.
pub(crate) async fn two_nodes() -> Option<(Node, Node)> {
    let (one, two) = match (Namespace::new(), Namespace::new()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(error), _) | (_, Err(error)) => {
            skip(&format!("cannot create a network namespace ({error}); run as root"));
            return None;
        }
    };
    if let Err(error) = connect(&one, &two).await {
        skip(&format!("cannot create a veth pair between network namespaces ({error})"));
        return None;
    }
    let has_ipv6 = one.inside(|| std::net::UdpSocket::bind("[::]:0").is_ok());
    if !has_ipv6 {
        skip("this machine has no IPv6");
    }
    let (one, two) = (configure(one, 1, has_ipv6).await, configure(two, 2, has_ipv6).await);
    Some((one, two))
}

async fn connect(one: &Namespace, two: &Namespace) -> Result<(), rtnetlink::Error> {
    let kernel = one.kernel();
    kernel.link().add(LinkVeth::new("cable-1", "cable-2").build()).execute().await?;
    let other_end = LinkUnspec::new_with_name("cable-2").setns_by_fd(two.file.as_raw_fd());
    kernel.link().set(other_end.build()).execute().await
}

/// Assigns addresses: of the node on the veth interface, of a pod on loopback.
async fn configure(namespace: Namespace, number: u8, has_ipv6: bool) -> Node {
    let kernel = namespace.kernel();
    let mut found = Box::pin(kernel.link().get().match_name(format!("cable-{number}")).execute());
    let cable = found.try_next().await.unwrap().unwrap().header.index;
    for link in [LOOPBACK, cable] {
        kernel.link().set(LinkUnspec::new_with_index(link).up().build()).execute().await.unwrap();
    }
    let (mut addresses, mut ranges, mut pods) = (Vec::new(), Vec::new(), Vec::new());
    for numbers in [ipv4(number), ipv6(number)].into_iter().take(if has_ipv6 { 2 } else { 1 }) {
        namespace.add_address(cable, numbers.node, numbers.prefix).await;
        namespace.add_address(LOOPBACK, numbers.pod, numbers.whole).await;
        addresses.push(numbers.node);
        ranges.push(numbers.range);
        pods.push(namespace.open_socket(numbers.pod));
    }
    Node { namespace, addresses, ranges, pods }
}

/// Addresses of one node in one family.
struct Numbers {
    node: IpAddr,
    prefix: u8,
    pod: IpAddr,
    whole: u8,
    range: String,
}

fn ipv4(number: u8) -> Numbers {
    let (node, pod) = ([192, 0, 2, number].into(), [10, 244, number, 1].into());
    Numbers { node, prefix: 24, pod, whole: 32, range: format!("10.244.{number}.0/24") }
}

fn ipv6(number: u8) -> Numbers {
    let last = u16::from(number);
    let (node, pod) = ([0xfd00, 2, 0, 0, 0, 0, 0, last].into(), [0xfd00, 0x244, last, 0, 0, 0, 0, 1].into());
    Numbers { node, prefix: 64, pod, whole: 128, range: format!("fd00:244:{number}::/64") }
}

// ---- packets

/// Whether a packet from each pod of one node reaches the pod of the other, by family.
pub(crate) async fn reach(from: &Node, to: &Node) -> Vec<bool> {
    let mut reached = Vec::new();
    for (sender, receiver) in from.pods.iter().zip(&to.pods) {
        reached.push(arrives(sender, receiver).await);
    }
    reached
}

/// Waits until packets of all families arrive.
pub(crate) async fn until_reached(from: &Node, to: &Node) {
    eventually("packets arrive", async || reach(from, to).await.into_iter().all(|reached| reached)).await;
}

/// Waits until the check succeeds.
pub(crate) async fn eventually(what: &str, check: impl AsyncFn() -> bool) {
    let begin = Instant::now();
    while !check().await {
        assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        time::sleep(Duration::from_millis(50)).await;
    }
}

async fn arrives(sender: &UdpSocket, receiver: &UdpSocket) -> bool {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    // Without a route the kernel returns an error.
    if sender.send_to(&number, receiver.local_addr().unwrap()).await.is_err() {
        return false;
    }
    let expected = async {
        let mut packet = [0; 8];
        // Earlier packets may be late.
        while packet != number {
            let (_, from) = receiver.recv_from(&mut packet).await.unwrap();
            assert_eq!(from, sender.local_addr().unwrap(), "a packet keeps the address of its pod");
        }
    };
    time::timeout(FLIGHT, expected).await.is_ok()
}
