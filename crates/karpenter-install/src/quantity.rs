//! Validates amounts of a container's resources.

use karpenter_model::quantity::Quantity;

pub(crate) fn is_positive(text: &str) -> bool {
    text.parse::<Quantity>().is_ok_and(|quantity| !quantity.is_negative() && quantity.milli_ceil() > 0)
}
