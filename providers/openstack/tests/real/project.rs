//! A project for each running case, so that cases do not see each other's resources.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};

use super::cloud::Service::{Compute, Identity, LoadBalancer, Network};
use super::cloud::{Cloud, list, text, until};

/// Roles that the user of a cluster needs.
const ROLES: [&str; 3] = ["member", "load-balancer_member", "creator"];

/// Number of projects of this run.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Pool of empty projects. Creating one takes longer than most cases.
pub(crate) struct Projects {
    admin: Arc<Cloud>,
    clear: Mutex<Vec<Arc<Project>>>,
}

impl Projects {
    pub(crate) fn new(admin: Arc<Cloud>) -> Projects {
        Projects { admin, clear: Mutex::default() }
    }

    /// Returns an empty project.
    pub(crate) async fn take(&self) -> Arc<Project> {
        let clear = self.clear.lock().unwrap().pop();
        match clear {
            Some(project) => project,
            None => Arc::new(Project::new(&self.admin).await),
        }
    }

    /// Returns an empty project to the pool.
    pub(crate) fn keep(&self, project: Arc<Project>) {
        self.clear.lock().unwrap().push(project);
    }

    /// Deletes all projects.
    pub(crate) async fn remove(&self) {
        let clear = std::mem::take(&mut *self.clear.lock().unwrap());
        for project in clear {
            project.remove().await;
        }
    }
}

/// An empty project with a dual-stack network behind a router.
pub(crate) struct Project {
    admin: Arc<Cloud>,
    /// The services, as the user of the cluster in this project.
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) id: String,
    pub(crate) network: String,
    pub(crate) subnets: [String; 2],
    pub(crate) router: String,
}

impl Project {
    pub(crate) async fn new(admin: &Arc<Cloud>) -> Project {
        let name = format!("conformance-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let created =
            admin.post(Identity, "/v3/projects", json!({"project": {"name": name, "domain_id": "default"}})).await;
        let id = text(&created["project"]["id"]);
        let roles = admin.get(Identity, "/v3/roles").await;
        for role in
            list(&roles["roles"]).iter().filter(|role| ROLES.contains(&role["name"].as_str().unwrap_or_default()))
        {
            let path = format!("/v3/projects/{id}/users/{}/roles/{}", admin.id("user"), text(&role["id"]));
            admin.call(Method::PUT, Identity, &path, None).await;
        }
        unlimited(admin, &id).await;
        let cloud = admin.within(&name).await;
        let created = cloud.post(Network, "/networks", json!({"network": {"name": "nodes"}})).await;
        let network = text(&created["network"]["id"]);
        let subnets = [
            subnet(&cloud, &network, 4, "10.0.0.0/16", "10.0.255.254").await,
            subnet(&cloud, &network, 6, "fd00::/64", "fd00::ffff:ffff").await,
        ];
        let router = router(&cloud, &subnets).await;
        Project { admin: admin.clone(), cloud, id, network, subnets, router }
    }

    /// `[Global]` of a `cloud.conf` for this project.
    pub(crate) fn credentials(&self) -> String {
        format!(
            "[Global]\nauth-url = {}\nregion = RegionOne\nusername = k8s\npassword = \"{}\"\nuser-domain-name = Default\n\
             tenant-id = {}\n",
            self.cloud.auth_url(),
            self.cloud.password(),
            self.id
        )
    }

    /// Deletes everything that a case left in it.
    pub(crate) async fn clear(&self) {
        let cloud = &self.cloud;
        cloud.put(Network, &format!("/routers/{}", self.router), json!({"router": {"routes": []}})).await;
        for each in cloud.list(Network, "/floatingips").await {
            cloud.delete(Network, &format!("/floatingips/{}", text(&each["id"]))).await;
        }
        for each in cloud.list(LoadBalancer, "/loadbalancers").await {
            self.remove_balancer(&text(&each["id"])).await;
        }
        for each in cloud.list(Compute, "/servers").await {
            cloud.delete(Compute, &format!("/servers/{}", text(&each["id"]))).await;
        }
        until("the deletion of servers", || async { cloud.list(Compute, "/servers").await.is_empty().then_some(()) })
            .await;
        for each in cloud.list(Network, "/ports").await {
            if !text(&each["device_owner"]).starts_with("network:") {
                cloud.delete(Network, &format!("/ports/{}", text(&each["id"]))).await;
            }
        }
        for each in cloud.list(Network, "/security-groups").await {
            // The default group is deleted with the project.
            if each["name"] != "default" {
                cloud.delete(Network, &format!("/security-groups/{}", text(&each["id"]))).await;
            }
        }
    }

    /// Deletes the project, which must be empty.
    pub(crate) async fn remove(&self) {
        let (cloud, router) = (&self.cloud, format!("/routers/{}", self.router));
        for subnet in &self.subnets {
            let body = json!({"subnet_id": subnet});
            cloud.try_call(Method::PUT, Network, &format!("{router}/remove_router_interface"), Some(&body)).await;
        }
        cloud.delete(Network, &router).await;
        cloud.delete(Network, &format!("/networks/{}", self.network)).await;
        self.admin.delete(Identity, &format!("/v3/projects/{}", self.id)).await;
    }

    /// Deletes a load balancer with all its parts, as soon as it is ACTIVE or in ERROR.
    pub(crate) async fn remove_balancer(&self, id: &str) {
        let path = format!("/loadbalancers/{id}");
        until("the deletion of a load balancer", || async {
            let answer = self.cloud.try_call(Method::GET, LoadBalancer, &path, None).await;
            let status = text(&answer.body["loadbalancer"]["provisioning_status"]);
            if answer.status == 200 && !status.starts_with("PENDING") {
                self.cloud.delete(LoadBalancer, &format!("{path}?cascade=true")).await;
            }
            (answer.status == 404).then_some(())
        })
        .await;
    }

    /// Waits until no load balancer is PENDING.
    pub(crate) async fn settle(&self) {
        until("pending load balancers", || async {
            let all = self.cloud.list(LoadBalancer, "/loadbalancers").await;
            let pending = |one: &Value| text(&one["provisioning_status"]).starts_with("PENDING");
            (!all.iter().any(pending)).then_some(())
        })
        .await;
    }
}

/// Removes the quotas of a new project.
async fn unlimited(admin: &Cloud, project: &str) {
    let balancing =
        json!({"quota": {"loadbalancer": -1, "listener": -1, "pool": -1, "member": -1, "healthmonitor": -1}});
    admin.put(LoadBalancer, &format!("/quotas/{project}"), balancing).await;
}

async fn subnet(cloud: &Cloud, network: &str, version: u8, cidr: &str, gateway: &str) -> String {
    // Without DHCP: the suite chooses addresses, and the gateway must not conflict with them.
    let subnet = json!({"subnet": {"network_id": network, "name": format!("nodes-v{version}"), "ip_version": version,
        "cidr": cidr, "gateway_ip": gateway, "enable_dhcp": false}});
    text(&cloud.post(Network, "/subnets", subnet).await["subnet"]["id"])
}

async fn router(cloud: &Cloud, subnets: &[String]) -> String {
    let outside = json!({"network_id": cloud.id("external_network")});
    let created =
        cloud.post(Network, "/routers", json!({"router": {"name": "r", "external_gateway_info": outside}})).await;
    let id = text(&created["router"]["id"]);
    for subnet in subnets {
        cloud.put(Network, &format!("/routers/{id}/add_router_interface"), json!({"subnet_id": subnet})).await;
    }
    id
}
