//! `spec.kubelet` of a class: read, judged, and worked out for one instance type.
//!
//! The schema of the class leaves these settings open, so every rule lives here. Some values may be expressions over
//! an instance type (gate `NodeClassCEL`). How settings reach a machine is the business of `karpenter-userdata`, what
//! they take away from a node's capacity that of `karpenter-catalog`.

mod class;
mod expression;
mod parse;
mod resolve;
mod shape;
mod units;
mod validate;

pub use class::ClassExpressions;
pub use expression::{ExpressionError, Expressions, Variables};
pub(crate) use parse::MANAGED;
pub use parse::{MaxPods, ParsedKubelet};
pub use resolve::{Dropped, EvaluationError, Resolved, check_on_type, resolve, resolve_reserved, settings};
pub use validate::{Refusal, check, unsupported, violations};
