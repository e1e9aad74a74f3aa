//! The chart in Helm itself: `BOWLINE_HELM`, or the `helm` on the path. `tests/helm/install` installs one.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::manifests::{chart, documents, post, server};
use crate::support::{Scratch, skip, workspace};

/// Helm, with its files in a scratch folder.
struct Helm {
    program: PathBuf,
    scratch: Scratch,
}

impl Helm {
    /// Finds Helm; without one, reports the test as skipped.
    fn find(test: &str) -> Option<Helm> {
        let program = PathBuf::from(std::env::var_os("BOWLINE_HELM").unwrap_or("helm".into()));
        let version = Command::new(&program).arg("version").output();
        if !version.is_ok_and(|output| output.status.success()) {
            skip("no helm");
            return None;
        }
        Some(Helm { program, scratch: Scratch::new(test) })
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let home = self.scratch.path("home");
        let mut command = Command::new(&self.program);
        command.args(arguments).env("HOME", &home).env_remove("KUBECONFIG").stdin(Stdio::null());
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, home.join(name));
        }
        command.output().unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Path of a file with these values.
    fn values(&self, values: &Value) -> String {
        self.scratch.file("values.yaml", values.to_string()).to_str().unwrap().to_owned()
    }

    fn template(&self, values: &Value) -> String {
        self.stdout(&[
            "template",
            "bowline",
            &chart_folder(),
            "--namespace=kube-system",
            "--values",
            &self.values(values),
        ])
    }
}

fn chart_folder() -> String {
    workspace().join("deploy/chart/bowline").to_str().unwrap().to_owned()
}

/// Parses the objects of a stream, sorted, because Helm orders them by kind.
fn parsed(text: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = documents(text)
        .iter()
        .map(|document| serde_saphyr::from_str::<Value>(document.trim_start_matches("---\n")).unwrap())
        .filter(|object| !object.is_null())
        .collect();
    objects.sort_by_key(|object| format!("{}/{}", object["kind"], object["metadata"]["name"]));
    objects
}

#[test]
fn helm_accepts_the_chart_without_a_warning() {
    let Some(helm) = Helm::find("helm-lint") else { return };
    let output = helm.stdout(&["lint", "--strict", &chart_folder()]);
    assert!(output.contains("0 chart(s) failed") && !output.contains("[WARNING]"), "{output}");
}

#[test]
fn helm_renders_the_same_objects_as_the_renderer_of_the_tests() {
    let Some(helm) = Helm::find("helm-template") else { return };
    for values in chart::accepted() {
        assert_eq!(parsed(&helm.template(&values)), parsed(&chart::everything(&values)), "{values}");
    }
}

#[test]
fn helm_rejects_typos_and_contradictions() {
    let Some(helm) = Helm::find("helm-schema") else { return };
    for (values, place) in chart::rejected() {
        let output = helm.run(&["template", "bowline", &chart_folder(), "--values", &helm.values(&values)]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains("schema"), "{values}: {message}");
        let name = place.split('.').next().unwrap();
        assert!(message.contains(name), "{values}: {message}");
    }
    let removed = ["template", "bowline", &chart_folder(), "--set", "environmentSecrets.digitalocean=null"];
    assert!(!helm.stdout(&removed).contains("DO_ACCESS_TOKEN"));
}

/// The objects of Helm pass the strict validation of the API server.
#[tokio::test]
async fn the_api_server_accepts_the_objects_of_helm() {
    let Some(helm) = Helm::find("helm-create") else { return };
    let server = server().await;
    let values = json!({"kind": "Deployment", "cloudConfig": "a: 1\n# b\n", "tolerations": [{"operator": "Exists"}]});
    let text = helm.template(&values);
    for object in parsed(&text) {
        post(&server, &object, object.to_string()).await;
    }
}

/// Installs, upgrades and removes a release.
#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_and_removes_the_chart() {
    let Some(helm) = Helm::find("helm-install") else { return };
    let server = server().await;
    let kubeconfig = helm.scratch.file("kubeconfig", server.kubeconfig());
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let folder = chart_folder();
    let set = ["--namespace=kube-system", &kubeconfig, "--set=cloudProvider=digitalocean", "--set=clusterName=harbour"];
    let notes = helm.stdout(&[&["install", "bowline", &folder], set.as_slice()].concat());
    assert!(notes.contains("STATUS: deployed") && notes.contains("create secret generic digitalocean"), "{notes}");
    let notes = helm.stdout(&[&["upgrade", "bowline", &folder, "--set=kind=Deployment"], set.as_slice()].concat());
    assert!(notes.contains("REVISION: 2") && notes.contains("deployment/bowline"), "{notes}");
    let removed = helm.stdout(&["uninstall", "bowline", "--namespace=kube-system", &kubeconfig]);
    assert!(removed.contains("uninstalled"), "{removed}");
}

/// Commands of the guides that install the chart, each on one line.
fn commands_of_the_guides() -> Vec<String> {
    let guides = std::fs::read_dir(workspace().join("docs/guides")).unwrap().map(|entry| entry.unwrap().path());
    let texts = guides.map(|guide| std::fs::read_to_string(guide).unwrap().replace("\\\n", " "));
    let commands = |text: String| {
        let lines = text.lines().filter(|line| line.contains("helm install bowline "));
        lines.map(|line| line.trim_start_matches("$ ").to_owned()).collect::<Vec<_>>()
    };
    texts.flat_map(commands).collect()
}

#[test]
fn the_commands_of_the_guides_render_the_chart() {
    let Some(helm) = Helm::find("helm-guides") else { return };
    let folder = helm.scratch.path("");
    helm.stdout(&["package", &chart_folder(), "--destination", folder.to_str().unwrap()]);
    std::os::unix::fs::symlink(workspace().join("deploy"), helm.scratch.path("deploy")).unwrap();
    for name in ["cloud.yaml", "cloud.conf", "vsphere.conf"] {
        helm.scratch.file(name, "a: 1\n");
    }
    let commands = commands_of_the_guides();
    assert!(commands.len() >= 5, "{commands:?}");
    for command in commands {
        let command = command.replace("helm install", "\"$HELM\" template");
        let mut shell = Command::new("sh");
        shell.args(["-euc", &command]).current_dir(&folder).env("HELM", &helm.program);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
