//! Service addresses with real packets: agents, a client and other hosts are network namespaces on one segment. Needs root;
//! otherwise the tests are reported as skipped.

mod net;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_agent::network::{
    HoldReport, MacAddress, Network, NetworkError, NetworkOptions, Seen, SeenKind, addresses_of_others,
};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time;

use net::{Host, INTERFACE, hosts, within};

const PORT: u16 = 8080;

/// Limit for what should happen at once, generous for a busy machine.
const SOON: Duration = Duration::from_secs(5);

fn ips(addresses: &[&str]) -> BTreeSet<IpAddr> {
    addresses.iter().map(|text| text.parse().unwrap()).collect()
}

/// One service address of each family.
fn services() -> BTreeSet<IpAddr> {
    ips(&["192.0.2.200", "2001:db8::200"])
}

fn options(interface: &str) -> NetworkOptions {
    let pools = ["192.0.2.200-192.0.2.250", "2001:db8::200/120"].map(|text| text.parse().unwrap()).to_vec();
    NetworkOptions { interface: interface.to_owned(), pools }
}

/// Network of an agent on a host.
struct Agent<'a> {
    host: &'a Host,
    network: Arc<Network>,
}

impl<'a> Agent<'a> {
    async fn open(host: &'a Host) -> Agent<'a> {
        let network = host.namespace.run(async { Network::open(options(INTERFACE)) }).await.unwrap();
        Agent { host, network: Arc::new(network) }
    }

    async fn hold(&self, addresses: &BTreeSet<IpAddr>, takeover: bool) -> HoldReport {
        let (network, addresses) = (self.network.clone(), addresses.clone());
        self.host.namespace.run(async move { network.hold(&addresses, takeover).await }).await
    }

    /// Holds all addresses without problems. A process without CPU time for a second holds none, and the next call retries.
    async fn hold_all(&self, addresses: &BTreeSet<IpAddr>, takeover: bool) {
        let expected = HoldReport { held: addresses.clone(), problems: BTreeSet::new() };
        within(SOON, "all addresses are held", async || self.hold(addresses, takeover).await == expected).await;
    }

    /// Holds addresses until the result is dropped.
    async fn keep(&self, addresses: &BTreeSet<IpAddr>, takeover: bool) -> Keeper {
        self.hold_all(addresses, takeover).await;
        let (network, addresses) = (self.network.clone(), addresses.clone());
        let renewing = async move {
            loop {
                time::sleep(Duration::from_millis(500)).await;
                network.hold(&addresses, takeover).await;
            }
        };
        let (handle, started) = tokio::sync::oneshot::channel();
        self.host.namespace.start(async move {
            let task = tokio::spawn(renewing);
            let _ = handle.send(task.abort_handle());
        });
        Keeper(started.await.unwrap())
    }

    fn mac(&self) -> MacAddress {
        self.network.link_address().unwrap()
    }

    /// Waits for observations of one kind, one of each family.
    async fn observes(&self, kind: SeenKind) -> Vec<Seen> {
        let all = std::sync::Mutex::new(Vec::new());
        within(SOON, "observations of both families", async || {
            let mut all = all.lock().unwrap();
            all.extend(self.network.observations());
            let has = |is_family: fn(&IpAddr) -> bool| {
                all.iter().any(|seen: &Seen| seen.kind == kind && is_family(&seen.address))
            };
            has(IpAddr::is_ipv4) && has(IpAddr::is_ipv6)
        })
        .await;
        all.into_inner().unwrap()
    }
}

/// Task that renews addresses.
struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn own(host: &Host) -> Vec<String> {
    host.addresses.iter().zip([24, 64]).map(|(address, prefix)| format!("{address}/{prefix}")).collect()
}

/// Waits until a client reaches this server. Another server must not respond.
async fn responds(client: &Host, address: IpAddr, name: &str) {
    let is_expected = async || match client.ask(address, PORT).await {
        Some(found) => {
            assert_eq!(found, name, "{address}");
            true
        }
        None => false,
    };
    within(SOON, "the server responds", is_expected).await;
}

/// Addresses of the host with those of the agent.
fn with_services(host: &Host) -> Vec<String> {
    let services = ["192.0.2.200/32", "2001:db8::200/128"].map(str::to_owned);
    let mut all = [own(host), services.to_vec()].concat();
    all.sort();
    all
}

#[tokio::test]
async fn a_client_reaches_the_addresses_until_they_are_released() {
    let Some([client, one]) = hosts().await else { return };
    one.serve(PORT, "one").await;
    let agent = Agent::open(&one).await;
    assert_eq!(agent.mac().to_string(), one.mac().await);
    let keeper = agent.keep(&services(), false).await;
    assert_eq!(one.found_addresses().await, with_services(&one));
    for address in services() {
        responds(&client, address, "one").await;
    }
    // Longer than the lifetime.
    time::sleep(Duration::from_secs(3)).await;
    for address in services() {
        responds(&client, address, "one").await;
    }
    drop(keeper);
    let report = agent.hold(&BTreeSet::new(), false).await;
    assert_eq!(report, HoldReport::default());
    assert_eq!(one.found_addresses().await, own(&one), "only the addresses of the host are left");
}

#[tokio::test]
async fn caches_follow_a_takeover_at_once() {
    let Some([client, one, two]) = hosts().await else { return };
    one.serve(PORT, "one").await;
    two.serve(PORT, "two").await;
    let (first, second) = (Agent::open(&one).await, Agent::open(&two).await);
    let macs = [first.mac().to_string(), second.mac().to_string()];
    // A standby has its sockets open.
    second.hold(&BTreeSet::new(), false).await;
    let keeper = first.keep(&services(), false).await;
    for address in services() {
        responds(&client, address, "one").await;
        assert_eq!(client.neighbour(address).await.as_ref(), Some(&macs[0]));
    }
    // The owner dies. Its kernel still has the addresses.
    drop(keeper);
    first.hold_all(&services(), true).await;
    assert_eq!(one.found_addresses().await, with_services(&one));
    drop(first);
    let _keeper = second.keep(&services(), true).await;
    for address in services() {
        // The client sends nothing, so only announcements change its cache.
        let time = within(SOON, "the cache entry follows", async || {
            client.neighbour(address).await.as_ref() == Some(&macs[1])
        })
        .await;
        eprintln!("the entry of {address} followed in {time:?}");
        responds(&client, address, "two").await;
    }
    within(SOON, "the addresses of the dead owner expire", async || one.found_addresses().await == own(&one)).await;
    for address in services() {
        responds(&client, address, "two").await;
    }
}

#[tokio::test]
async fn addresses_expire_without_renewal() {
    let Some([one]) = hosts().await else { return };
    let agent = Agent::open(&one).await;
    let begin = time::Instant::now();
    agent.hold_all(&services(), true).await;
    drop(agent);
    within(SOON, "the addresses expire", async || one.found_addresses().await == own(&one)).await;
    let time = begin.elapsed();
    eprintln!("the kernel removed the addresses after {time:?}");
    assert!(time > Duration::from_millis(1900), "earlier than their lifetime: {time:?}");
}

#[tokio::test]
async fn a_restarted_agent_recognises_its_addresses() {
    let Some([one]) = hosts().await else { return };
    Agent::open(&one).await.hold_all(&services(), true).await;
    let others = one.namespace.run(addresses_of_others()).await.unwrap();
    assert!(others.is_disjoint(&services()) && one.addresses.iter().all(|own| others.contains(own)), "{others:?}");
    let restarted = Agent::open(&one).await;
    let fewer = ips(&["2001:db8::200"]);
    restarted.hold_all(&fewer, false).await;
    let mut expected = [own(&one), vec!["2001:db8::200/128".to_owned()]].concat();
    expected.sort();
    assert_eq!(one.found_addresses().await, expected);
}

#[tokio::test]
async fn beacons_of_a_peer_are_observed() {
    let Some([one, two]) = hosts().await else { return };
    let (active, standby) = (Agent::open(&one).await, Agent::open(&two).await);
    standby.network.set_peers(BTreeSet::from([active.mac()]));
    standby.hold(&BTreeSet::new(), false).await;
    let _keeper = active.keep(&services(), false).await;
    for _ in 0..3 {
        let seen = standby.observes(SeenKind::Beacon).await;
        assert!(seen.iter().all(|seen| seen.kind == SeenKind::Beacon && seen.by == active.mac()), "{seen:?}");
        assert!(seen.iter().all(|seen| services().contains(&seen.address)), "{seen:?}");
    }
    // Less than two intervals of beacons.
    time::sleep(Duration::from_millis(700)).await;
    standby.observes(SeenKind::Beacon).await;
    assert_eq!(active.network.observations(), [], "an agent does not see itself");
}

#[tokio::test]
async fn a_host_that_uses_a_held_address_is_a_conflict() {
    let Some([one, stranger]) = hosts().await else { return };
    let agent = Agent::open(&one).await;
    let _keeper = agent.keep(&services(), false).await;
    // An ordinary host does not announce its address. It uses it as the sender of ARP requests.
    stranger.add_address("192.0.2.200".parse().unwrap(), 24).await;
    let target = one.addresses[0];
    let send = async move {
        let socket = UdpSocket::bind("192.0.2.200:0").await?;
        socket.send_to(b"packet", (target, 9)).await
    };
    stranger.namespace.run(send).await.unwrap();
    within(SOON, "the conflict is observed", async || {
        let seen = agent.network.observations();
        seen.iter().any(|seen| seen.kind == SeenKind::Conflict && seen.by.to_string() != agent.mac().to_string())
    })
    .await;
    // An agent that is no peer announces its addresses.
    let other_group = Agent::open(&stranger).await;
    let _other_keeper = other_group.hold(&ips(&["2001:db8::200", "192.0.2.201"]), true).await;
    within(SOON, "a conflict in IPv6", async || {
        let seen = agent.network.observations();
        seen.iter().any(|seen| seen.kind == SeenKind::Conflict && seen.address.is_ipv6())
    })
    .await;
    assert!(one.found_addresses().await.contains(&"192.0.2.200/32".to_owned()), "conflicts remove no addresses");
}

#[tokio::test]
async fn unknown_users_of_the_pool_are_observed() {
    let Some([one, two]) = hosts().await else { return };
    let (active, standby) = (Agent::open(&one).await, Agent::open(&two).await);
    standby.hold(&BTreeSet::new(), false).await;
    let _keeper = active.keep(&services(), false).await;
    let seen = standby.observes(SeenKind::Foreign).await;
    assert!(seen.iter().all(|seen| seen.kind == SeenKind::Foreign && seen.by == active.mac()), "{seen:?}");
}

#[tokio::test]
async fn an_address_in_use_is_refused_except_for_a_takeover() {
    let Some([one, stranger]) = hosts().await else { return };
    for (address, prefix) in services().into_iter().zip([24, 64]) {
        stranger.add_address(address, prefix).await;
    }
    let agent = Agent::open(&one).await;
    let (free, mut desired) = (ips(&["192.0.2.201", "2001:db8::201"]), services());
    desired.extend(&free);
    let report = agent.hold(&desired, false).await;
    assert_eq!(report.held, free);
    let (problems, user) = (Vec::from_iter(&report.problems), stranger.mac().await);
    assert_eq!(problems.iter().filter_map(|problem| problem.address).collect::<BTreeSet<_>>(), services());
    for problem in &problems {
        assert!(problem.to_string().contains(&format!(": host {user} on this network uses it; fix: ")), "{problem}");
    }
    // The result is kept, so that not every call takes the time of a probe, which is 300 ms.
    within(SOON, "a call without a probe", async || {
        let begin = time::Instant::now();
        assert_eq!(agent.hold(&desired, false).await, report);
        begin.elapsed() < Duration::from_millis(300)
    })
    .await;
    let forced = agent.hold(&desired, true).await;
    assert_eq!(forced, HoldReport { held: desired, problems: BTreeSet::new() });
}

#[tokio::test]
async fn an_address_that_a_peer_still_holds_is_taken_soon() {
    let Some([one, two]) = hosts().await else { return };
    let (first, second) = (Agent::open(&one).await, Agent::open(&two).await);
    second.network.set_peers(BTreeSet::from([first.mac()]));
    second.hold(&BTreeSet::new(), false).await;
    first.hold_all(&services(), false).await;
    let report = second.hold(&services(), false).await;
    assert_eq!((report.held, report.problems.len()), (BTreeSet::new(), 2));
    let expected = format!("address 192.0.2.200: the peer {} still holds it; retrying", first.mac());
    assert!(report.problems.first().unwrap().to_string().ends_with(&expected), "{:?}", report.problems);
    within(SOON, "the addresses expire and are taken", async || {
        second.hold(&services(), false).await.held == services()
    })
    .await;
}

#[tokio::test]
async fn addresses_of_other_programs_survive() {
    let Some([one]) = hosts().await else { return };
    let others = ["192.0.2.210", "2001:db8::210"];
    for (address, prefix) in ips(&others).into_iter().zip([32, 128]) {
        one.add_address(address, prefix).await;
    }
    let before = one.found_addresses().await;
    let agent = Agent::open(&one).await;
    agent.hold_all(&services(), true).await;
    agent.hold(&BTreeSet::new(), false).await;
    assert_eq!(one.found_addresses().await, before);
    let report = agent.hold(&ips(&others), true).await;
    assert_eq!(report.held, BTreeSet::new());
    for problem in &report.problems {
        let text = problem.to_string();
        assert!(text.contains("another program has added it to this interface; fix: remove it there"), "{text}");
    }
    assert_eq!(report.problems.len(), 2);
    // Longer than the lifetime of the agent's own addresses.
    time::sleep(Duration::from_secs(3)).await;
    assert_eq!(one.found_addresses().await, before);
}

#[tokio::test]
async fn an_interface_that_went_down_or_vanished_is_reported_and_works_again() {
    let Some([client, one]) = hosts().await else { return };
    one.serve(PORT, "one").await;
    let agent = Agent::open(&one).await;
    agent.hold_all(&services(), false).await;
    assert!(agent.network.is_connected());
    one.set_up(false).await;
    let problem = async || {
        let report = agent.hold(&services(), true).await;
        assert_eq!(report.held, BTreeSet::new());
        report.problems.first().unwrap().to_string()
    };
    assert_eq!(problem().await, "interface eth1: is down; fix: `ip link set dev eth1 up`");
    assert!(!agent.network.is_connected());
    one.set_up(true).await;
    // The kernel removed its IPv6 addresses.
    one.add_address(one.addresses[1], 64).await;
    within(SOON, "the addresses are back", async || agent.hold(&services(), true).await.held == services()).await;
    within(SOON, "the client", async || client.ask(*services().first().unwrap(), PORT).await.is_some()).await;

    one.unplug().await;
    let expected = "interface eth1: does not exist any more; fix: create it again, or correct `interface`";
    assert_eq!(problem().await, expected);
    assert!(!agent.network.is_connected());
    one.plug_in().await;
    let _keeper = agent.keep(&services(), true).await;
    for address in services() {
        within(SOON, "the client", async || client.ask(address, PORT).await.is_some()).await;
    }
    assert_eq!(agent.mac().to_string(), one.mac().await);
    assert!(agent.network.is_connected());

    one.set_cable(false).await;
    within(SOON, "no carrier", async || {
        let report = agent.hold(&services(), true).await;
        let text = report.problems.iter().map(ToString::to_string).collect::<String>();
        !agent.network.is_connected() && text.contains("no carrier; fix: connect the cable")
    })
    .await;
}

/// The other host neither announces the address nor sends anything from it.
#[tokio::test]
async fn a_silent_user_of_a_taken_address_is_a_conflict() {
    let Some([one, stranger]) = hosts().await else { return };
    for (address, prefix) in services().into_iter().zip([24, 64]) {
        stranger.add_address(address, prefix).await;
    }
    let agent = Agent::open(&one).await;
    let _keeper = agent.keep(&services(), true).await;
    let user = stranger.mac().await;
    let seen = std::sync::Mutex::new(BTreeSet::new());
    let limit = Duration::from_secs(60);
    within(limit, "the conflict in both families", async || {
        let found = agent.network.observations().into_iter().filter(|found| found.kind == SeenKind::Conflict);
        let mut seen = seen.lock().unwrap();
        seen.extend(found.filter(|found| found.by.to_string() == user).map(|found| found.address));
        *seen == services()
    })
    .await;
}

#[tokio::test]
async fn a_suspended_process_takes_no_addresses_afterwards() {
    let Some([one]) = hosts().await else { return };
    let agent = Agent::open(&one).await;
    // Suspended during the probe.
    one.namespace.start(async {
        time::sleep(Duration::from_millis(100)).await;
        std::thread::sleep(Duration::from_millis(1200));
    });
    let report = agent.hold(&services(), false).await;
    assert_eq!((report.held, one.found_addresses().await), (BTreeSet::new(), own(&one)));
    let text = report.problems.first().unwrap().to_string();
    assert!(text.contains("this process was suspended"), "{text}");
    agent.hold_all(&services(), false).await;
}

#[tokio::test]
async fn a_missing_interface_is_an_error_that_names_the_existing_ones() {
    let Some([one]) = hosts().await else { return };
    let result = one.namespace.run(async { Network::open(options("eth7")) }).await;
    let Err(error @ NetworkError::NoSuchInterface { .. }) = result else { panic!("opened") };
    let text = error.to_string();
    assert!(text.starts_with("interface \"eth7\" does not exist; this host has lo, eth1; fix: "), "{text}");
}

#[tokio::test]
async fn addresses_that_the_kernel_refuses_are_reported() {
    let Some([one]) = hosts().await else { return };
    let agent = Agent::open(&one).await;
    let report = agent.hold(&ips(&["ff02::7", "2001:db8::200"]), true).await;
    assert_eq!(report.held, ips(&["2001:db8::200"]));
    let text = report.problems.first().unwrap().to_string();
    assert!(text.contains("address ff02::7: the kernel accepts only unicast addresses; fix: "), "{text}");
}

/// Prints the cost of many addresses; the figures depend on the machine.
#[tokio::test]
async fn many_addresses_are_held() {
    let Some([one]) = hosts().await else { return };
    let agent = Agent::open(&one).await;
    let mut many: BTreeSet<IpAddr> = (0..250_u16).map(|number| IpAddr::from([198, 18, 0, number as u8])).collect();
    many.extend((0..250_u16).map(|number| IpAddr::from([0x2001, 0xdb8, 1, 0, 0, 0, 0, number])));
    let begin = time::Instant::now();
    agent.hold_all(&many, true).await;
    let added = begin.elapsed();
    let begin = time::Instant::now();
    for _ in 0..10 {
        agent.hold_all(&many, true).await;
    }
    eprintln!("500 addresses: added in {added:?}, renewed in {:?}", begin.elapsed() / 10);
    assert_eq!(agent.hold(&BTreeSet::new(), false).await, HoldReport::default());
    assert_eq!(one.found_addresses().await, own(&one));
}
