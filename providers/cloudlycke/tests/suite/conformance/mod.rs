//! Runs the conformance suite against files and the stand-in.

pub(crate) mod inventory;
mod vagrant;

use bowline_conformance::run;

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_vagrant_conform() {
    let report = run(vagrant::bench).await;
    assert_eq!(report.violations(), [], "{report}");
    println!("{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_an_inventory_conform() {
    let report = run(inventory::bench).await;
    assert_eq!(report.violations(), [], "{report}");
    println!("{report}");
}
