//! Which machine is found, and when one is gone.

use bowline_cloud::{ErrorKind, KnownState};
use bowline_core::InstanceState;
use bowline_vsphere_simulator::FaultSpec;
use bowline_vsphere_simulator::vcenter::{Access, Machine, Nic, soap_fault};
use http::Method;

use crate::world::{self, SYSTEM_UUID, UUID, World, addresses, by_id, by_name, by_uuid};

// ---- identity

#[tokio::test]
async fn vs_48_49_and_51_a_machine_is_found_by_its_uuid_in_both_byte_orders() {
    let world = World::new();
    let upper_case = format!("vsphere://{}", UUID.to_uppercase());
    for id in [format!("vsphere://{UUID}"), format!("vsphere://{SYSTEM_UUID}"), upper_case, UUID.to_owned()] {
        let found = world.found(&by_id(&id)).await;
        assert_eq!(found.provider_id.as_ref().unwrap().as_str(), format!("vsphere://{UUID}"), "{id}");
        assert_eq!(addresses(&found), "Hostname=node-1 InternalIP=10.10.1.11 ExternalIP=10.10.1.11");
        assert_eq!(found.instance_type, "vsphere-vm.cpu-2.mem-4gb.os-ubuntu");
    }
}

#[tokio::test]
async fn vs_50_54_and_55_a_node_without_provider_id_is_found_by_its_system_uuid_and_then_by_its_name() {
    let world = World::new();
    for uuid in [UUID, SYSTEM_UUID] {
        assert_eq!(world.found(&by_uuid("another-name", uuid)).await.name, "another-name");
    }
    let id = |found: std::sync::Arc<bowline_core::Instance>| found.id.clone();
    let by_host_name = world.found(&by_name("node-1")).await;
    assert_eq!(by_host_name.provider_id.as_ref().unwrap().as_str(), format!("vsphere://{UUID}"));
    let node_2 = id(world.found(&by_name("node-2")).await);
    for node in
        [by_name("NODE-2"), by_uuid("node-2", "4c4c4544-0000-0000-0000-000000000000"), by_uuid("node-2", "short")]
    {
        assert_eq!(id(world.found(&node).await), node_2, "{node:?}");
    }
    assert_eq!(id(world.found(&by_name("10.10.1.12")).await), node_2, "a Node that is named after its address");
}

#[tokio::test]
async fn vs_55_a_short_node_name_matches_the_first_label_of_a_long_host_name() {
    let world = World::new();
    let long = Machine { host_name: "node-9.example.com".to_owned(), ..Machine::named("vm-9", "10.10.1.19") };
    world.vcenter().add_machine(long).unwrap();
    assert_eq!(
        addresses(&*world.found(&by_name("node-9")).await).split(' ').next(),
        Some("Hostname=node-9.example.com")
    );
    assert_eq!(world.find(&by_name("vm-9")).await.unwrap(), InstanceState::Gone, "its host name is another one");
    world.found(&world.id_of("vm-9")).await;
    let other = by_uuid("node-9", "4c4c4544-0000-0000-0000-000000000000");
    assert_eq!(world.find(&other).await.unwrap(), InstanceState::Gone, "another machine with the same first label");
    // The whole name is better than its first label.
    world.vcenter().add_machine(Machine::named("node-9", "10.10.1.20")).unwrap();
    assert!(addresses(&*world.found(&by_name("node-9")).await).contains("10.10.1.20"));
}

#[tokio::test]
async fn vs_68_a_provider_id_of_another_cloud_is_not_ours() {
    let world = World::new();
    for id in ["aws:///us-east-1a/i-1", "openstack:///422e4956-ad22-1139-6d72-59cc8f26bc90", "kind://node-1", "node-1"]
    {
        assert_eq!(world.find(&by_id(id)).await.unwrap(), InstanceState::NotMine, "{id}");
    }
    assert_eq!(world.vcenter().calls(), 0);
    assert_eq!(world.error(&by_id("vsphere://node-1")).await.kind(), ErrorKind::InvalidConfig, "VS-50");
    assert!(world.error(&by_id("vsphere://")).await.message().contains("nodeID is empty"), "VS-50");
}

