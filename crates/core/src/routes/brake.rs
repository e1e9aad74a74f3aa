//! Against losing all routes at once, when the Nodes seem to be gone and are not.
