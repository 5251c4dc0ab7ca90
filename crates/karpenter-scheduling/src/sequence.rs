//! Records the order of placements, from which the plan derives an order in which its pods can be bound.
//!
//! While the zone of a node was undecided, its pods counted in no zone, so they are bound last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::cost::pins;
use crate::ledger::{Claim, Ledger};
use crate::states::ReqId;
use crate::topology::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Node(usize),
    Claim(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) variant: usize,
    pub(crate) alternative: u8,
    pub(crate) target: Target,
    pub(crate) count: u32,
    /// Whether the pods were counted only after the zone of their node was decided.
    pub(crate) is_deferred: bool,
}

/// The order of placements after a repacking. Repacking moves pods to other nodes but not to other zones, so the
/// original order of the pods of each class and zone still satisfies every zonal constraint.
///
/// `kept` maps the index of a frozen node (one that is not repacked) before the repacking to its index after it. The
/// pods of these nodes keep their order.
pub(crate) fn of_repacking(
    ledger: &mut Ledger,
    repacked: &[Claim],
    kept: &BTreeMap<usize, usize>,
) -> Vec<Event> {
    let mut supply: BTreeMap<(usize, u8, ReqId), VecDeque<(usize, u32)>> = BTreeMap::new();
    let is_kept: BTreeSet<usize> = kept.values().copied().collect();
    for (position, claim) in repacked.iter().enumerate().filter(|(position, _)| !is_kept.contains(position)) {
        for (variant, alternative, count) in &claim.content {
            let key = (*variant, *alternative, pins(ledger, *variant, claim.state));
            supply.entry(key).or_default().push_back((position, *count));
        }
    }
    let mut events = Vec::new();
    for event in std::mem::take(&mut ledger.log) {
        let Target::Claim(claim) = event.target else {
            events.push(event);
            continue;
        };
        if let Some(position) = kept.get(&claim) {
            events.push(Event { target: Target::Claim(*position), ..event });
            continue;
        }
        let state = ledger.claims[claim].state;
        let key = (event.variant, event.alternative, pins(ledger, event.variant, state));
        let Some(queue) = supply.get_mut(&key) else { continue };
        // Pods with a hostname spread are bound to their hosts in turn, so that no host exceeds the skew.
        let takes_turns = ledger.classes.variants[event.variant]
            .owned
            .iter()
            .any(|owned| owned.is_hostname && matches!(owned.kind, Kind::Spread { .. }));
        let mut wanted = event.count;
        while wanted > 0
            && let Some((position, left)) = queue.pop_front()
        {
            let taken = if takes_turns { 1 } else { wanted.min(left) };
            events.push(Event { target: Target::Claim(position), count: taken, ..event });
            wanted -= taken;
            match (left - taken, takes_turns) {
                (0, _) => {}
                (rest, true) => queue.push_back((position, rest)),
                (rest, false) => queue.push_front((position, rest)),
            }
        }
    }
    for ((variant, alternative, _), queue) in supply {
        events.extend(queue.into_iter().map(|(position, count)| Event {
            variant,
            alternative,
            target: Target::Claim(position),
            count,
            is_deferred: true,
        }));
    }
    events
}