#[tokio::test]
async fn vs_52_two_machines_with_one_uuid_are_an_error_that_names_both() {
    let world = World::new();
    let in_dc1 =
        || Machine { host: "DC1_C0_H0".to_owned(), uuid: UUID.to_owned(), ..Machine::named("clone", "10.10.1.99") };
    world.vcenter().add_machine(in_dc1()).unwrap();
    let text = world.error(&by_id(&format!("vsphere://{UUID}"))).await.to_string();
    assert!(text.contains("Multiple VMs found") && text.contains("node-1") && text.contains("clone"), "{text}");
}

#[tokio::test]
async fn a_template_with_the_uuid_or_the_name_of_a_machine_never_matches() {
    let world = World::new();
    let template = Machine { template: true, uuid: UUID.to_owned(), ..Machine::named("node-1", "10.10.1.50") };
    world.vcenter().add_machine(template).unwrap();
    for node in [by_id(&format!("vsphere://{UUID}")), by_name("node-1"), by_uuid("node-1", SYSTEM_UUID)] {
        assert!(addresses(&*world.found(&node).await).contains("10.10.1.11"), "{node:?}");
    }
    world.vcenter().change_machine("node-2", |machine| machine.template = true);
    let node_2 = world.id_of("node-2");
    assert_eq!(world.find(&node_2).await.unwrap(), InstanceState::Gone);
}

// ---- state

#[tokio::test]
async fn vs_60_and_63_a_machine_that_is_off_or_suspended_exists_and_is_stopped() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    for power in ["poweredOff", "suspended"] {
        world.vcenter().change_machine("node-1", |machine| {
            machine.power = power.to_owned();
            machine.host_name = String::new();
        });
        assert!(matches!(world.find(&node_1).await.unwrap(), InstanceState::Stopped(_)), "{power}");
    }
}

#[tokio::test]
async fn vs_72_and_77_a_running_machine_without_addresses_is_an_error_and_exists() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    type Change = fn(&mut Machine);
    let cases: [(Change, &str); 3] = [
        (|machine| machine.nics = vec![Nic::with(&["127.0.0.1", "fe80::1"])], "after filtering out localhost IPs"),
        (|machine| machine.nics.clear(), "VM GuestNicInfo is empty"),
        (|machine| machine.host_name.clear(), "VM Guest hostname is empty"),
    ];
    for (change, reason) in cases {
        world.vcenter().change_machine("node-1", change);
        let error = world.error(&node_1).await;
        assert!(error.message().contains(reason), "{error}");
        assert_eq!((error.kind(), error.known_state()), (ErrorKind::Unavailable, Some(KnownState::Running)));
    }
}

#[tokio::test]
async fn vs_70_and_71_the_instance_type_has_cpus_memory_and_operating_system() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    for (cpus, memory_mb, os, expected) in [
        (2, 2048, "ubuntu64Guest", "vsphere-vm.cpu-2.mem-2gb.os-ubuntu"),
        (1, 32, "otherGuest", "vsphere-vm.cpu-1.mem-0gb.os-other"),
        (4, 6143, "debian11_64Guest", "vsphere-vm.cpu-4.mem-5gb.os-unknown"),
    ] {
        world.vcenter().change_machine("node-1", |machine| {
            (machine.cpus, machine.memory_mb, machine.os) = (cpus, memory_mb, os.to_owned());
        });
        assert_eq!(world.found(&node_1).await.instance_type, expected);
    }
}

#[tokio::test]
async fn vs_85_metadata_of_cloud_init_is_read_with_and_without_keyed_paths() {
    let world = World::new();
    world.vcenter().change_machine("node-1", |machine| {
        machine.nics = vec![Nic::with(&["10.10.1.11", "10.10.1.77"])];
        // network: {ethernets: {a: {addresses: [10.10.1.77/24]}}}
        let metadata = "bmV0d29yazoge2V0aGVybmV0czoge2E6IHthZGRyZXNzZXM6IFsxMC4xMC4xLjc3LzI0XX19fQo=";
        machine.extra_config.insert("guestinfo.metadata".to_owned(), metadata.to_owned());
        machine.extra_config.insert("guestinfo.metadata.encoding".to_owned(), "base64".to_owned());
    });
    let node_1 = world.id_of("node-1");
    for keyed in [true, false] {
        world.vcenter().configure(|options| options.keyed_paths = keyed);
        assert!(addresses(&*world.found(&node_1).await).contains("InternalIP=10.10.1.77"), "{keyed}");
    }
}

