//! Generates the reference page of resources from the resource table.

use std::fmt::Write as _;

use crate::resources::{RESOURCES, Resource};

/// The reference page of resources and subresources, as Markdown.
pub fn resource_reference() -> String {
    let mut page = String::from(
        "# Resources of the embedded API server\n\n\
         <!-- made by `cargo xtask generate` -->\n\n\
         | group and version | resource | kind | scope | verbs | subresources |\n\
         |---|---|---|---|---|---|\n",
    );
    for resource in RESOURCES {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "{}", row(resource));
    }
    page
}

fn row(resource: &Resource) -> String {
    let scope = if resource.namespaced { "namespace" } else { "cluster" };
    let subresources: Vec<&str> = resource.subresources.iter().map(|s| s.name).collect();
    let cells = [
        resource.api_version(),
        resource.plural.to_owned(),
        resource.kind.to_owned(),
        scope.to_owned(),
        resource.verbs.join(", "),
        subresources.join(", "),
    ];
    format!("| {} |", cells.join(" | "))
}
