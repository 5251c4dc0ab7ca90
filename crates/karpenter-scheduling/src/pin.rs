//! Pins planned nodes to one domain (zone) if a topology constraint counts their pods.
//!
//! A planned node may launch in several zones as long as no pod on it has a zonal constraint. But if a constraint of
//! other pods counts its pods, the zone must be decided; otherwise the launch could choose a zone that violates a
//! spread or an affinity. Upstream does not decide the zone of such nodes.
//!
//! If a spread counts the node only for some of the instance types and offerings that it may launch as, the node is
//! restricted to those or to the others, whichever is cheaper.
//!
//! A node is not pinned if its instance types would then no longer meet `minValues`: the node would be rejected at the
//! end, with all pods that depend on it.

use crate::classes::QueueRun;
use crate::ledger::Ledger;
use crate::ledger::filters::Eligibility;
use crate::states::StateId;
use crate::topology::{GroupId, Kind};

/// Pins every planned node that may launch in several domains and whose pods a spread or an affinity counts.
pub(crate) fn pin_all(ledger: &mut Ledger) {
    for claim in 0..ledger.claims.len() {
        pin_claim(ledger, claim);
    }
}

/// Pins a planned node once it holds a pod that a spread or an affinity counts.
pub(crate) fn pin_claim(ledger: &mut Ledger, claim: usize) {
    decide_for_spreads(ledger, claim);
    for key in 0..ledger.topology.keys.len() {
        pin_to_domain_of(ledger, claim, key, |_| true);
    }
}

/// For each spread that selects pods of the node: if it is undecided whether the spread counts the node, restricts the
/// node so that it is decided.
fn decide_for_spreads(ledger: &mut Ledger, claim: usize) {
    let mut counted: Vec<GroupId> = Vec::new();
    for (variant, _, _) in &ledger.claims[claim].content {
        let class = &ledger.classes.classes[ledger.classes.variants[*variant].class];
        counted.extend(class.matched.iter().copied().filter(|group| {
            let group = ledger.topology.group(*group);
            !group.is_hostname && group.id.filter.terms.is_some()
        }));
    }
    counted.sort_unstable();
    counted.dedup();
    for group in counted {
        let before = ledger.claims[claim].state;
        if ledger.filter_result(group, before).eligibility != Eligibility::Undecided {
            continue;
        }
        let mut best: Option<(f64, StateId)> = None;
        for state in ledger.states_that_decide(group, before) {
            if let Some(price) = price_in(ledger, claim, state)
                && best.is_none_or(|(least, _)| price < least)
            {
                best = Some((price, state));
            }
        }
        if let Some((_, state)) = best {
            change_state(ledger, claim, state);
        }
    }
}

/// The price of a node after it was narrowed to `state`; `None` if no instance type remains.
fn price_in(ledger: &Ledger, claim: usize, state: StateId) -> Option<f64> {
    let mut moved = ledger.claims[claim].clone();
    moved.state = state;
    if !ledger.states.get(state).reserved.is_empty() || !moved.reservations.is_empty() {
        moved.reservations =
            ledger.reservations_for(state, &ledger.holding_of(&moved), &moved.reservations).ok()?;
    }
    ledger.cheapest_price(&moved).filter(|_| ledger.meets_min_values(&moved))
}

fn change_state(ledger: &mut Ledger, claim: usize, state: StateId) {
    let before = std::mem::replace(&mut ledger.claims[claim].state, state);
    ledger.update_reservations(claim);
    ledger.count_newly_pinned(claim, before, state);
}

/// Pins one planned node that excludes an unschedulable pod, by required anti-affinity of either side, from all domains
/// in which the node may launch. Returns whether a node was pinned.
pub(crate) fn pin_for_anti_affinity(ledger: &mut Ledger, waiting: &[QueueRun]) -> bool {
    for run in waiting {
        let variant = &ledger.classes.variants[ledger.classes.classes[run.class].variants.end - 1];
        let stated =
            variant.owned.iter().filter(|owned| !owned.is_hostname && owned.kind == Kind::AntiAffinity);
        let groups: Vec<GroupId> =
            stated.map(|owned| owned.group).chain(variant.repelled_by.iter().copied()).collect();
        for group in groups {
            let key = ledger.topology.group(group).id.key;
            for claim in 0..ledger.claims.len() {
                let involved = ledger.claims[claim].content.iter().any(|(variant, _, _)| {
                    let variant = &ledger.classes.variants[*variant];
                    variant.owned.iter().any(|owned| owned.group == group)
                        || ledger.classes.classes[variant.class].matched.contains(&group)
                });
                if involved && pin_to_best(ledger, claim, key, &[]) {
                    ledger.recount_anti_affinity();
                    return true;
                }
            }
        }
    }
    false
}

/// Pins one planned node that may launch in several domains and holds a pod that an unschedulable pod requires by
/// affinity. Returns whether a node was pinned.
pub(crate) fn pin_for_affinity(ledger: &mut Ledger, waiting: &[QueueRun]) -> bool {
    for run in waiting {
        let variants = ledger.classes.classes[run.class].variants.clone();
        let groups: Vec<(GroupId, usize)> = ledger.classes.variants[variants.end - 1]
            .owned
            .iter()
            .filter(|owned| !owned.is_hostname && owned.kind == Kind::Affinity)
            .map(|owned| (owned.group, owned.key))
            .collect();
        for (group, key) in groups {
            if (0..ledger.claims.len())
                .any(|claim| pin_to_domain_of(ledger, claim, key, |candidate| candidate == group))
            {
                return true;
            }
        }
    }
    false
}

/// Pins a node to one domain of a key if it may launch in several and holds a pod that a group of `wanted` counts.
fn pin_to_domain_of(ledger: &mut Ledger, claim: usize, key: usize, wanted: impl Fn(GroupId) -> bool) -> bool {
    if ledger.topology.is_hostname(key) {
        return false;
    }
    let mut counted: Vec<GroupId> = Vec::new();
    for (variant, _, _) in &ledger.claims[claim].content {
        let class = &ledger.classes.classes[ledger.classes.variants[*variant].class];
        counted.extend(class.matched.iter().copied().filter(|group| {
            let data = ledger.topology.group(*group);
            data.id.key == key && data.id.kind != Kind::AntiAffinity && wanted(*group)
        }));
    }
    counted.sort_unstable();
    counted.dedup();
    !counted.is_empty() && pin_to_best(ledger, claim, key, &counted)
}

/// Pins a node to one domain of a key: the domain with the fewest counted pods, and among those the cheapest.
fn pin_to_best(ledger: &mut Ledger, claim: usize, key: usize, counted: &[GroupId]) -> bool {
    let before = ledger.claims[claim].state;
    let open = ledger.domains(before, key);
    if open.is_empty() || open.single().is_some() {
        return false;
    }
    let mut choices: Vec<(u32, f64, usize, StateId)> = Vec::new();
    for domain in open.iter() {
        let (name, value) = (ledger.topology.keys[key].clone(), ledger.topology.domains[key][domain].clone());
        let Some(state) = ledger.states.narrow(before, &name, [&value]) else { continue };
        let Some(price) = price_in(ledger, claim, state) else { continue };
        let crowd = counted
            .iter()
            .map(|group| ledger.topology.group(*group))
            .filter(|group| matches!(group.id.kind, Kind::Spread { .. }));
        choices.push((crowd.map(|group| group.matched[domain]).max().unwrap_or(0), price, domain, state));
    }
    choices.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    match choices.first() {
        Some((_, _, _, state)) => {
            change_state(ledger, claim, *state);
            true
        }
        None => false,
    }
}
