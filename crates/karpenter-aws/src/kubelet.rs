//! `spec.kubelet` of an EC2NodeClass: parsing, validation, and the values for one instance type.
//!
//! The CRD schema accepts any object in `spec.kubelet`, so all rules are in this module. Some values may be CEL
//! expressions over an instance type (feature gate `NodeClassCEL`). `karpenter-userdata` writes the settings into user
//! data; `karpenter-catalog` computes a node's overhead from them.

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
