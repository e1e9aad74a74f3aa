//! Compares agents with HAProxy and keepalived, in network namespaces on one bridge. Prints figures and asserts nothing.
//!
//! ```text
//! cargo bench -p bowline-agent --features daemon --bench group [-- --seconds 3 --rounds 3 --only takeover]
//! ```
//!
//! * `traffic`: throughput and new connections through a service address, beside HAProxy on the same host.
//! * `addresses`: cost of holding service addresses, alone and during a flood of ARP packets.
//! * `takeover`: time without service after the active host stops, crashes or is lost, beside HAProxy with keepalived. The client
//!   connects every 20 ms.
//!
//! Needs root; HAProxy and keepalived are looked up in `PATH`, and their columns show SKIPPED without them.

#[cfg(target_os = "linux")]
mod addresses;
#[cfg(target_os = "linux")]
mod agents;
#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
#[path = "../../../l4/benches/haproxy/load.rs"]
mod load;
#[cfg(target_os = "linux")]
#[allow(clippy::unwrap_used, clippy::panic, reason = "shared with the tests")]
#[path = "../../tests/suite/network/net.rs"]
mod net;
#[cfg(target_os = "linux")]
#[path = "../../../l4/benches/haproxy/process.rs"]
mod process;
#[cfg(target_os = "linux")]
mod settings;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod takeover;
#[cfg(target_os = "linux")]
mod traffic;

#[cfg(target_os = "linux")]
fn main() -> load::Result<()> {
    let settings = settings::Settings::from_arguments();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(role) = child::role() {
        return runtime.block_on(child::run(&role));
    }
    if !settings::has_open_files() {
        return settings::again_with_open_files();
    }
    runtime.block_on(async {
        if settings.includes("traffic") {
            traffic::measure(&settings).await?;
        }
        if settings.includes("addresses") {
            addresses::measure(&settings).await?;
        }
        if settings.includes("takeover") {
            takeover::measure(&settings).await?;
        }
        Ok(())
    })
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: agents need Linux");
}
