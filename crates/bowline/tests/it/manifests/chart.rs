//! The Helm chart, rendered by a minimal implementation of Helm's language: `if`, `else`, `end`, `range`, `not`, `or`, `eq`,
//! `index`, `print`, `lower`, `quote`, `toJson`. It runs everywhere; `helm.rs` has the tests with Helm itself.

use serde_json::{Value, json};

use crate::manifests::schema::Schema;
use crate::manifests::{account, create, documents, manifests, may, post, server};
use crate::support::workspace;

/// Minimal Helm renderer.
struct Renderer {
    root: Value,
}

impl Renderer {
    /// Evaluates a path, a string, or a call of a function, which may be in parentheses.
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
            "print" => json!(arguments().map(|text| plain(&text)).collect::<String>()),
            "lower" => json!(plain(&arguments().next().unwrap()).to_lowercase()),
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

    fn line(&self, mut line: &str, dot: &Value) -> String {
        let mut rendered = String::new();
        while let Some((text, rest)) = line.split_once("{{") {
            rendered.push_str(text);
            // A literal may contain braces.
            if let Some((literal, rest)) = rest.strip_prefix(" `").and_then(|rest| rest.split_once("` }}")) {
                rendered.push_str(literal);
                line = rest;
                continue;
            }
            let (expression, rest) = rest.split_once("}}").unwrap();
            rendered.push_str(&plain(&self.value(expression, dot)));
            line = rest;
        }
        rendered + line
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

/// Text of a file of the chart.
fn read(name: &str) -> String {
    std::fs::read_to_string(workspace().join("deploy/chart/bowline").join(name)).unwrap()
}

/// Values of the chart, with others merged into them.
fn merged(values: Value) -> Value {
    let mut all: Value = bowline_config::ConfigFile::from_text("values.yaml", read("values.yaml")).yaml().unwrap();
    merge(&mut all, values);
    all
}

/// Renders a template with values merged into those of the chart.
fn template(name: &str, values: Value, namespace: &str) -> String {
    let root = json!({"Values": merged(values), "Release": {"Namespace": namespace}});
    Renderer { root }.render(&read(&format!("templates/{name}")))
}

/// Renders the chart, without the kinds of the Prometheus Operator, with values merged into its own.
fn rendered(values: Value, namespace: &str) -> String {
    let names = ["account", "roles", "secrets", "console", "config", "disruption_budget", "workload"];
    let templates = names.map(|name| template(&format!("{name}.yaml"), values.clone(), namespace));
    templates.join("\n---\n")
}

/// Merges as Helm does: null removes a value of the chart.
fn merge(all: &mut Value, values: Value) {
    match (all, values) {
        (Value::Object(all), Value::Object(values)) => {
            for (key, value) in values {
                if value.is_null() {
                    all.remove(&key);
                } else {
                    merge(all.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (all, value) => *all = value,
    }
}

/// Values of users, which the schema accepts.
pub(super) fn accepted() -> Vec<Value> {
    vec![
        json!({}),
        json!({"kind": "Deployment", "apiServer": {"host": "10.0.0.1"}, "cloudConfig": "endpoint: \"x\"\n# y\n"}),
        json!({"cloudConfigSecret": "mine", "flags": ["--v=4", "--name=it's"], "clusterName": "a \"b\"", "nodeSelector": {"a": "true"}}),
        json!({"controllers": {"route": true, "nodeIpam": true, "service": false}, "clusterCidr": "10.244.0.0/16"}),
        json!({"leaderElection": false, "useServiceAccountCredentials": true, "kind": "Deployment"}),
        json!({"cloudProvider": "openstack", "cloudConfigSecret": "cloud-config", "cloudConfigKey": "cloud.conf"}),
        json!({"environment": {"OS_CCM_REGIONAL": "true"}, "cloudConfig": "[Global]\n", "cloudConfigFolder": "/etc/config"}),
        json!({"secrets": [{"namespace": "kube-system", "name": "a"}, {"namespace": "kube-system", "name": "b"}]}),
        json!({"imagePullSecrets": ["registry", "1e3"], "leaseName": "mine", "cloudProvider": "local"}),
        json!({"cloudProvider": "aws", "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}}),
        json!({"podMonitor": {"enabled": true, "labels": {"a": "b"}}, "prometheusRule": {"enabled": true}}),
        json!({"tolerations": [{"key": "a", "operator": "Exists"}], "podAnnotations": {"a": "b", "c": true}}),
        json!({"console": {"enabled": false}}),
    ]
}

/// Renders all templates, with values merged into those of the chart.
pub(super) fn everything(values: &Value) -> String {
    let of_operator = ["pod_monitor.yaml", "prometheus_rule.yaml"];
    let more = of_operator.map(|name| template(name, values.clone(), "kube-system")).join("\n---\n");
    format!("{more}\n---\n{}", rendered(values.clone(), "kube-system"))
}

#[tokio::test]
async fn all_values_render_objects_that_pass_strict_validation() {
    for values in accepted() {
        assert_eq!(errors(&merged(values.clone())), Vec::<String>::new(), "{values}");
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

fn workload(objects: &[Value]) -> &Value {
    &objects.last().unwrap()["spec"]["template"]
}

#[tokio::test]
async fn cluster_name_tolerations_and_pod_annotations_are_taken_from_the_values() {
    let toleration = json!({"key": "dedicated", "operator": "Equal", "value": "infra", "effect": "NoSchedule"});
    let values = json!({
        "clusterName": "it's \"mine\"", "tolerations": [toleration], "podAnnotations": {"example.com/a": "true"},
    });
    let objects = create(&server().await, &rendered(values, "kube-system")).await;
    let pod = workload(&objects);
    assert_eq!(pod["metadata"]["annotations"], json!({"example.com/a": "true"}));
    let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.len() > 5 && tolerations.contains(&toleration), "{tolerations:?}");
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert!(args.contains(&json!("--cluster-name=it's \"mine\"")), "{args:?}");
    assert!(!rendered(json!({}), "kube-system").contains("--cluster-name"), "the default is the manager's");
}

#[tokio::test]
async fn the_objects_of_the_console_are_those_of_the_command_and_can_be_left_out() {
    let of_console = |text: &str| -> Vec<Value> {
        let is_of_console =
            |object: &Value| object["metadata"]["name"].as_str().unwrap().starts_with("bowline-console");
        objects(text).into_iter().filter(is_of_console).collect()
    };
    let command = of_console(&manifests(&[]));
    assert_eq!(of_console(&rendered(json!({}), "kube-system")), command);
    let kinds: Vec<&Value> = command.iter().map(|object| &object["kind"]).collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ClusterRole"]);
    assert_eq!(command[1]["rules"], json!([{"nonResourceURLs": ["/consolez"], "verbs": ["get"]}]));
    assert!(of_console(&rendered(json!({"console": {"enabled": false}}), "kube-system")).is_empty());
    let other = of_console(&rendered(json!({"leaseName": "mine"}), "clouds"));
    assert_eq!(other[0]["metadata"]["namespace"], "clouds");
    let of_leases = other[3]["rules"].as_array().unwrap().iter().find(|rule| rule["resources"] == json!(["leases"]));
    assert_eq!(of_leases.unwrap()["resourceNames"], json!(["mine"]));
    assert!(of_console(&manifests(&["--", "--secure-port=0"])).is_empty(), "there is nothing to show");
}

// ---- monitoring

/// Parses the documents of a template.
fn objects(template: &str) -> Vec<Value> {
    documents(template).iter().map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

#[tokio::test]
async fn the_token_of_the_pod_monitor_may_read_metrics_and_nothing_else() {
    let off = template("pod_monitor.yaml", json!({}), "clouds");
    assert!(objects(&off).is_empty(), "{off}");
    let values = json!({"podMonitor": {"enabled": true, "interval": "15s", "labels": {"release": "prometheus"}}});
    let text = template("pod_monitor.yaml", values, "clouds");
    let mut all = objects(&text);
    let monitor = all.pop().unwrap();
    assert_eq!(
        (&monitor["kind"], &monitor["metadata"]["labels"]["release"]),
        (&json!("PodMonitor"), &json!("prometheus"))
    );
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!((&endpoint["port"], &endpoint["interval"]), (&json!("https"), &json!("15s")));
    // The Secret, the account and the Pods that the monitor refers to.
    assert_eq!(endpoint["authorization"]["credentials"], json!({"name": all[1]["metadata"]["name"], "key": "token"}));
    assert_eq!(all[1]["metadata"]["annotations"]["kubernetes.io/service-account.name"], all[0]["metadata"]["name"]);
    let pods = create(&server().await, &rendered(json!({}), "kube-system")).await;
    assert_eq!(monitor["spec"]["selector"], pods.last().unwrap()["spec"]["selector"]);
    assert_eq!(workload(&pods)["spec"]["containers"][0]["ports"][0]["name"], endpoint["port"]);
    let server = server().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clouds"}});
    post(&server, &namespace, namespace.to_string()).await;
    for object in &all {
        post(&server, object, object.to_string()).await;
    }
    assert_eq!(all[2]["rules"], json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    assert_eq!(all[3]["roleRef"]["name"], all[2]["metadata"]["name"]);
}

#[test]
fn the_prometheus_rule_has_the_alerts_of_the_repository() {
    assert!(objects(&template("prometheus_rule.yaml", json!({}), "clouds")).is_empty());
    let values = json!({"prometheusRule": {"enabled": true, "labels": {"role": "alerts"}}});
    let rule = objects(&template("prometheus_rule.yaml", values, "clouds")).remove(0);
    let alerts = std::fs::read_to_string(workspace().join("deploy/prometheus/alerts.yaml")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&alerts).unwrap();
    assert_eq!((&rule["spec"], &rule["metadata"]["labels"]["role"]), (&alerts, &json!("alerts")));
}

// ---- notes, schema

#[test]
fn the_notes_name_what_is_missing() {
    let notes = template("NOTES.txt", json!({}), "clouds");
    assert!(notes.contains("no configuration of the cloud") && notes.contains("in no public registry"), "{notes}");
    assert!(notes.contains("--namespace clouds rollout status daemonset/bowline"), "{notes}");
    let values = json!({"cloudConfig": "a: 1", "image": "registry.example/bowline:1", "kind": "Deployment"});
    let notes = template("NOTES.txt", values, "clouds");
    assert!(!notes.contains("WARNING") && notes.contains("deployment/bowline"), "{notes}");
    let notes = template("NOTES.txt", json!({"cloudProvider": "digitalocean"}), "clouds");
    assert!(notes.contains("create secret generic digitalocean --from-literal=access-token=VALUE"), "{notes}");
    assert!(!notes.contains("no configuration"), "{notes}");
}

/// Returns the errors of these values.
fn errors(values: &Value) -> Vec<String> {
    Schema::new(&read("values.schema.json")).errors(values)
}

/// Values that the schema rejects, with the path of the property.
pub(super) fn rejected() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"clusterNme": "a"}), "clusterNme"),
        (json!({"clusterName": 42}), "clusterName"),
        (json!({"cloudProvider": "openstak"}), "cloudProvider"),
        (json!({"kind": "Daemonset"}), "kind"),
        (json!({"replicas": 0}), "replicas"),
        (json!({"port": 0}), "port"),
        (json!({"port": "10258"}), "port"),
        (json!({"controllers": {"nodes": true}}), "controllers.nodes"),
        (json!({"controllers": {"node": "true"}}), "controllers.node"),
        (json!({"controllers": {"route": true}}), ""),
        (json!({"controllers": {"nodeIpam": true}}), ""),
        (json!({"cloudConfig": "a: 1", "cloudConfigSecret": "b"}), ""),
        (json!({"cloudConfigFolder": "etc/bowline"}), "cloudConfigFolder"),
        (json!({"clusterCidr": "10.244.0.0"}), "clusterCidr"),
        (json!({"image": "Registry.example/bowline:0.1.0"}), "image"),
        (json!({"apiServer": {"host": "https://10.0.0.1:6443"}}), "apiServer.host"),
        (json!({"apiServer": {"port": 65536}}), "apiServer.port"),
        (json!({"tolerations": [{"key": "a", "effect": "noschedule"}]}), "tolerations.0.effect"),
        (json!({"tolerations": [{"key": "a", "operater": "Exists"}]}), "tolerations.0.operater"),
        (json!({"resources": {"request": {}}}), "resources.request"),
        (json!({"resources": {"limits": {"memory": "512MB"}}}), "resources.limits.memory"),
        (json!({"secrets": [{"name": "a"}]}), "secrets.0"),
        (json!({"environment": {"A": 1}}), "environment.A"),
        (json!({"podAnnotations": {"a": 1000000}}), "podAnnotations.a"),
        (json!({"podMonitor": {"interval": "30"}}), "podMonitor.interval"),
        (json!({"prometheusRule": {"enable": true}}), "prometheusRule.enable"),
        (json!({"console": {"enable": false}}), "console.enable"),
        (json!({"flags": ["--v=4", "--controllers=*"]}), "flags.1"),
        (json!({"flags": ["--cluster-name=a"]}), "flags.0"),
        (json!({"flags": ["--leader-elect"]}), "flags.0"),
        (json!({"flags": ["v=4"]}), "flags.0"),
        (json!({"flags": "--v=4"}), "flags"),
    ]
}

#[test]
fn the_schema_rejects_typos_and_contradictions() {
    assert_eq!(errors(&merged(json!({}))), Vec::<String>::new());
    for (values, place) in rejected() {
        let errors = errors(&merged(values.clone()));
        assert!(errors.iter().any(|error| error.starts_with(&format!("{place}: "))), "{values}: {errors:?}");
    }
    let accepted = json!({"flags": ["--cloud-provider=aws", "--leader-elect-lease-duration=30s"], "global": {"a": 1}});
    assert_eq!(errors(&merged(accepted)), Vec::<String>::new());
}

#[test]
fn each_value_is_in_the_schema_and_in_the_readme() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let (values, readme) = (merged(json!({})), read("README.md"));
    let same = |path: &str, values: &Value, schema: &Value| {
        let of = |map: &Value| map.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
        let mut in_schema = of(&schema["properties"]);
        in_schema.remove("global");
        assert_eq!(of(values), in_schema, "{path}");
    };
    same("", &values, &schema);
    for key in ["controllers", "apiServer", "resources", "podMonitor", "prometheusRule"] {
        same(key, &values[key], &schema["properties"][key]);
    }
    for (key, value) in values.as_object().unwrap() {
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        assert!(row.is_some_and(|row| row.len() > key.len() + 30) || value.is_object(), "{key} has no comment");
        assert!(readme.contains(&format!("| `{key}")), "{key}");
    }
}
