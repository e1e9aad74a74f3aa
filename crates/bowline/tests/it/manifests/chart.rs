//! The Helm chart, rendered by a minimal implementation of Helm's language: `if`, `else`, `end`, `range`, `not`, `or`, `eq`,
//! `index`, `quote`, `toJson`. It does not replace a test with Helm itself.

use serde_json::{Value, json};

use crate::manifests::{account, create, documents, manifests, may, post, server};
use crate::support::workspace;

/// Minimal Helm renderer.
struct Renderer {
    root: Value,
}

impl Renderer {
    /// Evaluates a path, a string, or a call of `not`, `or`, `eq`, `index`, `quote`, `toJson`, which may be in parentheses.
    fn value(&self, expression: &str, dot: &Value) -> Value {
        let expression = expression.trim();
        let inner = expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
        let expression = inner.unwrap_or(expression);
        let (head, rest) = expression.split_once(' ').unwrap_or((expression, ""));
        let arguments = || words(rest).into_iter().map(|word| self.value(&word, dot));
        match head {
            "not" => json!(!is_true(&arguments().next().unwrap())),
            "or" => arguments().find(is_true).unwrap_or(Value::Null),
            "eq" => json!(arguments().next() == arguments().nth(1)),
            "index" => arguments().nth(1).map_or(Value::Null, |key| arguments().next().unwrap()[plain(&key)].clone()),
            "quote" => json!(Value::from(plain(&arguments().next().unwrap())).to_string()),
            "toJson" => json!(arguments().next().unwrap().to_string()),
            "." => dot.clone(),
            "$key" => dot["key"].clone(),
            "$value" => dot["value"].clone(),
            text if text.starts_with('"') => serde_json::from_str(text).unwrap(),
            path => {
                let is_of_root = [".Values.", ".Release.", "$."].iter().any(|root| path.starts_with(root));
                let (from, pointer) = (if is_of_root { &self.root } else { dot }, path.trim_start_matches('$'));
                let found = from.pointer(&pointer.replace('.', "/"));
                found.unwrap_or_else(|| panic!("unknown path {path}")).clone()
            }
        }
    }

    fn render(&self, template: &str) -> String {
        let lines: Vec<&str> = template.lines().collect();
        let (rendered, rest) = self.block(&lines, &Value::Null, true);
        assert!(rest.is_empty(), "unexpected end: {rest:?}");
        rendered
    }

