//! Assigns zones to pods with zonal constraints, after it is known which nodes are removed.
//!
//! Pods of a spread go to the domain with the fewest pods, as kube-scheduler would place them. Among domains with equal
//! counts, one that pods of the spread leave comes first, because then the counts stay as they are. Pods with other zonal
//! constraints stay in their domain.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::Ledger;
use crate::simulate::{BoundAt, Simulator};
use crate::templates::Amounts;
use crate::topology::{GroupId, Kind as GroupKind};

/// A domain of a topology key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Zone {
    pub(super) key: usize,
    pub(super) domain: usize,
}

/// Whether pods of a class are constrained by zone.
pub(super) fn is_zonal(ledger: &Ledger, class: usize) -> bool {
    let variant = &ledger.classes.variants[ledger.classes.classes[class].variants.end - 1];
    variant.owned.iter().any(|owned| !owned.is_hostname) || !variant.repelled_by.is_empty()
}

/// The pods of removed nodes that count for one spread over zones.
struct SpreadPods {
    variant: usize,
    key: usize,
    /// Each with the domain of its node.
    pods: Vec<(BoundAt, Option<usize>)>,
}

/// The zones of those pods that need one. `ledger` must be in a simulation with the pods in its queue.
pub(super) fn assign(
    ledger: &Ledger,
    simulator: &Simulator<'_>,
    pods: &[BoundAt],
    onto: &[usize],
) -> BTreeMap<BoundAt, Zone> {
    let mut assigned = BTreeMap::new();
    let removed: BTreeSet<usize> = pods.iter().map(|pod| pod.node as usize).collect();
    let positions =
        onto.iter().filter(|node| !removed.contains(node)).map(|node| simulator.position_of[*node]);
    let stays = positions.filter(|position| !ledger.is_closed_to_movers(*position));
    let mut fitting = Fitting {
        nodes: stays.map(|position| (position, ledger.free_before_plan(position))).collect(),
        known: BTreeMap::new(),
    };
    let mut spreads: BTreeMap<GroupId, SpreadPods> = BTreeMap::new();
    for pod in pods {
        let Some(spec) = simulator.pod_index.spec_at(*pod) else { continue };
        let class = simulator.pod_index.class_of(spec);
        let variant = ledger.classes.classes[class].variants.end - 1;
        let data = &ledger.classes.variants[variant];
        let facts = &ledger.nodes[simulator.position_of[pod.node as usize]].facts;
        let mut zonal = data.owned.iter().filter(|owned| !owned.is_hostname);
        let is_only = zonal.clone().count() == 1 && data.repelled_by.is_empty();
        match zonal.next() {
            Some(owned)
                if is_only && owned.selects_itself && matches!(owned.kind, GroupKind::Spread { .. }) =>
            {
                let of_spread = || SpreadPods { variant, key: owned.key, pods: Vec::new() };
                let spread = spreads.entry(owned.group).or_insert_with(of_spread);
                spread.pods.push((*pod, facts.domains[owned.key]));
            }
            owned => {
                let of_owner = || data.repelled_by.first().map(|group| ledger.topology.group(*group).id.key);
                let Some(key) = owned.map(|owned| owned.key).or_else(of_owner) else { continue };
                if let Some(domain) = facts.domains[key] {
                    assigned.insert(*pod, Zone { key, domain });
                }
            }
        }
    }
    for (group, SpreadPods { variant, key, pods }) in spreads {
        let allows = ledger.classes.variants[variant].owned.iter().find(|owned| owned.group == group);
        let domains: Vec<usize> = (0..ledger.topology.domains[key].len())
            .filter(|domain| {
                ledger.topology.counts(group, *domain)
                    && allows.is_none_or(|owned| owned.pod_allows.contains(*domain))
            })
            .collect();
        let mut left: BTreeMap<usize, u32> = BTreeMap::new();
        pods.iter()
            .filter_map(|(_, domain)| *domain)
            .for_each(|domain| *left.entry(domain).or_insert(0) += 1);
        let counted = &ledger.topology.group(group).matched;
        let mut counts: BTreeMap<usize, u32> = domains
            .iter()
            .map(|domain| (*domain, counted[*domain].saturating_sub(left.get(domain).copied().unwrap_or(0))))
            .collect();
        let mut quota: BTreeMap<usize, u32> = BTreeMap::new();
        for _ in &pods {
            let is_vacated = |domain: usize| {
                quota.get(&domain).copied().unwrap_or(0) < left.get(&domain).copied().unwrap_or(0)
            };
            let least =
                counts.iter().min_by_key(|(domain, count)| (**count, !is_vacated(**domain), **domain));
            let Some(domain) = least.map(|(domain, _)| *domain) else { break };
            *counts.entry(domain).or_insert(0) += 1;
            *quota.entry(domain).or_insert(0) += 1;
        }
        // Pods that fit on existing nodes of the fewest zones are assigned first. A pod stays in its zone if possible.
        let mut order: Vec<(usize, BoundAt, Option<usize>, BTreeSet<usize>)> = pods
            .iter()
            .map(|(pod, own)| {
                let zones = fitting.zones(ledger, simulator, *pod, key);
                (zones.len(), *pod, *own, zones)
            })
            .collect();
        order.sort_unstable();
        for (_, pod, own, zones) in order {
            let is_left = |domain: &usize| quota.get(domain).is_some_and(|left| *left > 0);
            let fits = |domain: &usize| is_left(domain) && (zones.is_empty() || zones.contains(domain));
            let chosen = own.filter(fits).or_else(|| domains.iter().copied().find(fits));
            let chosen =
                chosen.or_else(|| own.filter(is_left)).or_else(|| domains.iter().copied().find(is_left));
            if let Some(domain) = chosen {
                quota.entry(domain).and_modify(|left| *left -= 1);
                assigned.insert(pod, Zone { key, domain });
            }
        }
    }
    assigned
}

/// Zones in which some existing node has the free capacity for a pod.
struct Fitting {
    /// Nodes that stay and take pods: position and free capacity.
    nodes: Vec<(usize, Amounts)>,
    known: BTreeMap<(usize, usize), BTreeSet<usize>>,
}

impl Fitting {
    fn zones(
        &mut self,
        ledger: &Ledger,
        simulator: &Simulator<'_>,
        pod: BoundAt,
        key: usize,
    ) -> BTreeSet<usize> {
        let Some(spec) = simulator.pod_index.spec_at(pod) else { return BTreeSet::new() };
        let class = simulator.pod_index.class_of(spec);
        let requests = &ledger.classes.variants[ledger.classes.classes[class].variants.start].requests;
        let nodes = &self.nodes;
        let found = self.known.entry((class, key)).or_insert_with(|| {
            let fits = |free: &Amounts| free.iter().zip(requests).all(|(free, request)| request <= free);
            let holding = nodes.iter().filter(|(_, free)| fits(free));
            holding.filter_map(|(position, _)| ledger.nodes[*position].facts.domains[key]).collect()
        });
        found.clone()
    }
}
