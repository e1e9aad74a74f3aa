//! create token, auth can-i, auth whoami.

use crate::kubectl::client::{Kubectl, with_every_kubectl};

/// A kubeconfig with only a token; a client certificate would take precedence.
fn kubeconfig_with_token(kubectl: &Kubectl, token: &str) -> String {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: pilot\n\
         clusters: [{{name: bowline, cluster: {{server: '{}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: pilot, user: {{token: '{token}'}}}}]\n\
         contexts: [{{name: pilot, context: {{cluster: bowline, user: pilot}}}}]\n",
        kubectl.server.url()
    );
    kubectl.manifest("token.kubeconfig", &text)
}

#[test]
fn the_administrator_has_full_access() {
    with_every_kubectl("admin", &["--authorization-mode=RBAC"], |kubectl| {
        kubectl.run("auth can-i delete nodes").prints("yes");
        kubectl.run("auth can-i * *").prints("yes");
        kubectl.run("auth can-i --list").says(&["*.*", "[*]"]);
        if kubectl.since(28) {
            kubectl.run("auth whoami").says(&["Username", "system:masters"]);
        }
    });
}

#[test]
fn a_token_has_the_permissions_of_its_roles() {
    with_every_kubectl("token", &["--authorization-mode=RBAC"], |kubectl| {
        if !kubectl.since(24) {
            return; // `create token` does not exist yet.
        }
        kubectl.run("create serviceaccount pilot");
        let token = kubectl.run("create token pilot --duration=1h").stdout;
        assert_eq!(token.trim().split('.').count(), 3, "a signed token: {token}");
        let pilot = format!("--kubeconfig={}", kubeconfig_with_token(kubectl, token.trim()));
        kubectl.refused(&format!("auth can-i list services {pilot}")).prints("no");
        kubectl
            .refused(&format!("get services {pilot}"))
            .says(&["Forbidden", r#"User "system:serviceaccount:default:pilot" cannot list resource "services""#]);
        kubectl.run("create clusterrole reader --verb=get,list --resource=services").says(&["created"]);
        kubectl
            .run("create clusterrolebinding pilot --clusterrole=reader --serviceaccount=default:pilot")
            .says(&["created"]);
        kubectl.run(&format!("auth can-i list services {pilot}")).prints("yes");
        kubectl.run(&format!("get services {pilot}")).says(&["kubernetes"]);
        kubectl.refused(&format!("delete service kubernetes {pilot}")).says(&["Forbidden"]);
        kubectl.refused(&format!("auth can-i delete services {pilot}")).prints("no");
        kubectl.run("auth can-i list services --as=system:serviceaccount:default:pilot").prints("yes");
        kubectl.refused("auth can-i list nodes --as=system:serviceaccount:default:pilot").says(&["no"]);
    });
}

#[test]
fn an_invalid_token_is_rejected() {
    with_every_kubectl("wrong-token", &[], |kubectl| {
        let stranger = format!("--kubeconfig={}", kubeconfig_with_token(kubectl, "not-a-token"));
        kubectl.refused(&format!("get nodes {stranger}")).says(&["You must be logged in to the server"]);
    });
}