#[tokio::test]
async fn a_machine_in_a_vapp_is_found_by_uuid_and_by_name() {
    let world = World::with("datacenters = DC0\n");
    let pool = world.vcenter().find("ResourcePool", "workers").unwrap();
    let vapp = world.vcenter().add_vapp(&pool, "vapp");
    world.vcenter().change_machine("node-1", |machine| machine.vapp = Some(vapp.id.clone()));
    for node in [world.id_of("node-1"), by_name("node-1")] {
        assert!(addresses(&*world.found(&node).await).contains("10.10.1.11"));
    }
    // Through the listing, because the index does not know it.
    world.vcenter().change_machine("node-1", |machine| machine.indexed = false);
    let restarted = World { vcenters: world.vcenters.clone(), provider: world.restarted("datacenters = DC0\n") };
    assert!(addresses(&*restarted.found(&world.id_of("node-1")).await).contains("10.10.1.11"));
}

// ---- absence

#[tokio::test]
async fn vs_61_and_66_a_deleted_machine_is_gone_whether_it_was_known_or_not() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    let restarted = World { vcenters: world.vcenters.clone(), provider: world.restarted("") };
    world.found(&node_1).await;
    world.vcenter().delete_machine("node-1");
    for world in [world, restarted] {
        assert_eq!(world.find(&node_1).await.unwrap(), InstanceState::Gone);
    }
}

#[tokio::test]
async fn vs_65_a_machine_that_the_search_index_does_not_know_is_found_in_the_listing() {
    let world = World::new();
    world.vcenter().change_machine("node-1", |machine| machine.indexed = false);
    for node in [world.id_of("node-1"), by_name("node-1")] {
        assert!(addresses(&*world.found(&node).await).contains("10.10.1.11"));
    }
}

#[tokio::test]
async fn vs_65_a_known_machine_is_read_without_the_search_index() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    world.found(&node_1).await;
    world.vcenter().change_machine("node-1", |machine| machine.indexed = false);
    world.vcenter().forget_calls();
    world.found(&node_1).await;
    assert_eq!(world.vcenter().counts().keys().collect::<Vec<_>>(), ["POST RetrievePropertiesEx"]);
}

#[tokio::test]
async fn vs_64_a_machine_that_the_search_finds_and_that_cannot_be_read_is_not_gone() {
    let world = World::new();
    world.found(&world.id_of("node-2")).await;
    world.vcenter().add_machine(Machine::named("node-9", "10.10.1.19")).unwrap();
    world.vcenter().forget_calls();
    let fault = soap_fault("NoPermission");
    world.vcenter().inject(FaultSpec::always(fault).on(Method::POST, "RetrievePropertiesEx"));
    let error = world.error(&world.id_of("node-9")).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(world.vcenter().counts()["POST FindAllByUuid"], 1);
}

#[tokio::test]
async fn vs_58_a_known_machine_that_moved_to_a_datacenter_that_is_not_searched_still_exists() {
    let world = World::with("datacenters = DC0\n");
    let node_1 = world.id_of("node-1");
    world.found(&node_1).await;
    assert!(world.vcenter().change_machine("node-1", |machine| machine.host = "DC1_C0_H0".to_owned()));
    world.found(&node_1).await;
    let restarted = World { vcenters: world.vcenters.clone(), provider: world.restarted("datacenters = DC0\n") };
    let error = restarted.error(&node_1).await;
    assert!(error.message().contains("outside the configured datacenters"), "{error}");
    world.vcenter().delete_machine("node-1");
    assert_eq!(restarted.find(&node_1).await.unwrap(), InstanceState::Gone);
}

#[tokio::test]
async fn vs_67_a_deleted_machine_is_an_error_if_deletions_are_switched_off() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    let provider = world::with_variables(&world.vcenters, &[("SKIP_NODE_DELETION", "false")]);
    let world = World { vcenters: world.vcenters, provider };
    world.found(&node_1).await;
    world.vcenter().delete_machine("node-1");
    let error = world.error(&node_1).await;
    assert!(error.message().starts_with("No VM found"), "{error}");
}

