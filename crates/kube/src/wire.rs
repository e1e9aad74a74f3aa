//! Nodes as they come over the wire, as far as we read them: a tenth of the object.
