//! Machines, and their places in the inventory.

use bowline_vsphere_simulator::vcenter::{Access, Machine, Options, Reference};

use crate::vcenter::client::{Client, texts};

async fn search(client: &Client, name: &str, datacenter: &str) -> usize {
    let datacenter = client.vcenter.find("Datacenter", datacenter).unwrap();
    let arguments = format!(
        "<datacenter type='Datacenter'>{}</datacenter><dnsName>{name}</dnsName><vmSearch>true</vmSearch>",
        datacenter.id
    );
    let (_, body) = client.call("FindAllByDnsName", ("SearchIndex", "SearchIndex"), &arguments).await;
    texts(&body, "returnval").len()
}

#[tokio::test]
async fn a_machine_moves_to_the_datacenter_of_its_host() {
    let client = Client::new(Options::default()).await;
    let found = |name| (search(&client, "node-1", name), search(&client, "node-2", name));
    let (first, second) = found("DC0");
    assert_eq!((first.await, second.await), (1, 1));
    assert!(client.vcenter.change_machine("node-1", |machine| machine.host = "DC1_C1_H0".to_owned()));
    let (first, second) = found("DC0");
    assert_eq!((first.await, second.await), (0, 1));
    assert_eq!(search(&client, "node-1", "DC1").await, 1);
    let old = client.vcenter.find("HostSystem", "DC0_C0_H0").unwrap();
    assert_eq!(client.vcenter.properties(&old).unwrap()["vm"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_changed_or_deleted_machine_changes_the_search_index() {
    let client = Client::new(Options::default()).await;
    assert!(client.vcenter.change_machine("node-1", |machine| machine.host_name = "other".to_owned()));
    assert_eq!((search(&client, "node-1", "DC0").await, search(&client, "other", "DC0").await), (0, 1));
    assert!(client.vcenter.delete_machine("node-1"));
    assert!(!client.vcenter.delete_machine("node-1"));
    assert_eq!(search(&client, "other", "DC0").await, 0);
    let folder = client.vcenter.find("Folder", "vm").unwrap();
    let children = client.vcenter.properties(&folder).unwrap()["childEntity"].to_string();
    assert_eq!(children.matches("VirtualMachine").count(), 1);
}

#[tokio::test]
async fn a_machine_in_a_vapp_has_no_folder_and_belongs_to_its_datacenter() {
    let client = Client::new(Options::default()).await;
    let pool = client.vcenter.find("ResourcePool", "workers").unwrap();
    let vapp = client.vcenter.add_vapp(&pool, "app");
    client.vcenter.change_machine("node-1", |machine| machine.vapp = Some(vapp.id.clone()));
    let machine = client.vcenter.find("VirtualMachine", "node-1").unwrap();
    let properties = client.vcenter.properties(&machine).unwrap();
    assert_eq!((properties.get("parent"), client.vcenter.parent(&machine)), (None, Some(vapp)));
    assert_eq!(search(&client, "node-1", "DC0").await, 1);
}

#[tokio::test]
async fn a_machine_in_an_unknown_place_is_not_added() {
    let client = Client::new(Options::default()).await;
    let host = || "unknown".to_owned();
    assert_eq!(client.vcenter.add_machine(Machine { host: host(), ..Machine::default() }), None);
    assert!(!client.vcenter.change_machine("node-1", |machine| machine.host = host()));
    assert!(!client.vcenter.change_machine("node-1", |machine| machine.folder = Some(host())));
    assert!(!client.vcenter.change_machine("node-1", |machine| machine.pool = Some(host())));
    assert_eq!(client.vcenter.machine("node-1").unwrap().host, "DC0_C0_H0");
}

#[tokio::test]
async fn the_inventory_can_be_built_from_the_root() {
    let client = Client::new(Options::default()).await;
    let vcenter = bowline_vsphere_simulator::vcenter::Vcenter::empty(Options::default());
    let datacenter = vcenter.add_datacenter(&vcenter.add_folder(&vcenter.root(), "eu"), "fra");
    vcenter.add_cluster(&datacenter, "c", 1);
    let machine = vcenter.add_machine(Machine { host: "c_H0".to_owned(), ..Machine::named("a", "10.0.0.1") }).unwrap();
    let chain = std::iter::successors(Some(machine), |object| vcenter.parent(object)).collect::<Vec<Reference>>();
    let kinds: Vec<_> = chain.iter().map(|object| object.kind.as_str()).collect();
    assert_eq!(kinds, ["VirtualMachine", "Folder", "Datacenter", "Folder", "Folder"]);
    assert!(client.vcenter.find("Datacenter", "fra").is_none());
}

#[tokio::test]
async fn a_user_cannot_find_what_is_below_an_object_that_it_cannot_see() {
    let client = Client::new(Options::default()).await;
    let datacenter = client.vcenter.find("Datacenter", "DC0").unwrap();
    client.vcenter.set_access(&datacenter, Access::NoRead);
    assert_eq!(search(&client, "node-1", "DC0").await, 1);
    assert!(client.list(&["name"], "").await.1.contains("NoPermission"));
    client.vcenter.set_access(&datacenter, Access::NoView);
    assert_eq!(search(&client, "node-1", "DC0").await, 0);
    assert_eq!(texts(&client.list(&["name"], "").await.1, "objects").len(), 0);
    client.vcenter.set_access(&datacenter, Access::Full);
    assert_eq!(texts(&client.list(&["name"], "").await.1, "objects").len(), 2);
}
