//! What happens to an object on its way in: defaults and rules of built-in kinds.
