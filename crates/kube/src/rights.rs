//! What may be asked of the API server. Each right is declared beside the code that needs it; the role that a cluster gives
//! to the manager is rendered from these declarations and from nothing else.

/// The right to do something with one kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// The API group, `""` for the core one.
    pub group: &'static str,
    /// The resource, with its subresource: `nodes/status`.
    pub resource: &'static str,
    /// What is done with it.
    pub verbs: &'static [&'static str],
    /// Where.
    pub scope: Scope,
    /// What for, for the person who reads the role.
    pub why: &'static str,
}

/// Where a right holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// In this namespace.
    Namespace(&'static str),
    /// In this namespace, for the objects of these names.
    Named(&'static str, &'static [&'static str]),
}