    /// Renders up to the `else` or `end` of this block; returns the text and the remaining lines.
    fn block<'a>(&self, mut lines: &'a [&'a str], dot: &Value, is_shown: bool) -> (String, &'a [&'a str]) {
        let mut rendered = String::new();
        while let Some((line, rest)) = lines.split_first() {
            let control = line.trim().strip_prefix("{{- ").and_then(|text| text.strip_suffix(" }}"));
            match control {
                Some(text) if text == "end" || text.starts_with("else") => return (rendered, lines),
                Some(text) if text.starts_with("if ") => {
                    let (chosen, after) = self.branches(lines, dot, is_shown);
                    rendered.push_str(&chosen);
                    lines = after;
                }
                Some(text) => {
                    let list = text.trim_start_matches("range ");
                    let items = items(&self.value(list.split_once(":= ").map_or(list, |(_, list)| list), dot));
                    let (_, after) = self.block(rest, &Value::Null, false);
                    for item in items.iter().filter(|_| is_shown) {
                        rendered.push_str(&self.block(rest, item, true).0);
                    }
                    lines = &after[1..];
                }
                None => {
                    if is_shown {
                        rendered.push_str(&self.line(line, dot));
                        rendered.push('\n');
                    }
                    lines = rest;
                }
            }
        }
        (rendered, lines)
    }

    /// Renders `if`, any number of `else if`, an optional `else`, `end`.
    fn branches<'a>(&self, mut lines: &'a [&'a str], dot: &Value, is_shown: bool) -> (String, &'a [&'a str]) {
        let (mut chosen, mut is_open) = (String::new(), is_shown);
        loop {
            let control = lines[0].trim().trim_start_matches("{{- ").trim_end_matches(" }}");
            if control == "end" {
                return (chosen, &lines[1..]);
            }
            let condition = control.split_once("if ").map(|(_, condition)| condition);
            let holds = is_open && condition.is_none_or(|condition| is_true(&self.value(condition, dot)));
            let (text, after) = self.block(&lines[1..], dot, holds);
            chosen.push_str(&text);
            (lines, is_open) = (after, is_open && !holds);
        }
    }

    fn line(&self, line: &str, dot: &Value) -> String {
        let mut pieces = line.split("{{");
        let mut rendered = pieces.next().unwrap().to_owned();
        for piece in pieces {
            let (expression, rest) = piece.split_once("}}").unwrap();
            rendered.push_str(&plain(&self.value(expression, dot)));
            rendered.push_str(rest);
        }
        rendered
    }
}

/// Splits arguments at blanks outside of parentheses.
fn words(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let is_blank = |letter: char| {
        depth = if letter == '(' { depth + 1 } else { depth.saturating_sub(usize::from(letter == ')')) };
        letter == ' ' && depth == 0
    };
    text.split(is_blank).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Items of a `range`, each as its dot.
fn items(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.clone(),
        Value::Object(map) => map.iter().map(|(key, value)| json!({"key": key, "value": value})).collect(),
        other => panic!("{other} is not a list"),
    }
}

fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false)) && value != "" && *value != json!([]) && *value != json!({})
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Renders the chart with these values merged into its own.
fn rendered(values: Value, namespace: &str) -> String {
    let chart = workspace().join("deploy/chart/bowline");
    let read = |name: &str| std::fs::read_to_string(chart.join(name)).unwrap();
    let mut all: Value = bowline_config::ConfigFile::from_text("values.yaml", read("values.yaml")).yaml().unwrap();
    merge(&mut all, values);
    let root = json!({"Values": all, "Release": {"Namespace": namespace}});
    let names = ["account", "roles", "secrets", "config", "disruption_budget", "workload"];
    let templates = names.map(|name| read(&format!("templates/{name}.yaml")));
    templates.map(|template| Renderer { root: root.clone() }.render(&template)).join("\n---\n")
}

fn merge(all: &mut Value, values: Value) {
    match (all, values) {
        (Value::Object(all), Value::Object(values)) => {
            values.into_iter().for_each(|(key, value)| merge(all.entry(key).or_insert(Value::Null), value));
        }
        (all, value) => *all = value,
    }
}

