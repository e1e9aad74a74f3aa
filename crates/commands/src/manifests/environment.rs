//! Environment variables of the container: the address of the API server, and variables of providers.

use std::collections::BTreeSet;

use bowline_cloud::{EnvironmentVariable, Registry, SecretKey};
use bowline_settings::argv::Argv;
use bowline_settings::providers::ProviderSpec;

use super::fill::scalar;
use super::installation::Installation;

/// Returns the variables of all providers that no configuration file is given for: a file has the same settings.
pub(super) fn of_providers(wanted: &[ProviderSpec], registry: &Registry) -> Vec<EnvironmentVariable> {
    let without_file = wanted.iter().filter(|wanted| wanted.config.is_none());
    let names: BTreeSet<&str> = without_file.map(|wanted| wanted.name.as_str()).collect();
    names.into_iter().filter_map(|name| registry.get(name)).flat_map(|factory| (factory.environment)()).collect()
}

/// Whether the credentials of a provider are in its environment, so that it needs no configuration file.
pub(super) fn has_credentials(provider: &str, registry: &Registry) -> bool {
    registry.get(provider).is_some_and(|factory| factory.secret_variables().next().is_some())
}

/// Adds the default flags of the providers that are not given.
pub(super) fn add_default_flags(argv: &mut Argv, registry: &Registry) {
    let names: Vec<String> =
        argv.values("cloud-provider").flat_map(|names| names.split(',')).map(str::to_owned).collect();
    for factory in names.iter().filter_map(|name| registry.get(name)) {
        factory.default_flags.iter().for_each(|flag| argv.add_default(flag));
    }
}

/// Returns a warning for each Secret that must exist.
pub(super) fn warnings(variables: &[EnvironmentVariable], namespace: &str) -> impl Iterator<Item = String> {
    let secrets = variables.iter().filter_map(|variable| variable.secret);
    secrets.map(move |SecretKey { name, key }| {
        format!(
            "the Secret {name} in {namespace} must contain {key}; create it with kubectl -n {namespace} create secret generic \
             {name} --from-literal={key}=VALUE, or set --cloud-config"
        )
    })
}

/// Renders all variables; empty if none has a value.
pub(super) fn render(installation: &Installation) -> String {
    let variables = &installation.environment;
    if installation.api_server.is_none() && variables.iter().all(|variable| variable.secret.is_none()) {
        return String::new();
    }
    let lines = api_server(installation).into_iter().chain(variables.iter().flat_map(lines));
    lines.fold("env:".to_owned(), |rendered, line| format!("{rendered}\n  {line}"))
}

fn api_server(installation: &Installation) -> Vec<String> {
    let Some((host, port)) = &installation.api_server else { return Vec::new() };
    vec![
        "# The cluster IP of the Service kubernetes needs kube-proxy, which may wait for the manager.".to_owned(),
        "- name: KUBERNETES_SERVICE_HOST".to_owned(),
        format!("  value: {}", scalar(host)),
        "- name: KUBERNETES_SERVICE_PORT".to_owned(),
        format!("  value: \"{port}\""),
    ]
}

/// Renders a variable below its summary; an optional one as a comment.
fn lines(variable: &EnvironmentVariable) -> Vec<String> {
    let (summary, name) = (format!("# {}", variable.summary), variable.name);
    match variable.secret {
        None => vec![summary, format!("# - name: {name}"), "#   value: \"\"".to_owned()],
        Some(secret) => vec![
            summary,
            format!("- name: {name}"),
            "  valueFrom:".to_owned(),
            "    secretKeyRef:".to_owned(),
            format!("      name: {}", secret.name),
            format!("      key: {}", secret.key),
        ],
    }
}

/// Renders the variables from Secrets as a value of the chart, by provider.
pub(super) fn chart_value(registry: &Registry) -> String {
    let mut rendered = String::new();
    for factory in registry.iter().filter(|factory| factory.secret_variables().next().is_some()) {
        rendered.push_str(&format!("\n  {}:", factory.name));
        for (name, secret) in factory.secret_variables() {
            rendered
                .push_str(&format!("\n    - name: {name}\n      secret: {}\n      key: {}", secret.name, secret.key));
        }
    }
    if rendered.is_empty() { "environmentSecrets: {}".to_owned() } else { format!("environmentSecrets:{rendered}") }
}