#[tokio::test]
async fn a_machine_that_moved_or_was_registered_again_is_found() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    world.found(&node_1).await;
    let machine = world.vcenter().machine("node-1").unwrap();
    world.vcenter().delete_machine("node-1");
    world.vcenter().add_machine(Machine { host: "DC1_C1_H1".to_owned(), ..machine }).unwrap();
    assert!(addresses(&*world.found(&node_1).await).contains("10.10.1.11"));
}

#[tokio::test]
async fn vs_59_a_machine_that_got_another_uuid_is_not_the_machine_of_the_old_one() {
    let world = World::new();
    let node_1 = world.id_of("node-1");
    world.found(&node_1).await;
    world
        .vcenter()
        .change_machine("node-1", |machine| machine.uuid = "00000000-0000-0000-0000-0000000000ff".to_owned());
    assert_eq!(world.find(&node_1).await.unwrap(), InstanceState::Gone);
}

#[tokio::test]
async fn vs_61_nothing_is_gone_while_vcenter_cannot_read_a_machine() {
    for connection in ["inaccessible", "invalid"] {
        let world = World::new();
        let (node_1, node_2) = (world.id_of("node-1"), world.id_of("node-2"));
        world.vcenter().change_machine("node-1", |machine| machine.connection = connection.to_owned());
        for node in [&node_1, &by_id("vsphere://00000000-0000-0000-0000-0000000000ff")] {
            let error = world.error(node).await;
            assert!(error.message().contains("cannot read the UUID of the VM node-1"), "{connection}: {error}");
        }
        world.found(&node_2).await;
    }
}

#[tokio::test]
async fn a_known_machine_that_is_orphaned_or_inaccessible_is_an_error() {
    for connection in ["orphaned", "inaccessible", "invalid"] {
        let world = World::new();
        let node_1 = world.id_of("node-1");
        world.found(&node_1).await;
        world.vcenter().change_machine("node-1", |machine| machine.connection = connection.to_owned());
        let error = world.error(&node_1).await;
        assert!(error.message().contains(connection), "{error}");
        assert_eq!(error.known_state(), None);
    }
}

#[tokio::test]
async fn vs_64_a_machine_that_the_account_must_not_read_is_not_gone() {
    for config in ["", "datacenters = DC0\n"] {
        let world = World::with(config);
        let node_1 = world.id_of("node-1");
        world.found(&node_1).await;
        let vm = world.vcenter().find("VirtualMachine", "node-1").unwrap();
        world.vcenter().hide(&vm, true);
        let error = world.error(&node_1).await;
        assert!(error.message().contains("cannot be read: NoPermission"), "{error}");
        let restarted = World { vcenters: world.vcenters.clone(), provider: world.restarted(config) };
        assert!(restarted.find(&node_1).await.is_err());
    }
}

#[tokio::test]
async fn vs_64_a_machine_that_the_search_index_has_and_that_cannot_be_read_is_an_error() {
    let world = World::new();
    world.found(&world.id_of("node-1")).await;
    world.vcenter().add_machine(Machine::named("node-3", "10.10.1.13")).unwrap();
    let vm = world.vcenter().find("VirtualMachine", "node-3").unwrap();
    world.vcenter().hide(&vm, true);
    let error = world.error(&world.id_of("node-3")).await;
    assert!(error.message().contains("of VirtualMachine:") && error.message().contains("NoPermission"), "{error}");
}

