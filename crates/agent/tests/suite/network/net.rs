//! Hosts as network namespaces on one Ethernet segment: a bridge in a namespace of its own. Needs root, but no command-line tools.
//! Namespaces have no names: the kernel removes them with the process.
#![allow(dead_code, reason = "the benchmark uses other parts")]

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::TryStreamExt as _;
use nix::sched::{CloneFlags, unshare};
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Interface of every host.
pub(crate) const INTERFACE: &str = "eth1";

/// Reports a skipped test, bypassing the capture of the test runner, in the format that the CI gate counts.
pub(crate) fn skip(why: &str) {
    let line = format!("\nSKIPPED: {why}\n1 skipped\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}

// ---- a network namespace

/// Network namespace, with a thread in it that runs futures. Exists as long as this value.
pub(crate) struct Namespace {
    file: File,
    runtime: tokio::runtime::Handle,
    _end: oneshot::Sender<()>,
}

impl Namespace {
    /// Creates a namespace; fails without privileges.
    fn new() -> io::Result<Namespace> {
        let (end, ended) = oneshot::channel::<()>();
        let (made, result) = std::sync::mpsc::channel();
        thread::spawn(move || match enter() {
            Ok((file, runtime)) => {
                made.send(Ok((file, runtime.handle().clone()))).unwrap();
                let _ = runtime.block_on(ended);
            }
            Err(error) => made.send(Err(error)).unwrap(),
        });
        let (file, runtime) = result.recv().unwrap()?;
        Ok(Namespace { file, runtime, _end: end })
    }

    /// Runs a future in the namespace.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.spawn(work).await.unwrap()
    }

    /// Starts a task in the namespace. It ends with the namespace.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// File that names the namespace to other processes of this user.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    async fn kernel(&self) -> Handle {
        self.run(async {
            let (connection, kernel, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            kernel
        })
        .await
    }
}

fn enter() -> io::Result<(File, tokio::runtime::Runtime)> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok((File::open("/proc/thread-self/ns/net")?, runtime))
}

// ---- hosts

/// Host with an interface on the segment.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    /// IPv4 and IPv6 address of the host itself.
    pub(crate) addresses: [IpAddr; 2],
    switch: Arc<Namespace>,
    number: u8,
}

/// Creates connected hosts. Without privileges it reports the skipped test and returns `None`.
pub(crate) async fn hosts<const N: usize>() -> Option<[Host; N]> {
    let switch = match Namespace::new() {
        Ok(switch) => Arc::new(switch),
        Err(error) => {
            skip(&format!("cannot create a network namespace ({error}); run as root"));
            return None;
        }
    };
    let kernel = switch.kernel().await;
    if let Err(error) = kernel.link().add(LinkBridge::new("bridge").build()).execute().await {
        skip(&format!("cannot create a bridge in a network namespace ({error})"));
        return None;
    }
    let mut hosts = Vec::new();
    for number in 1..=N {
        let number = u8::try_from(number).unwrap();
        let addresses = [Ipv4Addr::new(192, 0, 2, number).into(), ipv6(number.into()).into()];
        let host = Host { namespace: Namespace::new().unwrap(), addresses, switch: switch.clone(), number };
        host.plug_in().await;
        hosts.push(host);
    }
    hosts.try_into().ok()
}

fn ipv6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

impl Host {
    /// Creates the interface, with the addresses of the host.
    pub(crate) async fn plug_in(&self) {
        let (port, switch) = (format!("port-{}", self.number), self.switch.kernel().await);
        switch.link().add(LinkVeth::new(&port, INTERFACE).build()).execute().await.unwrap();
        let other_end = LinkUnspec::new_with_name(INTERFACE).setns_by_fd(self.namespace.file.as_raw_fd());
        switch.link().set(other_end.build()).execute().await.unwrap();
        let bridge = index(&switch, "bridge").await.unwrap();
        switch.link().set(LinkUnspec::new_with_name(&port).controller(bridge).up().build()).execute().await.unwrap();
        let kernel = self.namespace.kernel().await;
        for name in ["lo", INTERFACE] {
            kernel.link().set(LinkUnspec::new_with_name(name).up().build()).execute().await.unwrap();
        }
        for (address, prefix) in self.addresses.into_iter().zip([24, 64]) {
            self.add_address(address, prefix).await;
        }
    }