#[cfg(test)]
#[cfg(feature = "playground")]
mod tests {
    use bowline_cloud::Factory;
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::manifests::text;
    use clap::Parser as _;

    const VARIABLES: &[EnvironmentVariable] = &[
        EnvironmentVariable {
            name: "SEA_TOKEN",
            summary: "API token.",
            secret: Some(SecretKey { name: "sea", key: "access-token" }),
        },
        EnvironmentVariable { name: "SEA_REGION", summary: "Region.", secret: None },
    ];

    /// A registry with a provider whose token is an environment variable.
    fn registry() -> Registry {
        let default_flags = &["authentication-skip-lookup=true"];
        Registry::default().with(Factory {
            environment: || VARIABLES.to_vec(),
            default_flags,
            ..bowline_local::factory()
        })
    }

    fn rendered(flags: &[&str]) -> (String, Vec<String>) {
        let flags = [&["bowline", "manifests", "--cloud-provider=local"], flags].concat();
        let Some(Command::Manifests(args)) = Cli::try_parse_from(flags).unwrap().command else {
            panic!("no manifests")
        };
        let installation = Installation::new(&args, &registry()).unwrap();
        (text(&installation), installation.warnings)
    }

    /// The container in the workload, which is the last document.
    fn container(text: &str) -> Value {
        let workload: Value = serde_saphyr::from_str(text.split("---\n").last().unwrap()).unwrap();
        workload["spec"]["template"]["spec"]["containers"][0].clone()
    }

    #[test]
    fn a_variable_from_a_secret_replaces_the_configuration_file() {
        let (text, warnings) = rendered(&["--namespace=clouds"]);
        assert!(!text.contains("kind: Secret\n") && !text.contains("--cloud-config"), "{text}");
        let container = container(&text);
        let token = json!({"name": "SEA_TOKEN", "valueFrom": {"secretKeyRef": {"name": "sea", "key": "access-token"}}});
        assert_eq!(container["env"], json!([token]));
        assert!(
            text.contains("            # Region.\n            # - name: SEA_REGION\n            #   value: \"\"\n"),
            "{text}"
        );
        let command = "-n clouds create secret generic sea --from-literal=access-token=";
        assert!(warnings.iter().any(|warning| warning.contains(command)), "{warnings:?}");
    }

    #[test]
    fn a_given_file_replaces_the_variables() {
        let file = std::env::temp_dir().join(format!("bowline-manifests-{}.yaml", std::process::id()));
        std::fs::write(&file, "idPrefix: other\n").unwrap();
        let (text, warnings) = rendered(&["--cloud-config", file.to_str().unwrap()]);
        std::fs::remove_file(&file).unwrap();
        let container = container(&text);
        assert_eq!(
            (&container["env"], &container["args"][1]),
            (&Value::Null, &json!("--cloud-config=/etc/bowline/local.yaml"))
        );
        assert!(!warnings.iter().any(|warning| warning.contains("sea")), "{warnings:?}");
    }

    #[test]
    fn the_address_of_the_api_server_is_the_first_variable() {
        let (text, _) = rendered(&["--api-server=10.0.0.1:6443"]);
        let names: Vec<_> = container(&text)["env"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
        assert_eq!(names, ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "SEA_TOKEN"]);
    }

    #[test]
    fn default_flags_of_a_provider_apply_unless_they_are_given() {
        let args = |flags: &[&str]| container(&rendered(flags).0)["args"].to_string();
        assert!(args(&[]).contains("--authentication-skip-lookup=true"));
        assert!(!args(&["--authentication-skip-lookup=false"]).contains("--authentication-skip-lookup=true"));
    }

    #[test]
    fn the_chart_has_the_variables_of_each_provider() {
        let value: Value = serde_saphyr::from_str(&chart_value(&registry())).unwrap();
        let token = json!({"name": "SEA_TOKEN", "secret": "sea", "key": "access-token"});
        assert_eq!(value, json!({"environmentSecrets": {"local": [token]}}));
        assert_eq!(chart_value(&Registry::default()), "environmentSecrets: {}");
    }
}
