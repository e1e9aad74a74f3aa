//! Provider IDs, through the provider and its layers (CL-13 to CL-22).

use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{Clouds, Freshness, Ownership};

use crate::host::{Host, by_id, by_name, erased, look_up};

// CL-13 to CL-19
#[tokio::test]
async fn every_kind_of_id_finds_the_machine() {
    let host = Host::with(&["master-c2-1", "node-c2-1", "web"]);
    let provider = host.provider("instances: {web: {id: my-web}}\n");
    let master = host.vm("master-c2-1");
    let ids = ["m-c2-1", &master.key, &master.key[..7], &master.uuid, "master-c2-1", &master.key.to_uppercase()];
    for id in ids {
        let answer = look_up(&provider, &by_id(&format!("cloudlycke://{id}"))).await;
        assert!(answer.starts_with("running master-c2-1 cloudlycke://"), "{id}: {answer}");
    }
    let answer = look_up(&provider, &by_id("cloudlycke://my-web")).await;
    assert!(answer.starts_with("running web cloudlycke://my-web"), "{answer}");
    assert!(look_up(&provider, &by_id("cloudlycke://n-c2-1")).await.starts_with("running node-c2-1"));
    for id in ["cloudlycke://m-c3-1", "cloudlycke://M-C2-1", "cloudlycke://0000", "cloudlycke://n-c2"] {
        assert_eq!(look_up(&provider, &by_id(id)).await, "gone", "{id}");
    }
    for id in ["other://m-c2-1", "m-c2-1", "Cloudlycke://m-c2-1"] {
        assert_eq!(look_up(&provider, &by_id(id)).await, "not mine", "{id}");
    }
}

// CL-20, CL-21
#[tokio::test]
async fn a_node_without_an_id_gets_the_id_of_the_convention_or_the_key() {
    let host = Host::with(&["master-c2-1", "web"]);
    let provider = host.provider("");
    assert!(look_up(&provider, &by_name("master-c2-1")).await.starts_with("running master-c2-1 cloudlycke://m-c2-1 "));
    let key = host.vm("web").key;
    assert!(look_up(&provider, &by_name("web")).await.starts_with(&format!("running web cloudlycke://{key} ")));
    let answer = look_up(&provider, &by_id("cloudlycke://cloudlycke://m-c2-1")).await;
    assert!(answer.starts_with("invalid_config") && answer.contains("--provider-id"), "{answer}");
}

// CL-17: the layers accept the machine for each spelling of its ID.
#[tokio::test]
async fn the_layers_accept_every_spelling_of_an_id() {
    let host = Host::with(&["master-c2-1", "node-c2-1"]);
    let provider = host.provider("");
    let clouds = Clouds::with_layers([erased(&provider)], &LayerOptions::default(), &prometheus::Registry::new());
    let master = host.vm("master-c2-1");
    let ids = ["m-c2-1", &master.key, &master.key[..9], &master.uuid, "master-c2-1", &master.uuid.to_uppercase()];
    let refs: Vec<_> = ids.iter().map(|id| by_id(&format!("cloudlycke://{id}"))).collect();
    for freshness in [Freshness::Now, Freshness::Within(std::time::Duration::from_secs(60))] {
        for (id, found) in ids.iter().zip(clouds.observe_all(&refs, freshness).await) {
            let Ok(Ownership::Owned { state, .. }) = found else { panic!("{id}: {found:?}") };
            assert_eq!(state.instance().unwrap().name, "master-c2-1", "{id}");
        }
    }
}

// CL-18
#[tokio::test]
async fn a_prefix_of_two_machines_is_ambiguous() {
    let host = Host::with(&["a", "b"]);
    let (a, b) = (host.vm("a"), host.vm("b"));
    let index = std::fs::read_to_string(host.index()).unwrap();
    std::fs::write(host.index(), index.replace(&b.key, &format!("{}{}", &a.key[..7], &"f".repeat(25)))).unwrap();
    let answer = look_up(&host.provider(""), &by_id(&format!("cloudlycke://{}", &a.key[..7]))).await;
    assert!(
        answer.starts_with("invalid_config") && answer.contains("machine a (") && answer.contains("machine b ("),
        "{answer}"
    );
}

// CL-22
#[tokio::test]
async fn two_machines_with_one_name_are_ambiguous_unless_the_project_is_set() {
    let host = Host::with(&["web", "db"]);
    let other = host.add_in("web", &host.path("other"), "virtualbox");
    let answer = look_up(&host.provider(""), &by_name("web")).await;
    assert!(answer.starts_with("invalid_config") && answer.contains(&other.key), "{answer}");
    let provider = host.provider(&format!("project: {}\n", host.path("project").display()));
    assert!(look_up(&provider, &by_name("web")).await.contains(&host.vm("web").ip));
    let answer = look_up(&provider, &by_id(&format!("cloudlycke://{}", other.key))).await;
    assert!(answer.starts_with("invalid_config") && answer.contains("belongs to the project"), "{answer}");
}
