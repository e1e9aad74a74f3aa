//! Serves the page with the document of an invented cluster, to work on the page: `cargo run -p bowline-console --features page
//! --example page [-- NODES SERVICES]`. Actions change the document.

mod sample;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bowline_console::document::Health;
use bowline_console::page::{Action, Actions, PageOptions, PageServer, Session};
use bowline_runtime::Shutdown;
use futures::future::BoxFuture;

use sample::Sample;

/// Applies actions to the document instead of a cloud.
struct Changes(Sample);

impl Actions for Changes {
    fn perform(&self, action: Action) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(std::future::ready(self.apply(&action)))
    }
}

impl Changes {
    fn apply(&self, action: &Action) -> Result<String, String> {
        let mut document = self.0.document();
        match action {
            Action::StartFault(name) | Action::StopFault(name) => {
                let fault = document.fault.get_mut(name).ok_or("there is no such fault")?;
                fault.on = matches!(action, Action::StartFault(_));
                Ok(format!("The fault {name} is {}.", if fault.on { "on" } else { "off" }))
            }
            Action::StartMachine(id) | Action::StopMachine(id) => {
                let machine = document
                    .machine
                    .values_mut()
                    .find(|machine| machine.id == *id)
                    .ok_or("there is no such machine")?;
                machine.state =
                    if matches!(action, Action::StartMachine(_)) { "running" } else { "stopped" }.to_owned();
                machine.health = Health::ok();
                Ok(format!("The machine {id} is {}.", machine.state))
            }
            other => Err(format!("this example does not support {other:?}")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let document = match numbers[..] {
        [nodes, services] => sample::large(nodes, services),
        _ => sample::small(),
    };
    let sample = Sample::new(document);
    let session = Session {
        source: "playground",
        title: "kubectl --kubeconfig /tmp/bowline.kubeconfig".to_owned(),
        actions: true,
        examples: vec!["hello".to_owned(), "echo-udp".to_owned()],
    };
    let options =
        PageOptions { feed: Arc::new(sample.publisher()), actions: Some(Arc::new(Changes(sample.clone()))), session };
    let server = PageServer::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)?;
    println!("{}", server.url());
    let traffic = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            for balancer in sample.document().load_balancer.values_mut() {
                balancer.connections += fastrand::u64(2..12);
                balancer.bytes += fastrand::u64(2_000..90_000);
            }
        }
    };
    tokio::select! {
        () = server.serve(Shutdown::new()) => {}
        () = traffic => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
