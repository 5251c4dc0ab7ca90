//! Table tests of the conversion rules: each case is YAML and the resulting values of the model.

mod nodes;
mod pods;
mod volumes;
