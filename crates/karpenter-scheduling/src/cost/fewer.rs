//! Selects, among fleets of almost the same price, the fleet with the fewest nodes.
//!
//! The pods are planned again with a charge added to the price of every node: the larger the charge, the fewer nodes
//! the cheapest fleet has. The result is used if its price without the charge is within the tolerance. A charge of
//! `tolerance × price / nodes` always meets the tolerance, because even avoiding all nodes would save no more than the
//! charges of all nodes, which add up to the tolerance. Larger charges are tried as long as the results stay within the
//! tolerance.

use karpenter_model::problem::EFFORT_DEFAULT;

use super::{Fleet, Scratch, claims_price, feasible, repack_tiers};
use crate::bits::Bits;
use crate::ledger::Ledger;

/// The charge of the first run is this multiple of `tolerance × price / nodes`.
const FIRST_CHARGE: f64 = 4.0;
/// If the result is within the tolerance, the next charge is multiplied by this factor; if it is not, the charge is
/// divided by it.
const CHARGE_STEP: f64 = 4.0;
/// The maximum number of planning runs with a charge.
const RUNS_MAX: usize = 3;
/// If the problem has more classes of pods than this, no run with a charge is made, because it would take too long.
const CLASSES_MAX: usize = 64;
/// The effort is just below the default, so that each run solves one relaxation and makes one quick packing.
const EFFORT: u64 = EFFORT_DEFAULT - 1;
/// If the price of the incumbent is at most this multiple of the lower bound, the fleet that replaces it must be as
/// well.
const NEAR_BOUND: f64 = 1.01;
/// The sum of the same prices in another order may differ by less than this factor, which is rounding.
const ROUNDING: f64 = 1.0 + 1e-12;

/// The fleet that was found without a charge, and the prices that limit a replacement.
pub(super) struct Incumbent {
    pub(super) price: f64,
    pub(super) nodes: usize,
    pub(super) lower_bound: f64,
    /// The price of the plan of compat mode; no fleet may cost more.
    pub(super) price_max: f64,
}

impl Incumbent {
    /// The highest price at which a fleet with fewer nodes replaces the incumbent.
    pub(super) fn limit(&self, tolerance: f64) -> f64 {
        let limit = (self.price * (1.0 + tolerance)).min(self.price_max);
        let near = self.lower_bound * NEAR_BOUND;
        if self.price <= near { limit.min(near) } else { limit }
    }
}

/// Of all fleets found within the tolerance, the one with the fewest nodes; `None` if none has fewer nodes than the
/// incumbent.
pub(super) fn find(
    ledger: &mut Ledger,
    tiers: &[Bits],
    incumbent: &Incumbent,
    scratch: &mut Scratch,
) -> Option<Fleet> {
    let tolerance = ledger.options.node_count_tolerance.fraction();
    let limit = incumbent.limit(tolerance) * ROUNDING;
    let overhead = ledger.options.node_overhead_price_per_hour;
    if ledger.classes.classes.len() > CLASSES_MAX {
        return None;
    }
    let effort = std::mem::replace(&mut ledger.options.effort, EFFORT);
    let mut charge = FIRST_CHARGE * tolerance * incumbent.price / incumbent.nodes.max(1) as f64;
    let mut best: Option<(usize, f64, Fleet)> = None;
    let mut is_shrinking = false;
    for _ in 0..RUNS_MAX {
        ledger.options.node_overhead_price_per_hour = overhead + charge;
        let fleet = repack_tiers(ledger, tiers, scratch);
        ledger.options.node_overhead_price_per_hour = overhead;
        let price = claims_price(ledger, &fleet.claims);
        let is_within = fleet.is_complete && price <= limit && feasible(ledger, &fleet).is_some();
        if is_within {
            let nodes = fleet.claims.len();
            let least =
                best.as_ref().map_or((incumbent.nodes, f64::MIN), |(nodes, price, _)| (*nodes, *price));
            if nodes < least.0 || nodes == least.0 && price < least.1 {
                best = Some((nodes, price, fleet));
            }
        }
        match (is_within, is_shrinking) {
            (true, false) => charge *= CHARGE_STEP,
            // The next larger charge already gave a fleet outside the tolerance; a charge in between would rarely give
            // fewer nodes.
            (true, true) => break,
            (false, _) if best.is_some() => break,
            (false, _) => {
                is_shrinking = true;
                charge /= CHARGE_STEP;
            }
        }
    }
    ledger.options.effort = effort;
    best.map(|(_, _, fleet)| fleet)
}
