//! The reference page.

use super::declaration::{clouds_table, table};

const HEAD: &str = "\
# OpenStack: cloud.conf

<!-- Made by `cargo xtask generate` from providers/openstack/src/config; change that instead. -->

What `--cloud-config` names for `--cloud-provider=openstack`. It is the file of openstack-cloud-controller-manager, read by \
the same rules; [the guide](../guides/openstack.md) has one to start from.

";

/// All keys, with types, defaults and meanings, in Markdown.
pub fn reference() -> String {
    let (table, clouds) = (table(), clouds_table());
    [HEAD, &table.syntax(), &table.reference(), "\n", include_str!("reference.md"), &clouds.reference()].concat()
}
