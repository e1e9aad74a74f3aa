//! The kinds of providers in this program.

use bowline_cloud::Registry;

/// All of them: one entry for each feature.
pub fn registry() -> Registry {
    let registry = Registry::default();
    #[cfg(feature = "provider-local")]
    let registry = registry.with(bowline_local::factory());
    #[cfg(feature = "provider-openstack")]
    let registry = registry.with(bowline_openstack::factory());
    registry
}
