//! Custom kinds: definitions, schemas, pruning, defaulting, validation.
