//! The limit of a hard hostname spread is the number of its pods that one node may hold: `maxSkew`, or the NodePool's
//! share (a percentage) of all pods that the spread counts, rounded up, whichever is more.
//!
//! Compat mode places at most `maxSkew` pods of a spread per node, so the limit matters only for nodes shared by spread
//! pods (`share`) and for the lower bound. The validator computes the limit with code of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;
use karpenter_model::spread_share::SpreadShare;
use rustc_hash::FxHashMap;

use super::items::Item;
use crate::ledger::Ledger;
use crate::topology::{GroupId, Kind as GroupKind};

/// The limit of a spread that counts `counted` pods.
pub(crate) fn limit(share: SpreadShare, max_skew: u32, counted: u64) -> u32 {
    let part = counted.saturating_mul(u64::from(share.percent())).div_ceil(100);
    max_skew.max(u32::try_from(part).unwrap_or(u32::MAX))
}

/// The percentage of a spread's pods that one node of this NodePool template may hold.
pub(crate) fn share(ledger: &Ledger, template: usize) -> SpreadShare {
    let pool = &ledger.problem.pools[ledger.prepared.templates[template].pool];
    pool.hostname_spread_share.unwrap_or(ledger.options.hostname_spread_share)
}

/// For each hard hostname spread: how many pods it counts. The lower bound uses these numbers.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pods: BTreeMap<GroupId, Pods>,
    /// The largest spread share of any NodePool or existing node.
    widest: SpreadShare,
}

/// The number of pods that a spread counts.
#[derive(Debug, Clone, Copy, Default)]
struct Pods {
    all: u64,
    /// The largest number of these pods on one node of the current fleet. kube-scheduler may have bound more pods there
    /// than the spread share allows, and such a node may stay.
    on_one_node: u32,
}

impl Counted {
    /// Counts the items (groups of interchangeable pods) and the bound pods. If `fleet` is given, the result is at
    /// least the number of bound and pending pods of that problem.
    pub(crate) fn of(ledger: &Ledger, items: &[Item], fleet: Option<&Problem>) -> Self {
        let mut pods: BTreeMap<GroupId, Pods> = BTreeMap::new();
        for item in items {
            for owned in &ledger.classes.variants[item.variant].owned {
                let is_spread = matches!(owned.kind, GroupKind::Spread { .. });
                if is_spread && owned.is_hostname && owned.is_required && owned.selects_itself {
                    pods.insert(owned.group, Pods::default());
                }
            }
        }
        let templates = (0..ledger.prepared.templates.len()).map(|template| share(ledger, template));
        let of_nodes = (!ledger.nodes.is_empty()).then_some(ledger.options.hostname_spread_share);
        let widest = templates.chain(of_nodes).max().unwrap_or_default();
        if pods.is_empty() {
            return Self { pods, widest };
        }
        for item in items {
            let class = &ledger.classes.classes[ledger.classes.variants[item.variant].class];
            for group in &class.matched {
                if let Some(pods) = pods.get_mut(group) {
                    pods.all += u64::from(item.count);
                }
            }
        }
        for node in ledger.present.iter() {
            for (group, bound) in &ledger.nodes[node].facts.matched {
                if let Some(pods) = pods.get_mut(group) {
                    pods.all += u64::from(*bound);
                }
            }
        }
        if let Some(fleet) = fleet {
            for (group, in_fleet) in in_fleet(ledger, fleet) {
                if let Some(pods) = pods.get_mut(&group) {
                    pods.all = pods.all.max(in_fleet.all);
                    pods.on_one_node = in_fleet.on_one_node;
                }
            }
        }
        Self { pods, widest }
    }

    /// How many of the counted pods a node with this spread share may hold; `u32::MAX` if the limit is not below the
    /// number of pods.
    pub(crate) fn limit(&self, group: GroupId, max_skew: u32, share: SpreadShare) -> u32 {
        let Some(pods) = self.pods.get(&group) else { return u32::MAX };
        let limit = limit(share, max_skew, pods.all).max(pods.on_one_node);
        if u64::from(limit) < pods.all { limit } else { u32::MAX }
    }

    /// Like [`Counted::limit`], with the largest spread share of any NodePool.
    pub(crate) fn widest_limit(&self, group: GroupId, max_skew: u32) -> u32 {
        self.limit(group, max_skew, self.widest)
    }
}

/// For each topology group: the pods of `fleet` that it selects.
fn in_fleet(ledger: &Ledger, fleet: &Problem) -> BTreeMap<GroupId, Pods> {
    let mut groups: FxHashMap<*const PodSpec, Vec<GroupId>> = FxHashMap::default();
    let mut matching = |spec: &Arc<PodSpec>| {
        let find = || ledger.topology.matching(&spec.namespace, &spec.labels);
        groups.entry(Arc::as_ptr(spec)).or_insert_with(find).clone()
    };
    let mut all: BTreeMap<GroupId, Pods> = BTreeMap::new();
    for node in &fleet.nodes {
        let mut here: BTreeMap<GroupId, u32> = BTreeMap::new();
        for pod in node.pods.iter().filter(|pod| !pod.is_terminating) {
            matching(&pod.spec).into_iter().for_each(|group| *here.entry(group).or_insert(0) += 1);
        }
        for (group, count) in here {
            let pods = all.entry(group).or_default();
            pods.all += u64::from(count);
            pods.on_one_node = pods.on_one_node.max(count);
        }
    }
    for waiting in &fleet.pods {
        for group in matching(&waiting.spec) {
            all.entry(group).or_default().all += u64::from(waiting.count());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_rounded_up_and_never_below_max_skew() {
        let of = |percent: u8, max_skew: u32, counted: u64| {
            limit(SpreadShare::from_percent(percent).unwrap_or_default(), max_skew, counted)
        };
        assert_eq!(of(10, 1, 3), 1, "three replicas, three nodes");
        assert_eq!(of(10, 1, 500), 50, "five hundred, ten nodes");
        assert_eq!(of(10, 1, 15), 2, "1.5 is rounded up");
        assert_eq!(of(10, 3, 9), 3, "maxSkew is more");
        assert_eq!(of(0, 2, 1_000_000), 2, "upstream's reading");
        assert_eq!(of(100, 1, 7), 7, "all of them");
    }
}
