//! Which blocks of a range are in use, and by how many.