    /// Removes the interface.
    pub(crate) async fn unplug(&self) {
        let kernel = self.namespace.kernel().await;
        let link = index(&kernel, INTERFACE).await.unwrap();
        kernel.link().del(link).execute().await.unwrap();
    }

    pub(crate) async fn set_up(&self, is_up: bool) {
        let link = LinkUnspec::new_with_name(INTERFACE);
        let link = if is_up { link.up() } else { link.down() };
        self.namespace.kernel().await.link().set(link.build()).execute().await.unwrap();
    }

    /// Connects or disconnects the other end of the interface: the host keeps its addresses.
    pub(crate) async fn set_cable(&self, is_connected: bool) {
        let port = LinkUnspec::new_with_name(&format!("port-{}", self.number));
        let port = if is_connected { port.up() } else { port.down() };
        self.switch.kernel().await.link().set(port.build()).execute().await.unwrap();
    }

    /// Adds an address as an operator.
    pub(crate) async fn add_address(&self, address: IpAddr, prefix: u8) {
        let kernel = self.namespace.kernel().await;
        let link = index(&kernel, INTERFACE).await.unwrap();
        let mut request = kernel.address().add(link, address, prefix);
        // Duplicate address detection takes a second.
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        request.execute().await.unwrap();
    }

    /// Addresses on the interface with their prefix lengths, without link-local ones, sorted.
    pub(crate) async fn found_addresses(&self) -> Vec<String> {
        let kernel = self.namespace.kernel().await;
        let Some(link) = index(&kernel, INTERFACE).await else { return Vec::new() };
        let request = kernel.address().get().set_link_index_filter(link);
        let found: Vec<_> = request.execute().try_collect().await.unwrap();
        let mut texts: Vec<_> = found.iter().map(text).filter(|text| !text.starts_with("fe80:")).collect();
        texts.sort();
        texts
    }

    /// Link address of the interface.
    pub(crate) async fn mac(&self) -> String {
        let kernel = self.namespace.kernel().await;
        let mut links = Box::pin(kernel.link().get().match_name(INTERFACE.to_owned()).execute());
        let link = links.try_next().await.unwrap().unwrap();
        let mac = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Address(mac) => Some(colons(mac)),
            _ => None,
        });
        mac.unwrap()
    }

    /// Link address of a neighbour in the cache of this host.
    pub(crate) async fn neighbour(&self, address: IpAddr) -> Option<String> {
        let kernel = self.namespace.kernel().await;
        let entries: Vec<_> = kernel.neighbours().get().execute().try_collect().await.unwrap();
        let entry = entries.iter().find(|entry| {
            entry.attributes.iter().any(|attribute| match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => *ip == address,
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => *ip == address,
                _ => false,
            })
        });
        entry?.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(mac) => Some(colons(mac)),
            _ => None,
        })
    }

    /// Starts a server on all addresses that answers each connection with a name.
    pub(crate) async fn serve(&self, port: u16, name: &'static str) {
        use tokio::io::AsyncWriteExt as _;
        let socket = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let listener = self.namespace.run(tokio::net::TcpListener::bind(socket)).await.unwrap();
        self.namespace.start(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(name.as_bytes()).await;
            }
        });
    }

    /// Connects to a server, and returns its name.
    pub(crate) async fn ask(&self, address: IpAddr, port: u16) -> Option<String> {
        use tokio::io::AsyncReadExt as _;
        let asked = async move {
            let mut stream = tokio::net::TcpStream::connect((address, port)).await.ok()?;
            let mut name = String::new();
            stream.read_to_string(&mut name).await.ok()?;
            Some(name)
        };
        let limited = async { tokio::time::timeout(Duration::from_millis(500), asked).await.ok().flatten() };
        self.namespace.run(limited).await
    }
}

async fn index(kernel: &Handle, name: &str) -> Option<u32> {
    let mut links = Box::pin(kernel.link().get().match_name(name.to_owned()).execute());
    Some(links.try_next().await.ok()??.header.index)
}

fn text(message: &AddressMessage) -> String {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(ip) => Some(ip),
        _ => None,
    });
    format!("{}/{}", address.unwrap(), message.header.prefix_len)
}

fn colons(mac: &[u8]) -> String {
    mac.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

// ---- waiting

/// Waits until the check succeeds, and returns the time that took.
pub(crate) async fn within(limit: Duration, what: &str, check: impl AsyncFn() -> bool) -> Duration {
    let begin = Instant::now();
    while !check().await {
        assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begin.elapsed()
}
