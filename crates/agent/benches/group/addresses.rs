//! Cost of holding service addresses.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::bind;
use socket2::{Domain, Protocol, Socket, Type};

use crate::child::{RENEWAL, Running, network};
use crate::load::Result;
use crate::net::{Host, INTERFACE, hosts};
use crate::process::ready;
use crate::settings::Settings;

/// Renewals before a report.
const REPORTED: u32 = 4;

pub(crate) async fn measure(settings: &Settings) -> Result<()> {
    let Some([host, stranger]) = hosts().await else { return Ok(()) };
    println!("holding service addresses, renewed every {} ms", RENEWAL.as_millis());
    for count in [1, 100, 500] {
        let cost = cost(&host, count, settings.time).await?;
        println!("{:<48}{cost:>12.2}", format!("  {count} address(es), CPU time, % of one CPU"));
    }
    let _flood = Running::start_role(&stranger, "flood".to_owned()).await?;
    let cost = cost(&host, 1, settings.time).await?;
    println!("{:<48}{cost:>12.2}", "  1 address during a flood of ARP packets");
    Ok(())
}

/// Returns the CPU time of an agent's network, in percent of one CPU.
async fn cost(host: &Host, count: usize, time: Duration) -> Result<f64> {
    let holder = Running::start_role(host, format!("holder {count}")).await?;
    let (before, begun) = (holder.cpu_time()?, Instant::now());
    tokio::time::sleep(time).await;
    Ok((holder.cpu_time()? - before) / begun.elapsed().as_secs_f64() / 10.0)
}

// === The agent ===

/// Holds addresses, and reports the time of a renewal.
pub(crate) async fn hold(count: usize) -> Result<()> {
    let network = network()?;
    let numbers = (0..count).map(|number| u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
    let mut addresses: BTreeSet<IpAddr> = numbers.map(|[a, b]| IpAddr::from([198, 18, a, b])).collect();
    addresses.pop_first();
    addresses.insert(IpAddr::from([192, 0, 2, 200]));
    let begun = Instant::now();
    let report = network.hold(&addresses, true).await;
    if report.held != addresses {
        return Err(format!("{:?}", report.problems).into());
    }
    let added = begun.elapsed();
    ready();
    let mut longest = Duration::ZERO;
    for number in 1_u32.. {
        tokio::time::sleep(RENEWAL).await;
        let begun = Instant::now();
        network.hold(&addresses, true).await;
        longest = longest.max(begun.elapsed());
        if number == REPORTED {
            writeln!(io::stderr(), "  {count} address(es): added in {added:?}, longest renewal {longest:?}")?;
        }
    }
    Ok(())
}

// === The flood ===

/// Sends ARP packets that concern an address of the pool as fast as possible.
pub(crate) async fn flood() -> Result<()> {
    let protocol = 0x0806_u16;
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(protocol.to_be()))))?;
    let mut links = getifaddrs()?.filter(|entry| entry.interface_name == INTERFACE).filter_map(|entry| entry.address);
    let link = links.find_map(|address| address.as_link_addr().copied()).ok_or("no link address")?;
    bind(socket.as_raw_fd(), &link)?;
    ready();
    let (mut sent, begun) = (0_u64, Instant::now());
    for number in 0_u32.. {
        let [a, b, c, d] = number.to_be_bytes();
        #[rustfmt::skip]
        let frame = [
            255, 255, 255, 255, 255, 255, 6, 0, a, b, c, d, 8, 6,
            0, 1, 8, 0, 6, 4, 0, 1, 6, 0, a, b, c, d, 192, 0, 2, 200, 0, 0, 0, 0, 0, 0, 192, 0, 2, 200,
        ];
        sent += u64::from(socket.send(&frame).is_ok());
        if begun.elapsed() > Duration::from_secs(1) {
            writeln!(io::stderr(), "  flood: {sent} packets/s")?;
            break;
        }
    }
    loop {
        let _ = socket.send(&[255; 42]);
    }
}