#[tokio::test]
async fn vs_58_a_known_machine_exists_after_it_moved_to_a_place_that_no_listing_shows() {
    let world = World::with("datacenters = DC0\n");
    let node_1 = world.id_of("node-1");
    world.found(&node_1).await;
    world.vcenter().change_machine("node-1", |machine| machine.host = "DC1_C0_H0".to_owned());
    // This lookup reads a listing, which does not show the machine any more.
    let missing = by_id("vsphere://00000000-0000-0000-0000-0000000000ff");
    assert_eq!(world.find(&missing).await.unwrap(), InstanceState::Gone);
    world.found(&node_1).await;

    let folder = world.vcenter().find("Folder", "nodes").unwrap();
    world.vcenter().set_access(&folder, Access::NoView);
    world.vcenter().change_machine("node-1", |machine| {
        machine.host = "DC0_C0_H0".to_owned();
        machine.folder = Some(folder.id.clone());
    });
    assert_eq!(world.find(&missing).await.unwrap(), InstanceState::Gone);
    let error = world.error(&node_1).await;
    assert!(error.message().contains("NoPermission"), "{error}");

    world.vcenter().delete_machine("node-1");
    assert_eq!(world.find(&node_1).await.unwrap(), InstanceState::Gone);
}

#[tokio::test]
async fn a_machine_by_its_name_does_not_win_while_that_with_the_uuid_cannot_be_read() {
    let world = World::new();
    world.found(&world.id_of("node-1")).await;
    let uuid = "00000000-0000-0000-0000-0000000000ff";
    let vm = Machine { uuid: uuid.to_owned(), ..Machine::named("vm-9", "10.10.1.19") };
    let vm = world.vcenter().add_machine(vm).unwrap();
    world.vcenter().hide(&vm, true);
    world.vcenter().add_machine(Machine::named("node-9", "10.10.1.18")).unwrap();
    let error = world.error(&by_uuid("node-9", uuid)).await;
    assert!(error.message().contains("cannot be read: NoPermission"), "{error}");
}

#[tokio::test]
async fn vs_61_a_vcenter_that_shows_no_machines_proves_nothing() {
    let world = World::new();
    let (node_1, node_2) = (world.id_of("node-1"), world.id_of("node-2"));
    world.found(&node_1).await;
    ["node-1", "node-2"].iter().for_each(|name| _ = world.vcenter().delete_machine(name));
    for node in [node_1, node_2] {
        let error = world.error(&node).await;
        assert!(error.message().contains("shows no VMs at all"), "{error}");
    }
}

#[tokio::test]
async fn many_machines_can_be_deleted_at_once() {
    let world = World::new();
    for number in 3..53 {
        world.vcenter().add_machine(Machine::named(&format!("node-{number}"), "10.10.1.13")).unwrap();
    }
    let nodes: Vec<_> = (1..53).map(|number| world.id_of(&format!("node-{number}"))).collect();
    bowline_cloud::Instances::find(&world.provider, &nodes).await;
    (3..53).for_each(|number| _ = world.vcenter().delete_machine(&format!("node-{number}")));
    for (number, state) in bowline_cloud::Instances::find(&world.provider, &nodes).await.into_iter().enumerate() {
        assert_eq!(state.unwrap() == InstanceState::Gone, number >= 2, "{number}");
    }
}

#[tokio::test]
async fn vs_69_a_name_is_gone_only_if_every_machine_reports_one() {
    let world = World::new();
    assert_eq!(world.find(&by_name("missing")).await.unwrap(), InstanceState::Gone);
    world.vcenter().change_machine("node-2", |machine| machine.host_name.clear());
    let error = world.error(&by_name("missing")).await;
    assert!(error.message().contains("VMware Tools report no host name for 1 VM,"), "{error}");
    let other = by_uuid("missing", "4c4c4544-0000-0000-0000-000000000000");
    assert_eq!(world.find(&other).await.unwrap(), InstanceState::Gone, "no machine has its UUID");
}

#[tokio::test]
async fn vs_53_two_machines_with_one_host_name_are_an_error() {
    let world = World::new();
    let uuid = "00000000-0000-0000-0000-0000000000ff".to_owned();
    let second = Machine { uuid: uuid.clone(), ..Machine::named("node-2", "10.10.1.22") };
    world.vcenter().add_machine(second).unwrap();
    let error = world.error(&by_name("node-2")).await;
    assert!(error.message().contains("Multiple VMs found for node-2"), "{error}");
    for (id, address) in [(world.id_of("node-2"), "10.10.1.12"), (by_id(&format!("vsphere://{uuid}")), "10.10.1.22")] {
        assert!(addresses(&*world.found(&id).await).contains(address), "{id:?}");
    }
}

