//! Which Services are ours, and when something about them has to be done.

use std::collections::BTreeSet;

use super::Service;

/// Whose Services these are: by their class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Those without a class.
    pub unset: bool,
    /// Those with one of these classes.
    pub classes: BTreeSet<String>,
}

impl Scope {
    /// Services without a class only, as the Go managers have it.
    pub fn upstream() -> Scope {
        Scope { unset: true, classes: BTreeSet::new() }
    }

    /// A Service of this class is ours.
    pub fn takes(&self, class: Option<&str>) -> bool {
        class.map_or(self.unset, |class| self.classes.contains(class))
    }
}

/// The Service is to have a balancer of ours: the type is LoadBalancer, and the class is in scope.
pub fn wants_balancer(service: &Service, scope: &Scope) -> bool {
    let _ = (service, scope);
    todo!()
}

/// The Service has our finalizer, and is being deleted or has another type. One of a class that is not ours belongs to
/// somebody else, finalizer or not.
pub fn needs_cleanup(service: &Service, scope: &Scope) -> bool {
    let _ = (service, scope);
    todo!()
}

/// Something has changed that a balancer is made of (SVC-8, SVC-9).
pub fn needs_update(old: &Service, new: &Service, scope: &Scope) -> bool {
    let _ = (old, new, scope);
    todo!()
}
