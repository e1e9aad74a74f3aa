//! Providers of this program.

use bowline_cloud::Registry;

/// Returns the providers of all enabled features.
pub fn registry() -> Registry {
    let registry = Registry::default();
    #[cfg(feature = "provider-local")]
    let registry = registry.with(bowline_local::factory());
    #[cfg(feature = "provider-aws")]
    let registry = registry.with(bowline_aws::factory());
    #[cfg(feature = "provider-cloudlycke")]
    let registry = registry.with(bowline_cloudlycke::factory());
    #[cfg(feature = "provider-digitalocean")]
    let registry = registry.with(bowline_digitalocean::factory());
    #[cfg(feature = "provider-openstack")]
    let registry = registry.with(bowline_openstack::factory());
    #[cfg(feature = "provider-vsphere")]
    let registry = registry.with(bowline_vsphere::factory());
    registry
}
