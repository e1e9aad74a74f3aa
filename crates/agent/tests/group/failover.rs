//! Writes are copied, and a standby takes over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bowline_agent_client::AgentRole;
use serde_json::{Value, json};

use crate::group::{Group, eventually};

/// Addresses and load balancers in a state file.
fn stored(group: &Group, index: usize) -> Value {
    let text = std::fs::read_to_string(group.state_file(&group.nodes[index].name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_through_the_active_agent_are_in_the_files_of_all() {
    let group = Group::start(3, "").await;
    group.settled().await;
    let ip = group.create("front", 8080, &[]).await.unwrap();
    let create = json!({"cluster": "c", "destination": "10.1.0.0/24", "node": "n-1", "providerId": "cloudlycke://1"});
    let route = group.post_active("/v1/routes/create", &create).await.unwrap();
    let again = group.post_active("/v1/routes/create", &create).await.unwrap();
    assert_eq!(route, again);
    group.settled().await;
    let mut files: Vec<_> = (0..3).map(|index| stored(&group, index)).collect();
    // The claim changes with each election, and reaches the files with the next write.
    files.iter_mut().for_each(|file| drop(file.as_object_mut().unwrap().remove("accepted")));
    assert_eq!(files[0], files[1]);
    assert_eq!(files[0], files[2]);
    assert_eq!((&files[0]["addresses"][0]["ip"], &files[0]["version"]["seq"]), (&json!(ip), &json!(3)));
    assert_eq!(files[0]["routes"]["c"][0], route);
    let all_reach_all = async || {
        let mut count = 0;
        for index in 0..3 {
            let status = group.status(index).await.unwrap();
            assert_eq!((status.pools[0].used, status.pools[0].size), (1, 254), "{status:?}");
            count += status.peers.iter().filter(|peer| peer.reachable).count();
        }
        count == 6
    };
    eventually(all_reach_all, || "an agent does not reach another one".to_owned()).await;
    let mut takeovers = 0.0;
    for index in 0..3 {
        takeovers += group.metric(index, "bowline_agent_takeovers_total").await;
    }
    for index in 0..3 {
        let problems = group.status(index).await.unwrap().problems;
        // A second takeover means that an agent had no CPU time for more than a second, which it reports.
        assert!(problems.is_empty() || takeovers > 1.0, "{problems:?}");
    }
    let other = json!({"cluster": "c", "destination": "10.1.0.0/24", "node": "n-2", "providerId": "cloudlycke://2"});
    let taken = group.post_active("/v1/routes/create", &other).await.unwrap_err();
    assert!(taken.contains("destination_taken"), "{taken}");
    group.post_active("/v1/routes/delete", &json!({"cluster": "c", "id": "rt-0001"})).await.unwrap();
    let listed = group.post_active("/v1/routes/list", &json!({"cluster": "c"})).await.unwrap();
    assert_eq!(listed["routes"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_names_the_active_agent() {
    let group = Group::start(2, "").await;
    let find = json!({"asking": []});
    // An agent without CPU time is not alive for its peer, which then names none, or takes over.
    let names_it = async || {
        let (active, _) = group.settled().await;
        let (status, body) = group.post(1 - active, "/v1/balancers/find", &find).await.unwrap();
        let endpoint = format!("https://{}", group.links[&(1 - active, active)].address);
        let error = &body["error"];
        (status.as_u16(), &error["code"], &error["active"]) == (421, &json!("notActive"), &json!(endpoint))
    };
    eventually(names_it, || "the standby does not name the active agent".to_owned()).await;
}

/// The active agent is killed in a stream of writes, three times.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_when_the_active_agent_is_killed() {
    for count in [2, 3] {
        let mut group = Group::start(count, "").await;
        let mut acknowledged = BTreeMap::new();
        let mut number = 0;
        for round in 0..3 {
            let (active, _) = group.settled().await;
            let writes = Instant::now();
            while writes.elapsed() < Duration::from_millis(400) {
                number += 1;
                let service = format!("s-{number}");
                acknowledged.insert(service.clone(), group.create(&service, 8080, &[]).await.unwrap());
            }
            // The kill falls into a write of another task.
            let client = group.client("bowline");
            let address = group.nodes[active].address;
            let writer = tokio::spawn(async move {
                for number in 0..1000 {
                    let asking = crate::group::asking(&format!("unacknowledged-{round}-{number}"));
                    let change = json!({"call": "create-address", "desired": {"family": "IPv4"}});
                    let body = json!({"asking": asking, "change": change});
                    let path = "/v1/balancers/change";
                    if crate::group::send(&client, address, http::Method::POST, path, Some(&body)).await.is_err() {
                        return number;
                    }
                }
                0
            });
            tokio::time::sleep(Duration::from_millis(60)).await;
            group.kill(active);
            let killed = Instant::now();
            writer.await.unwrap();
            let (next, _) = group.settled().await;
            assert_ne!(next, active);
            eprintln!("another agent was active {} ms after the kill", killed.elapsed().as_millis());
            for (service, ip) in &acknowledged {
                let found = group.observe(service).await.unwrap();
                assert_eq!(&found["addresses"][0]["ip"], ip, "{service}");
                assert_eq!(found["balancer"]["name"], json!(service));
            }
            assert!(group.metric(next, "bowline_agent_takeovers_total").await >= 1.0);
            group.run(active).await.unwrap();
            if round == 2 {
                group.settled().await;
            }
            // Each agent counts from its own start.
            if count == 2 {
                group.settled().await;
                group.kill(next);
                group.run(next).await.unwrap();
            }
        }
        assert!(acknowledged.len() >= 3, "{}", acknowledged.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_stopped_hands_over_at_once() {
    let mut group = Group::start(2, "").await;
    let (active, _) = group.settled().await;
    let ip = group.create("front", 8080, &[]).await.unwrap();
    let start = Instant::now();
    group.stop(active).await;
    let (next, _) = group.settled().await;
    eprintln!("another agent was active {} ms after the shutdown began", start.elapsed().as_millis());
    assert_ne!(next, active);
    assert_eq!(group.observe("front").await.unwrap()["addresses"][0]["ip"], json!(ip));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_copies_the_state_and_is_never_active() {
    let mut group = Group::new(3, "followers: [lb-3]\n").await;
    for node in &mut group.nodes[..2] {
        let start = node.config.find("  lb-3:").unwrap();
        let end = start + node.config[start..].find('\n').unwrap() + 1;
        node.config.replace_range(start..end, "");
    }
    group.nodes[2].config = group.nodes[2].config.replace("followers: [lb-3]", "role: follower");
    for index in 0..3 {
        group.run(index).await.unwrap();
    }
    group.settled().await;
    let create = json!({"cluster": "c", "destination": "10.1.0.0/24", "node": "n-1"});
    group.post_active("/v1/routes/create", &create).await.unwrap();
    let (active, _) = group.settled().await;
    assert_ne!(active, 2);
    assert_eq!(group.status(2).await.unwrap().role, AgentRole::Follower);
    assert_eq!(stored(&group, 2)["routes"]["c"][0]["destination"], json!("10.1.0.0/24"));
    group.kill(active);
    let (next, _) = group.settled().await;
    assert_ne!(next, 2);
    group.post_active("/v1/routes/delete", &json!({"cluster": "c", "id": "rt-0001"})).await.unwrap();
    group.settled().await;
    assert_eq!(stored(&group, 2)["routes"], json!({}));
}
