//! Reference page.

use super::declaration::{clouds_table, table};

const HEAD: &str = "\
# OpenStack: cloud.conf

<!-- Made by `cargo xtask generate` from providers/openstack/src/config; change that instead. -->

The file of `--cloud-config` with `--cloud-provider=openstack`. It is that of openstack-cloud-controller-manager, with the same \
syntax; see [the guide](../guides/openstack.md) for an example.

";

/// Returns all keys with types, defaults and descriptions, in Markdown.
pub fn reference() -> String {
    let (table, clouds) = (table(), clouds_table());
    [HEAD, &table.syntax(), &table.reference(), "\n", include_str!("reference.md"), &clouds.reference()].concat()
}
