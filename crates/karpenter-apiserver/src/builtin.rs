//! The built-in kinds: names, verbs, subresources and the types of their fields.
