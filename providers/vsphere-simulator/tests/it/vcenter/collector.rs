//! Properties and pages.

use std::collections::BTreeSet;

use bowline_vsphere_simulator::vcenter::{Machine, Options, Reference};

use crate::vcenter::client::{COLLECTOR, Client, fault, texts};

const KEYED: &str = "config.extraConfig[\"guestinfo.metadata\"]";

fn object(reference: &Reference) -> String {
    format!("<obj type='{}'>{}</obj>", reference.kind, reference.id)
}

#[tokio::test]
async fn the_server_limits_the_size_of_a_page() {
    let client = Client::new(Options { max_page: 1, ..Options::default() }).await;
    let (_, first) = client.list(&["name"], "500").await;
    assert_eq!(texts(&first, "val"), ["node-1"]);
    let (_, second) = client.next_page(&first).await;
    assert_eq!((texts(&second, "val"), texts(&second, "token")), (vec!["node-2"], vec![]));
    assert_eq!(fault(&client.next_page(&first).await), "InvalidArgument", "a token is valid once");
}

#[tokio::test]
async fn a_machine_that_is_deleted_between_two_pages_is_left_out() {
    let client = Client::new(Options::default()).await;
    let (_, first) = client.list(&["name"], "1").await;
    assert!(client.vcenter.delete_machine("node-2"));
    let (status, second) = client.next_page(&first).await;
    assert_eq!((status, texts(&second, "objects").len()), (200, 0));
}

#[tokio::test]
async fn a_vcenter_without_keyed_paths_reports_them_as_missing() {
    let client = Client::new(Options { keyed_paths: false, ..Options::default() }).await;
    let (_, body) = client.list(&["name", KEYED], "1").await;
    assert_eq!(texts(&body, "val"), ["node-1"]);
    assert!(texts(&body, "missingSet")[0].contains("xsi:type=\"InvalidProperty\""), "{body}");
}

#[tokio::test]
async fn an_omitted_property_is_neither_set_nor_missing() {
    let client = Client::new(Options::default()).await;
    let machine = client.vcenter.find("VirtualMachine", "node-1").unwrap();
    client.vcenter.edit(&machine, |record| drop(record.remove("guest")));
    let (_, body) = client.retrieve(&object(&machine), &["guest.hostName", "name"], "").await;
    assert_eq!((texts(&body, "val"), texts(&body, "missingSet").len()), (vec!["node-1"], 0));
}

#[tokio::test]
async fn two_property_sets_for_one_object_return_each_property_once() {
    let client = Client::new(Options::default()).await;
    let machine = client.vcenter.find("VirtualMachine", "node-1").unwrap();
    let set = |kind: &str| format!("<propSet><type>{kind}</type><pathSet>name</pathSet></propSet>");
    let specification = format!(
        "<specSet>{}{}<objectSet>{}</objectSet></specSet>",
        set("VirtualMachine"),
        set("ManagedEntity"),
        object(&machine)
    );
    let (_, body) = client.call("RetrieveProperties", COLLECTOR, &specification).await;
    assert_eq!(texts(&body, "val"), ["node-1"]);
}

#[tokio::test]
async fn special_characters_are_escaped() {
    let client = Client::new(Options::default()).await;
    let extra_config = [("guestinfo.metadata".to_owned(), "a<b>&\"c'".to_owned())].into();
    let machine = Machine { name: "a/b<c>".to_owned(), extra_config, ..Machine::default() };
    let machine = client.vcenter.add_machine(machine).unwrap();
    let (_, body) = client.retrieve(&object(&machine), &["name", &KEYED.replace('"', "&quot;")], "").await;
    assert_eq!(texts(&body, "val")[0], "a%2fb&lt;c&gt;");
    assert_eq!(texts(&body, "value"), ["a&lt;b&gt;&amp;&quot;c&apos;"]);
}

#[tokio::test]
async fn thousands_of_machines_are_listed_page_by_page_and_searched_by_index() {
    let client = Client::new(Options::default()).await;
    for number in 3..=5000 {
        let address = format!("10.20.{}.{}", number / 250, number % 250);
        client.vcenter.add_machine(Machine::named(&format!("node-{number}"), &address)).unwrap();
    }
    let (mut names, mut pages) = (BTreeSet::new(), 0);
    let (_, mut body) = client.list(&["name", "summary.config.uuid", "guest.net"], "").await;
    loop {
        pages += 1;
        names.extend(
            texts(&body, "propSet").iter().filter(|set| set.contains("<name>name<")).map(|set| set.to_string()),
        );
        if !body.contains("<token>") {
            break;
        }
        (_, body) = client.next_page(&body).await;
    }
    assert_eq!((names.len(), pages), (5000, 50));
    for number in (1..=5000).step_by(500) {
        let name = format!("node-{number}");
        let machine = client.vcenter.find("VirtualMachine", &name).unwrap();
        assert_eq!(client.find(&client.vcenter.machine(&name).unwrap().uuid).await, machine.id);
    }
}

#[tokio::test]
async fn objects_without_a_property_set_are_not_on_a_page() {
    let client = Client::new(Options::default()).await;
    let machine = client.vcenter.find("VirtualMachine", "node-2").unwrap();
    let up = "<selectSet xsi:type='TraversalSpec'><name>up</name><type>ManagedEntity</type><path>parent</path>\
              <selectSet><name>up</name></selectSet></selectSet>";
    let (_, body) = client.retrieve(&format!("{}{up}", object(&machine)), &["name"], "1").await;
    assert_eq!((texts(&body, "val"), texts(&body, "token").len()), (vec!["node-2"], 0));
}

#[tokio::test]
async fn a_traversal_that_leads_back_ends_and_returns_each_object_once() {
    let client = Client::new(Options::default()).await;
    let machine = client.vcenter.find("VirtualMachine", "node-2").unwrap();
    let both = "<selectSet><name>up</name></selectSet><selectSet><name>down</name></selectSet>";
    let spec = |name: &str, kind: &str, path: &str| {
        format!(
            "<selectSet xsi:type='TraversalSpec'><name>{name}</name><type>{kind}</type><path>{path}</path>{both}</selectSet>"
        )
    };
    let (up, down) = (spec("up", "VirtualMachine", "parent"), spec("down", "Folder", "childEntity"));
    let (_, body) = client.retrieve(&format!("{}{up}{down}", object(&machine)), &["name"], "").await;
    assert_eq!(texts(&body, "val"), ["node-2", "node-1"]);
}
