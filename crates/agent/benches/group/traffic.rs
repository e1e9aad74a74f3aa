//! Throughput and new connections through a service address.

use std::net::{IpAddr, SocketAddr};

use crate::child::{PORT, Running, SERVICE, start_haproxy, until_served};
use crate::load::{self, Result, Work};
use crate::net::{Host, hosts};
use crate::process;
use crate::settings::Settings;
use crate::table::{Pair, heading};

/// Address of HAProxy on the same host.
const THEIRS: [u8; 4] = [192, 0, 2, 201];

/// Load balancer that is measured.
struct Side {
    running: Running,
    address: SocketAddr,
}

pub(crate) async fn measure(settings: &Settings) -> Result<()> {
    let Some([client, host, target]) = hosts().await else { return Ok(()) };
    let (_backend, target) = Running::start_backend(&target).await?;
    let running = Running::start_role(&host, format!("data-plane {target}")).await?;
    let mut sides = vec![Side { running, address: SocketAddr::from((SERVICE, PORT)) }];
    let mut files = Vec::new();
    if let Some(program) = process::haproxy() {
        host.add_address(IpAddr::from(THEIRS), 32).await;
        let address = SocketAddr::from((THEIRS, PORT));
        let (running, file) = start_haproxy(&host, &program, &address.to_string(), target).await?;
        files.push(file);
        sides.push(Side { running, address });
        until_served(&client, address.ip()).await?;
    }
    print(settings, &client, &sides).await
}

async fn print(settings: &Settings, client: &Host, sides: &[Side]) -> Result<()> {
    heading("traffic from another host, 64 connections", "HAProxy");
    let [mut fast, mut fast_cost, mut new, mut new_cost] = [(); 4].map(|()| Pair::default());
    for _ in 0..settings.rounds {
        for (place, side) in sides.iter().enumerate() {
            let (address, time) = (side.address, settings.time);
            let (rate, cost) = side.rate(client, async move { load::throughput(address, time).await }).await?;
            fast.add(place, rate);
            fast_cost.add(place, cost * 1024.0);
            let (rate, cost) = side.rate(client, async move { load::new_connections(address, time).await }).await?;
            new.add(place, rate);
            new_cost.add(place, cost * 1000.0);
        }
    }
    fast.print("throughput, MiB/s");
    fast_cost.print("  CPU time, ms/GiB");
    new.print("new connections, 1/s");
    new_cost.print("  CPU time, us each");
    Ok(())
}

impl Side {
    /// Returns the work per second, and the CPU time in milliseconds for a unit of work.
    async fn rate(
        &self,
        client: &Host,
        work: impl Future<Output = Result<Work>> + Send + 'static,
    ) -> Result<(f64, f64)> {
        let before = self.running.cpu_time()?;
        let Work { amount, seconds } = client.namespace.run(work).await?;
        Ok((amount / seconds, (self.running.cpu_time()? - before) / amount))
    }
}
