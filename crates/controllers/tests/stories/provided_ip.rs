//! Provided node IPs (P1 to P17), from the annotation to the Node. P18 and P19 test a helper, in `bowline-core`; P10 is in
//! `addresses.rs`.

use std::time::Duration;

use serde_json::json;

use crate::world::{UNINITIALIZED, World, addresses, has_taint, machine};

const DUAL: &str = "10.1.1.1,fc01:1234::5678";

/// Number, annotation, the cloud's addresses, and the resulting addresses of the Node or the error.
type Case = (&'static str, &'static str, &'static str, Result<&'static str, &'static str>);

/// `I` internal, `E` external, `H` hostname.
const CASES: [Case; 24] = [
    ("P1", "10.1.1.1", "I10.1.1.1 Hn", Ok("I10.1.1.1 Hn")),
    ("P2", "55.55.55.55", "I10.1.1.1 E55.55.55.55 Hn", Ok("E55.55.55.55 I10.1.1.1 Hn")),
    ("P3", "10.1.1.1", "I10.1.1.1 E55.55.55.55 Hn", Ok("I10.1.1.1 E55.55.55.55 Hn")),
    ("P4", "10.1.1.1", "I10.1.1.1 I10.2.2.2 I10.3.3.3 E55.55.55.55 Hn", Ok("I10.1.1.1 E55.55.55.55 Hn")),
    ("P5", "10.2.2.2", "I10.1.1.1 E55.55.55.55 Hn", Err("matches ip: 10.2.2.2")),
    ("P6", DUAL, "I10.1.1.1 Ifc01:1234::5678 Hn", Ok("I10.1.1.1 Ifc01:1234::5678 Hn")),
    ("P7", DUAL, "Ifc01:1234::5678 I10.1.1.1 Hn", Ok("I10.1.1.1 Ifc01:1234::5678 Hn")),
    ("P8", DUAL, "I10.1.1.1 I10.1.1.2 Ifc01:1234::1234 Ifc01:1234::5678 Hn", Ok("I10.1.1.1 Ifc01:1234::5678 Hn")),
    (
        "P9",
        DUAL,
        "I10.1.1.1 E55.55.55.55 Ifc01:1234::1234 Ifc01:1234::5678 Hn",
        Ok("I10.1.1.1 Ifc01:1234::5678 E55.55.55.55 Hn"),
    ),
    ("P11", "", "I10.1.1.1", Err("could not parse \"\"")),
    ("P12a", "blah", "I10.1.1.1", Err("could not parse \"blah\"")),
    ("P12b", "1.2.3", "I10.1.1.1", Err("could not parse \"1.2.3\"")),
    ("P12c", "1.2.3.0/24", "I10.1.1.1", Err("could not parse \"1.2.3.0/24\"")),
    ("P12d", "1.2.3.4,not-an-IPv6-address", "I10.1.1.1", Err("could not parse \"not-an-IPv6-address\"")),
    ("P13a", "1.2.3.4", "I1.2.3.4 Hn", Ok("I1.2.3.4 Hn")),
    ("P13b", "abcd::ef01", "Iabcd::ef01 Hn", Ok("Iabcd::ef01 Hn")),
    ("P13c", "1.2.3.4,abcd::ef01", "I1.2.3.4 Iabcd::ef01 Hn", Ok("I1.2.3.4 Iabcd::ef01 Hn")),
    ("P14a", "1.2.3.4,5.6.7.8", "I1.2.3.4", Err("must contain either a single IP or a dual-stack pair of IPs")),
    ("P14b", "abcd::1,abcd::2", "Iabcd::1", Err("must contain either a single IP or a dual-stack pair of IPs")),
    // Valid, but no machine has that address.
    ("P15", "0.0.0.0", "I1.2.3.4", Err("matches ip: 0.0.0.0")),
    ("P16a", "1.2.3.4,::", "I1.2.3.4", Err("dual-stack node IP cannot include '0.0.0.0' or '::'")),
    ("P16b", "0.0.0.0,abcd::1", "Iabcd::1", Err("dual-stack node IP cannot include '0.0.0.0' or '::'")),
    ("P17", "abcd:0abc:00ab:0000:0000::1", "Iabcd:abc:ab::1 Hn", Ok("Iabcd:abc:ab::1 Hn")),
    ("P17b", "010.001.1.1", "I10.1.1.1 Hn", Ok("I10.1.1.1 Hn")),
];

fn written_out(list: &str) -> Vec<String> {
    let texts: Vec<_> = list.split_whitespace().collect();
    machine("n", "i", &texts).addresses.iter().map(|address| format!("{} {}", address.kind, address.address)).collect()
}

#[tokio::test(start_paused = true)]
async fn p01_to_p17_the_annotation_orders_and_filters_addresses_or_keeps_the_taint() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    for (number, annotation, cloud_addresses, _) in CASES {
        let name = number.to_lowercase();
        let texts: Vec<_> = cloud_addresses.split_whitespace().collect();
        world.cloud().add(machine(&name, &format!("i-{name}"), &texts)).unwrap();
        let provided = json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": annotation}}});
        world.register_with(&name, provided).await;
    }
    world.start();
    for (number, _, _, expected) in CASES {
        let name = number.to_lowercase();
        match expected {
            Ok(list) => {
                let node = world.wait_until_initialized(&name).await;
                assert_eq!(addresses(&node), written_out(list), "{number}");
            }
            Err(reason) => {
                let event = world.eventually(number, async || world.event(&name, "InitializationFailed").await).await;
                let message = event.message.unwrap();
                assert!(message.contains(reason), "{number}: {message}");
                assert!(has_taint(&world.node(&name).await, UNINITIALIZED), "{number}");
            }
        }
    }
    // A corrected annotation is enough, without a restart or a change of the taint.
    world.patch("p5", json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": "10.1.1.1"}}})).await;
    world.wait_until_initialized("p5").await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_stops_matching_later_leaves_the_addresses_unchanged() {
    // NODE-24.
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "i-0", &["I10.1.1.1"])).unwrap();
    let provided = json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": "10.1.1.1"}}});
    world.register_with("node0", provided).await;
    world.start();
    let before = addresses(&world.wait_until_initialized("node0").await);
    let moved = machine("node0", "i-0", &["I10.9.9.9"]).addresses;
    world.cloud().change("i-0", |machine| machine.addresses = moved).unwrap();
    world.sleep(Duration::from_secs(1000)).await;
    assert_eq!(addresses(&world.node("node0").await), before);
}
