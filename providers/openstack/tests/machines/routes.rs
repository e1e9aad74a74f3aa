//! Routes of a router.