#[tokio::test]
async fn vs_52_two_machines_with_one_uuid_are_an_error_also_if_only_the_search_index_was_asked() {
    let world = World::new();
    world.found(&world.id_of("node-1")).await;
    for (name, address) in [("node-8", "10.10.1.18"), ("node-9", "10.10.1.19")] {
        let uuid = "00000000-0000-0000-0000-0000000000ff".to_owned();
        world.vcenter().add_machine(Machine { uuid, ..Machine::named(name, address) }).unwrap();
    }
    world.vcenter().forget_calls();
    for _ in 0..2 {
        let error = world.error(&by_id("vsphere://00000000-0000-0000-0000-0000000000ff")).await;
        assert!(error.message().contains("Multiple VMs found"), "{error}");
    }
    let address = by_name("10.10.1.30");
    for name in ["a", "b"] {
        world.vcenter().add_machine(Machine::named(name, "10.10.1.30")).unwrap();
    }
    let error = world.error(&address).await;
    assert!(error.message().contains("Multiple VMs found for 10.10.1.30"), "{error}");
}

// ---- datacenters

#[tokio::test]
async fn vs_56_only_configured_datacenters_are_searched() {
    for (datacenters, is_found) in [("DC0", true), ("/F0/DC1", false), ("F0/*, DC0", true), ("DC?", false)] {
        let world = World::with(&format!("datacenters = \"{datacenters}\"\n"));
        let in_dc1 = Machine { host: "DC1_C0_H0".to_owned(), ..Machine::named("node-9", "10.10.1.19") };
        world.vcenter().add_machine(in_dc1).unwrap();
        for node in [world.id_of("node-1"), by_name("node-1")] {
            let found = world.find(&node).await;
            assert_eq!(found.is_ok_and(|state| state.instance().is_some()), is_found, "{datacenters}: {node:?}");
        }
    }
}

#[tokio::test]
async fn vs_57_nothing_is_gone_while_a_configured_datacenter_does_not_exist() {
    let world = World::with("datacenters = DC0, missing\n");
    world.found(&world.id_of("node-1")).await;
    let error = world.error(&by_id("vsphere://00000000-0000-0000-0000-0000000000ff")).await;
    assert!(error.message().contains("datacenter 'missing' not found"), "{error}");
}

#[tokio::test]
async fn a_machine_in_a_folder_that_the_account_cannot_read_is_not_gone() {
    let world = World::with("datacenters = DC0\n");
    let folder = world.vcenter().find("Folder", "nodes").unwrap();
    world.vcenter().change_machine("node-1", |machine| {
        machine.folder = Some(folder.id.clone());
        machine.indexed = false;
    });
    world.vcenter().hide(&folder, true);
    let error = world.error(&world.id_of("node-1")).await;
    assert!(error.message().contains("vCenter cannot read the UUID of the VM (VirtualMachine:"), "{error}");
}

#[tokio::test]
async fn vs_61_a_datacenter_or_vcenter_that_shows_no_machines_proves_nothing_although_others_show_some() {
    let in_dc1 = |name: &str| Machine { host: "DC1_C0_H0".to_owned(), ..Machine::named(name, "10.10.1.30") };
    let world = World::with("datacenters = \"DC0, F0/DC1\"\n");
    world.vcenter().add_machine(in_dc1("node-9")).unwrap();
    let dc1 = world.vcenter().find("Datacenter", "DC1").unwrap();
    let folder = world.vcenter().find_below(&dc1, "Folder", "vm").unwrap();
    world.vcenter().set_access(&folder, Access::NoView);
    let error = world.error(&world.id_of("node-9")).await;
    assert!(error.message().contains("shows no VMs in datacenter /F0/DC1"), "{error}");
    assert!(error.message().contains("remove it from datacenters"), "{error}");

    let world = World::of(2, "");
    let node_1 = world.id_of("node-1");
    for datacenter in ["DC0", "DC1"] {
        let datacenter = world.vcenter().find("Datacenter", datacenter).unwrap();
        world.vcenter().set_access(&datacenter, Access::NoView);
    }
    let error = world.error(&node_1).await;
    assert!(error.message().contains("shows no VMs at all"), "{error}");
    assert_eq!(error.context_value("vcenter"), Some("vc-1"), "{error}");
}
