//! A manager on an instance: region, network, cluster and credentials come from the metadata service.

use serde_json::Value;

use crate::account::{classic, network};
use crate::scene::{Scene, TYPE};

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_on_an_instance_needs_no_configuration_and_no_keys() {
    let Some(scene) = Scene::start("moto-identity").await else { return };
    let manager = scene.manager("moto-identity", "cloud-imds.conf", &[], &["--configure-cloud-routes=false"]);
    let one = scene.machine(&manager, "a").await;
    scene.create("web").await;
    scene.create_with("net", 80, &[(TYPE, "nlb")]).await;
    let names = (scene.hostname(&manager, "web").await, scene.hostname(&manager, "net").await);
    let (web, net) = (classic(&scene.moto).await.unwrap(), network(&scene.moto).await.unwrap());
    assert_eq!((web.hostname, net.hostname), names);
    assert_eq!(web.targets, std::slice::from_ref(&one.id));

    // The manager has read its own instance, which says what its cluster is.
    let own = scene.id("control-plane-1");
    let journal = scene.moto.journal().await;
    let of_own = |call: &&Value| call["params"]["InstanceId.1"] == own.as_str();
    assert!(journal.iter().any(|call| of_own(&call)), "{journal:#?}");
    for name in ["web", "net"] {
        scene.delete(&manager, name).await;
    }
    scene.end(manager).await;
}
