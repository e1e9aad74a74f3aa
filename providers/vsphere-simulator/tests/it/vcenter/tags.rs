//! Tags and categories in the REST API.

use bowline_vsphere_simulator::vcenter::{Options, Reference};
use serde_json::{Value, json};

use crate::vcenter::client::Client;

struct Rest(Client);

impl Rest {
    async fn new() -> Rest {
        Rest(Client::new(Options::default()).await)
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let session = self.0.cookie.split_once('=').unwrap().1.trim_matches('"');
        self.0.rest(method, path, session, body).await
    }

    fn object(&self, kind: &str, name: &str) -> Reference {
        self.0.vcenter.find(kind, name).unwrap()
    }
}

#[tokio::test]
async fn the_tags_of_a_category_are_listed() {
    let rest = Rest::new().await;
    let datacenter = rest.object("Datacenter", "DC0");
    let zones = [("zone", "z1"), ("zone", "z2")].map(|(category, tag)| rest.0.vcenter.tag(category, tag, &datacenter));
    let region = rest.0.vcenter.tag("region", "r1", &datacenter);
    let category = async |tag: &str| {
        let (_, tag) = rest.call("GET", &format!("tagging/tag/id:{tag}"), Value::Null).await;
        tag["value"]["category_id"].as_str().unwrap().to_owned()
    };
    let list = async |category: &str| {
        rest.call("POST", &format!("tagging/tag/id:{category}?~action=list-tags-for-category"), Value::Null).await
    };
    let (status, listed) = list(&category(&zones[0]).await).await;
    let mut listed: Vec<_> = listed["value"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    listed.sort_unstable();
    let mut expected = zones.each_ref().map(String::as_str);
    expected.sort_unstable();
    assert_eq!((status, listed.as_slice()), (200, &expected[..]));
    assert_eq!(list(&category(&region).await).await, (200, json!({"value": [region]})));
    assert_eq!(list("unknown").await.0, 404);
}

#[tokio::test]
async fn a_hidden_object_makes_the_call_for_several_objects_fail() {
    let rest = Rest::new().await;
    let objects = [rest.object("Datacenter", "DC0"), rest.0.vcenter.root()];
    let ids = objects.each_ref().map(|object| json!({"type": object.kind, "id": object.id}));
    let batch = async || {
        let path = "tagging/tag-association?~action=list-attached-tags-on-objects";
        rest.call("POST", path, json!({"object_ids": ids})).await.0
    };
    assert_eq!(batch().await, 200);
    rest.0.vcenter.hide(&objects[0], true);
    assert_eq!(batch().await, 403);
    for (id, status) in ids.iter().zip([403, 200]) {
        let path = "tagging/tag-association?~action=list-attached-tags";
        assert_eq!(rest.call("POST", path, json!({"object_id": id})).await.0, status);
    }
}
