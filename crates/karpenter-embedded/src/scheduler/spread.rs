//! Hard topology spread constraints: matching pods per domain, and the domain with the fewest.
//!
//! Upstream: pkg/scheduler/framework/plugins/podtopologyspread/filtering.go

use super::node::{NodeFacts, Verdict};
use super::pod::{PodInfo, SpreadConstraint};
use super::snapshot::Snapshot;
use super::tables::{Domain, NodeIndex, PodQuery};
use super::verdict::{Plugin, Rejection};

#[derive(Debug)]
struct Counted {
    /// Matching pods per domain; `None` for domains without an eligible node.
    counts: Vec<Option<i64>>,
    domains: i64,
    /// The domain with the fewest pods.
    fewest: (Option<Domain>, i64),
    /// The fewest pods in any other domain.
    second_fewest: i64,
    /// 1 if the pod matches its own selector, else 0.
    selects_itself: i64,
}

/// The state of all hard constraints of a pod before nodes are filtered (PreFilter).
#[derive(Debug)]
pub(super) struct SpreadState {
    counted: Vec<Counted>,
}

/// Whether pods on a node count for a constraint.
pub(super) fn is_eligible(constraint: &SpreadConstraint, verdict: &Verdict) -> bool {
    (!constraint.honors_affinity || verdict.affine) && (!constraint.honors_taints || verdict.tolerated)
}

/// The query for the pods that count for a constraint. With an empty selector no pods count, although the selector
/// matches the pod itself.
pub(super) fn query_of(pod: &PodInfo, constraint: &SpreadConstraint) -> Option<PodQuery> {
    let selector = constraint.selector.as_ref().filter(|selector| !selector.is_empty())?;
    Some(PodQuery::spread(&pod.key.namespace, selector))
}

fn has_all_keys(constraints: &[SpreadConstraint], node: &NodeFacts) -> bool {
    constraints.iter().all(|constraint| node.labels.contains_key(&constraint.topology_key))
}

impl SpreadState {
    /// Counts matching pods before nodes are filtered; `None` if the pod has no hard topology spread constraints.
    pub(super) fn prepare(snapshot: &Snapshot, pod: &PodInfo, verdicts: &[Verdict]) -> Option<Self> {
        if pod.hard_spread.is_empty() {
            return None;
        }
        let constraints = &pod.hard_spread;
        let columns: Vec<_> =
            constraints.iter().map(|constraint| snapshot.columns.get(&constraint.topology_key)).collect();
        let queries: Vec<_> = constraints.iter().map(|constraint| query_of(pod, constraint)).collect();
        let tallies: Vec<&[u32]> = queries
            .iter()
            .map(|query| query.as_ref().map_or(&[][..], |query| snapshot.tally(query)))
            .collect();
        let mut counts: Vec<Vec<Option<i64>>> =
            columns.iter().map(|column| vec![None; column.map_or(0, |column| column.domains())]).collect();
        let mut domains = Vec::with_capacity(constraints.len());
        for (index, ..) in snapshot.live_nodes() {
            domains.clear();
            domains.extend(columns.iter().map_while(|column| column.and_then(|column| column.domain(index))));
            if domains.len() < constraints.len() {
                continue;
            }
            for (position, constraint) in constraints.iter().enumerate() {
                if is_eligible(constraint, &verdicts[index]) {
                    let count = &mut counts[position][domains[position] as usize];
                    let more = tallies[position].get(index).copied().unwrap_or(0);
                    *count = Some(count.unwrap_or(0) + i64::from(more));
                }
            }
        }
        let counted = constraints
            .iter()
            .zip(counts)
            .map(|(constraint, counts)| Counted::new(counts, constraint.selects(&pod.labels)))
            .collect();
        Some(Self { counted })
    }

    /// The change of each constraint's count if one more pod were on the node.
    pub(super) fn weight_of(
        &self,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeFacts,
        verdict: &Verdict,
    ) -> impl Iterator<Item = bool> {
        let counts = other.key.namespace == pod.key.namespace && has_all_keys(&pod.hard_spread, node);
        pod.hard_spread.iter().map(move |constraint| {
            counts && is_eligible(constraint, verdict) && constraint.selects(&other.labels)
        })
    }

    /// `delta`: the number of matching pods that a simulation added to the node, per constraint.
    pub(super) fn check(
        &self,
        snapshot: &Snapshot,
        pod: &PodInfo,
        node: NodeIndex,
        delta: &[i64],
    ) -> Result<(), Rejection> {
        for (position, (constraint, counted)) in pod.hard_spread.iter().zip(&self.counted).enumerate() {
            let column = snapshot.columns.get(&constraint.topology_key);
            let Some(domain) = column.and_then(|column| column.domain(node)) else {
                return Err(Rejection::unresolvable(
                    Plugin::PodTopologySpread,
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let delta = delta.get(position).copied().unwrap_or(0);
            let present = counted.counts.get(domain as usize).copied().flatten();
            let here = present.unwrap_or(0) + delta;
            let fewest = counted.fewest_with(domain, present.map(|_| here), constraint.min_domains);
            if here + counted.selects_itself - fewest > constraint.max_skew {
                return Err(Rejection::resolvable(
                    Plugin::PodTopologySpread,
                    "node(s) didn't match pod topology spread constraints",
                ));
            }
        }
        Ok(())
    }
}

impl Counted {
    fn new(counts: Vec<Option<i64>>, selects_itself: bool) -> Self {
        let mut fewest = (None, i64::from(i32::MAX));
        let mut second_fewest = i64::from(i32::MAX);
        let mut domains = 0;
        for (domain, count) in counts.iter().enumerate() {
            let Some(count) = *count else { continue };
            domains += 1;
            if count < fewest.1 {
                second_fewest = fewest.1;
                fewest = (Domain::try_from(domain).ok(), count);
            } else if count < second_fewest {
                second_fewest = count;
            }
        }
        Self { counts, domains, fewest, second_fewest, selects_itself: selects_itself.into() }
    }

    /// The number of pods in the domain with the fewest, if `domain` has `here` pods.
    fn fewest_with(&self, domain: Domain, here: Option<i64>, min_domains: i64) -> i64 {
        if self.domains < min_domains {
            return 0;
        }
        let elsewhere = if self.fewest.0 == Some(domain) { self.second_fewest } else { self.fewest.1 };
        here.map_or(self.fewest.1, |here| here.min(elsewhere))
    }
}
