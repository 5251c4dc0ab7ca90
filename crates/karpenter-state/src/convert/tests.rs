//! Table tests of the conversion rules: YAML in, model out.

mod nodes;
mod pods;
mod volumes;