#[tokio::test]
async fn all_values_render_objects_that_pass_strict_validation() {
    let cases = [
        json!({}),
        json!({"kind": "Deployment", "apiServer": {"host": "10.0.0.1"}, "cloudConfig": "endpoint: \"x\"\n# y\n"}),
        json!({"cloudConfigSecret": "mine", "flags": ["--v=4", "--cluster-name=it's"], "nodeSelector": {"a": "true"}}),
        json!({"controllers": {"route": true, "nodeIpam": true, "service": false}, "clusterCidr": "10.244.0.0/16"}),
        json!({"leaderElection": false, "useServiceAccountCredentials": true, "kind": "Deployment"}),
        json!({"cloudProvider": "openstack", "cloudConfigSecret": "cloud-config", "cloudConfigKey": "cloud.conf"}),
        json!({"environment": {"OS_CCM_REGIONAL": "true"}, "cloudConfig": "[Global]\n", "cloudConfigFolder": "/etc/config"}),
        json!({"secrets": [{"namespace": "kube-system", "name": "a"}, {"namespace": "kube-system", "name": "b"}]}),
        json!({"imagePullSecrets": ["registry", "1e3"], "leaseName": "mine", "cloudProvider": "local"}),
        json!({"cloudProvider": "aws", "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}}),
    ];
    for values in cases {
        let objects = create(&server().await, &rendered(values.clone(), "kube-system")).await;
        assert!(objects.len() >= 6, "{values}");
    }
}

#[tokio::test]
async fn resources_are_taken_from_the_values() {
    let resources = json!({
        "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi", "ephemeral-storage": "1Gi"},
    });
    let objects = create(&server().await, &rendered(json!({"resources": resources}), "kube-system")).await;
    assert_eq!(objects.last().unwrap()["spec"]["template"]["spec"]["containers"][0]["resources"], resources);
    let bare = json!({"resources": {"requests": null}});
    assert!(!create(&server().await, &rendered(bare, "kube-system")).await.is_empty());
}

#[tokio::test]
async fn without_leader_election_there_is_one_pod_and_it_is_recreated() {
    let values = json!({"leaderElection": false, "kind": "Deployment", "replicas": 3});
    let objects = create(&server().await, &rendered(values, "kube-system")).await;
    let spec = &objects.last().unwrap()["spec"];
    assert_eq!((&spec["replicas"], &spec["strategy"]["type"]), (&json!(1), &json!("Recreate")));
    let budget = objects.iter().find(|object| object["kind"] == "PodDisruptionBudget").unwrap();
    assert_eq!((&budget["spec"]["maxUnavailable"], &budget["spec"]["selector"]), (&json!(1), &spec["selector"]));
    assert!(!rendered(json!({"kind": "DaemonSet"}), "kube-system").contains("PodDisruptionBudget"));
}

#[tokio::test]
async fn the_secret_of_the_openstack_go_manager_can_be_used() {
    let values = json!({
        "cloudProvider": "openstack", "cloudConfigSecret": "cloud-config", "cloudConfigKey": "cloud.conf",
        "cloudConfigFolder": "/etc/config", "environment": {"OS_CCM_REGIONAL": "true"},
    });
    let objects = create(&server().await, &rendered(values, "kube-system")).await;
    let pod = &objects.last().unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "cloud-config");
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/config");
    assert_eq!(container["env"], json!([{"name": "OS_CCM_REGIONAL", "value": "true"}]));
    assert!(container["args"].to_string().contains("--cloud-config=/etc/config/cloud.conf"), "{container}");
}

#[tokio::test]
async fn a_variable_comes_from_the_secret_of_its_provider() {
    let token = json!({"name": "TOKEN", "secret": "sea", "key": "access-token"});
    let of = async |provider: &str| {
        let values = json!({"cloudProvider": provider, "environmentSecrets": {"sea": [token]}});
        let objects = create(&server().await, &rendered(values, "kube-system")).await;
        objects.last().unwrap()["spec"]["template"]["spec"]["containers"][0]["env"].clone()
    };
    let expected = json!({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "sea", "key": "access-token"}}});
    assert_eq!(of("sea").await, json!([expected]));
    assert_eq!(of("local").await, Value::Null);
}

/// The same role as `bowline manifests` prints for a configuration that references the Secret.
#[tokio::test]
async fn only_the_secrets_of_the_values_can_be_read() {
    let server = server().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vault"}});
    post(&server, &namespace, namespace.to_string()).await;
    let values = json!({"secrets": [{"namespace": "vault", "name": "local-cloud"}]});
    create(&server, &rendered(values, "kube-system")).await;
    let client = account(&server, "kube-system");
    for verb in ["list", "watch"] {
        assert!(may(&client, &format!("{verb} secrets vault/local-cloud")).await, "{verb}");
    }
    for what in ["watch secrets vault/other", "watch secrets vault/", "get secrets vault/local-cloud"] {
        assert!(!may(&client, what).await, "{what}");
    }
    assert!(
        !rendered(json!({}), "kube-system").contains("secrets]"),
        "without Secrets there is no permission to read any"
    );
}

#[tokio::test]
async fn the_chart_equals_the_output_of_the_command() {
    let of = |objects: Vec<Value>| {
        let mut pod = objects.last().unwrap()["spec"].clone();
        // The chart sets flags explicitly that the command leaves to defaults.
        pod["template"]["spec"]["containers"][0]["args"] = Value::Null;
        pod["template"]["spec"]["volumes"] = Value::Null;
        pod["template"]["spec"]["containers"][0]["volumeMounts"] = Value::Null;
        pod
    };
    let chart = of(create(&server().await, &rendered(json!({}), "kube-system")).await);
    let command = of(create(&server().await, &manifests(&[])).await);
    assert_eq!(chart, command);
    assert!(!documents(&rendered(json!({}), "kube-system")).iter().any(|document| document.contains("{{")));
}
