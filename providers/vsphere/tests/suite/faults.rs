//! Failures of a vCenter: an error, and nothing is gone.

use std::time::Duration;

use bowline_cloud::ErrorKind;
use bowline_vsphere_simulator::vcenter::soap_fault;
use bowline_vsphere_simulator::{Fault, FaultSpec};
use http::Method;

use crate::world::{World, by_id, by_name};

const METHODS: [&str; 6] = [
    "RetrieveServiceContent",
    "Login",
    "FindAllByUuid",
    "FindAllByDnsName",
    "CreateContainerView",
    "RetrievePropertiesEx",
];

#[tokio::test]
async fn vs_62_and_64_a_failure_of_any_call_never_makes_a_machine_gone() {
    let faults = || {
        let answer = |status, body: &str| Fault::Answer(status, body.to_owned());
        [
            soap_fault("NoPermission"),
            soap_fault("RequestCanceled"),
            soap_fault("NotAuthenticated"),
            soap_fault("RuntimeFault"),
            answer(503, "busy"),
            answer(404, "<html></html>"),
            answer(200, "<html>login</html>"),
            answer(200, ""),
            Fault::Lost,
            Fault::Garbled,
        ]
    };
    for method in METHODS {
        for fault in faults() {
            for is_known in [false, true] {
                let world = World::new();
                let node_1 = world.id_of("node-1");
                if is_known {
                    world.found(&node_1).await;
                }
                world.vcenter().inject(FaultSpec::always(fault.clone()).on(Method::POST, method));
                for node in [&node_1, &by_name("node-1")] {
                    // Another way may find the machine.
                    if let Ok(state) = world.find(node).await {
                        assert!(state.instance().is_some(), "{method} {fault:?}: {state:?}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_missing_machine_is_an_error_while_the_listing_fails() {
    for method in ["CreateContainerView", "RetrievePropertiesEx"] {
        let world = World::new();
        world.vcenter().inject(FaultSpec::always(soap_fault("NoPermission")).on(Method::POST, method));
        let error = world.error(&by_id("vsphere://00000000-0000-0000-0000-0000000000ff")).await;
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
}

#[tokio::test]
async fn a_machine_that_is_deleted_while_others_are_read_does_not_affect_them() {
    let world = World::new();
    let (one, two) = (world.id_of("node-1"), world.id_of("node-2"));
    world.found(&one).await;
    world.found(&two).await;
    world.vcenter().delete_machine("node-1");
    let results = bowline_cloud::Instances::find(&world.provider, &[one, two]).await;
    assert_eq!(*results[0].as_ref().unwrap(), bowline_core::InstanceState::Gone);
    assert!(results[1].as_ref().unwrap().instance().is_some());
}

/// A successful response with this content.
fn response(method: &str, content: &str) -> Fault {
    let body = format!("<Envelope><Body><{method}Response>{content}</{method}Response></Body></Envelope>");
    Fault::Answer(200, body)
}

#[tokio::test]
async fn vs_64_one_machine_that_makes_a_request_fail_does_not_affect_the_others() {
    let world = World::new();
    let refs = [world.id_of("node-1"), world.id_of("node-2")];
    world.found(&refs[0]).await;
    let [one, two] = ["node-1", "node-2"].map(|name| world.vcenter().find("VirtualMachine", name).unwrap().id);
    let no_permission = format!(
        "<Envelope><Body><Fault><faultstring>denied</faultstring><detail><NoPermissionFault><object type=\"VirtualMachine\">{one}\
         </object></NoPermissionFault></detail></Fault></Body></Envelope>"
    );
    let property = |name: &str, value: &str| format!("<propSet><name>{name}</name><val>{value}</val></propSet>");
    let only_two = format!(
        "<returnval><objects><obj type=\"VirtualMachine\">{two}</obj>{}{}</objects></returnval>",
        property("summary.config.uuid", refs[1].provider_id.as_ref().unwrap().rest().unwrap()),
        property("summary.runtime.powerState", "poweredOff")
    );
    let cases = [
        (Fault::Answer(500, no_permission), "denied (NoPermission"),
        (response("RetrievePropertiesEx", &only_two), "the response omits VirtualMachine:"),
    ];
    for (fault, reason) in cases {
        world.vcenter().inject(FaultSpec::always(fault).on(Method::POST, "RetrievePropertiesEx").times(1));
        let results = bowline_cloud::Instances::find(&world.provider, &refs).await;
        let error = results[0].as_ref().unwrap_err();
        assert!(error.message().contains(reason), "{error}");
        assert!(results[1].as_ref().unwrap().instance().is_some());
    }
}

#[tokio::test]
async fn vs_64_a_page_that_is_missing_or_cannot_be_parsed_proves_nothing() {
    let world = World::new();
    world.found(&world.id_of("node-1")).await;
    world.vcenter().configure(|options| options.max_page = 1);
    let missing = by_id("vsphere://00000000-0000-0000-0000-0000000000ff");
    for (content, reason) in [
        ("", "a page is missing"),
        ("<returnval><objects><propSet/></objects></returnval>", "an object on a page has no reference"),
    ] {
        let fault = FaultSpec::always(response("ContinueRetrievePropertiesEx", content));
        world.vcenter().inject(fault.on(Method::POST, "ContinueRetrievePropertiesEx"));
        let error = world.error(&missing).await;
        assert!(error.message().contains(reason), "{error}");
        world.vcenter().repair_all();
    }
    assert_eq!(world.find(&missing).await.unwrap(), bowline_core::InstanceState::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_listing_may_take_long_while_its_pages_arrive() {
    let world = World::new();
    world.vcenter().configure(|options| options.max_page = 2);
    for method in ["RetrievePropertiesEx", "ContinueRetrievePropertiesEx"] {
        world.vcenter().inject(FaultSpec::always(Fault::Slow(Duration::from_secs(15))).on(Method::POST, method));
    }
    let begun = tokio::time::Instant::now();
    world.found(&world.id_of("node-1")).await;
    assert!(begun.elapsed() > Duration::from_secs(150), "{:?}", begun.elapsed());
}
