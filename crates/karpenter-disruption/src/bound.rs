//! What no fleet for the same pods can cost less than, whatever is decided about the fleet that is there.

use crate::fleet::Fleet;
use crate::rebalance::worth::Worths;

/// Dollars per hour; `None` if nothing is known.
pub fn lower_bound_per_hour(fleet: &Fleet, effort: u64) -> Option<f64> {
    Some(Worths::of(&fleet.problem, effort).lower_bound_per_hour).filter(|bound| *bound > 0.0)
}
