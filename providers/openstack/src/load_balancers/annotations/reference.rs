//! The reference page of the annotations.

use super::{ALL, Annotation};

const HEAD: &str = "\
# Annotations of Services on OpenStack

<!-- Made by `cargo xtask generate` from providers/openstack/src/load_balancers/annotations.rs; change that instead. -->

These are the annotations of `openstack-cloud-controller-manager`, with the same meaning. Where one of them and one of the \
[annotations that all clouds have](annotations.md) say something about the same thing, the one on this page counts.

- A text that is there counts even if it is empty, unless it says otherwise below.
- What is no number where one is expected, and anything but exactly `true` or `false` where one of them is expected, is as if it were not there; a \
warning Event (`LoadBalancerAnnotationIgnored`) says so.
- `service.beta.kubernetes.io/load-balancer-source-ranges` works as everywhere: it counts where `spec.loadBalancerSourceRanges` is \
empty.
";

/// The page with all annotations of this cloud.
pub(crate) fn reference() -> String {
    let rows: String = ALL.iter().map(row).collect();
    let sections: String = ALL.iter().map(section).collect();
    format!("{HEAD}\n| annotation | value | default |\n|---|---|---|\n{rows}{sections}")
}

fn row(annotation: &Annotation) -> String {
    let Annotation { key, form, default, .. } = annotation;
    format!("| [`{key}`](#{}) | {} | {default} |\n", anchor(key), form.words())
}

fn section(annotation: &Annotation) -> String {
    let Annotation { key, example, meaning, .. } = annotation;
    format!("\n## `{key}`\n\n{meaning}\n\n```yaml\nmetadata:\n  annotations:\n    {key}: \"{example}\"\n```\n")
}

/// How a heading is linked to: in small letters, without marks.
fn anchor(key: &str) -> String {
    key.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}
