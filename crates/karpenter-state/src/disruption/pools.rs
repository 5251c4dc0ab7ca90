//! Converts NodePools for disruption: their rules, what their budgets currently allow, and their annotations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_api::budget::{BudgetError, try_allowed_disruptions};
use karpenter_api::labels::{ANNOTATION_TTL_UNTIL_EXPIRED, provisioner_of};
use karpenter_api::types::{ConditionStatus, ConsolidationPolicy as RawPolicy, DisruptionReason, NodePool};
use karpenter_disruption::cluster::{
    ConsolidationPolicy, LegacyRules, NodePoolView, PoolPolicy, Reason, StateNode,
};
use karpenter_disruption::static_drift;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::requirements::Requirement;
use karpenter_model::resources::{NODES, ResourceList};
use rustc_hash::{FxHashMap, FxHashSet};

use super::DisruptionInput;
use crate::cluster_input::{ClusterInput, PoolInput};
use crate::controls::{ControlError, controls, seconds_up};
use crate::convert::pool::convert_pool;
use crate::intern::Interner;
use crate::workloads::name_of;

/// A budget of a NodePool that cannot be evaluated. Its intent is unknown, so no disruption is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "nodepool {pool}: spec.disruption.budgets: {error}; until it is corrected, no node of the nodepool is disrupted"
)]
pub struct PoolBudgetError {
    pub pool: String,
    pub error: BudgetError,
}

/// Invalid annotations and budgets of NodePools.
#[derive(Debug, Default)]
pub(super) struct Unusable {
    pub(super) controls: Vec<ControlError>,
    pub(super) budgets: Vec<PoolBudgetError>,
}

pub(super) struct Pools<'a> {
    by_name: BTreeMap<&'a str, Known<'a>>,
    /// The label keys for which the NodePool's template may have no value.
    open: BTreeSet<Arc<str>>,
}

struct Known<'a> {
    pool: &'a NodePool,
    launches_as: Option<usize>,
    types: &'a [InstanceType],
    type_names: FxHashSet<&'a str>,
    reservation_id_label: Option<&'a Arc<str>>,
}

impl<'a> Pools<'a> {
    pub(super) fn new(cluster: &'a ClusterInput, input: &'a DisruptionInput) -> Self {
        let launching = cluster.pools.iter().enumerate().map(|(index, one)| (Some(index), one));
        let others = input.other_pools.iter().map(|one| (None, one));
        let mut by_name = BTreeMap::new();
        for (launches_as, PoolInput { pool, instance_types }) in others.chain(launching) {
            let type_names = instance_types.iter().map(|one| &*one.name).collect();
            let mut offerings = instance_types.iter().flat_map(|one| &one.offerings);
            let reservation_id_label = offerings.find_map(|one| one.reservation_id_label.as_ref());
            let types = instance_types;
            let known = Known { pool, launches_as, types, type_names, reservation_id_label };
            by_name.insert(name_of(&pool.metadata), known);
        }
        let mut open: BTreeSet<Arc<str>> = labels::WELL_KNOWN.into_iter().map(Arc::from).collect();
        open.extend(cluster.well_known.iter().cloned());
        Self { by_name, open }
    }

    /// `consolidateAfter` in nanoseconds; `None` for unknown NodePools and those that never consolidate.
    pub(super) fn consolidate_after(&self, pool: &str) -> Option<i64> {
        consolidate_after(self.by_name.get(pool)?.pool)
    }

    /// Whether the NodePool was derived from a Provisioner.
    pub(super) fn has_legacy_rules(&self, pool: &str) -> bool {
        self.by_name.get(pool).is_some_and(|known| provisioner_of(&known.pool.metadata).is_some())
    }

    pub(super) fn has_type(&self, pool: &str, name: &str) -> bool {
        self.by_name.get(pool).is_some_and(|pool| pool.type_names.contains(name))
    }

    /// The label of reservation ids of the provider, if the NodePool could launch into a reservation.
    pub(super) fn reservation_id_label(&self, pool: &str) -> Option<&Arc<str>> {
        self.by_name.get(pool)?.reservation_id_label
    }

    pub(super) fn finish(
        self,
        state_nodes: &[StateNode],
        input: &DisruptionInput,
    ) -> (BTreeMap<Arc<str>, NodePoolView>, Unusable) {
        let counts = Counts::of(state_nodes);
        let mut unusable = Unusable::default();
        let pools = self.by_name.into_iter().map(|(name, known)| {
            let pool = known.pool;
            let (controls, wrong) = controls(pool);
            unusable.controls.extend(wrong);
            let allowed = allowed(pool, counts.nodes(name), input).unwrap_or_else(|error| {
                unusable.budgets.push(PoolBudgetError { pool: name.to_owned(), error });
                Reason::ALL.into_iter().map(|reason| (reason, 0)).collect()
            });
            let moved_last_hour = input.moved_last_hour.get(name).copied().unwrap_or(0);
            let disruption = pool.spec.disruption.as_ref();
            let is_in_launch_backoff = input.pools_in_launch_backoff.contains(name);
            let name: Arc<str> = name.into();
            let value = NodePoolView {
                name: name.clone(),
                launches_as: known.launches_as,
                replicas: pool.spec.replicas.map(|count| u32::try_from(count.max(0)).unwrap_or(u32::MAX)),
                nodes_left: nodes_left(pool, counts.claims(&name)),
                is_ready: known.launches_as.is_some() || is_ready(pool),
                policy: policy(disruption.and_then(|one| one.consolidation_policy.as_ref())),
                consolidate_after_secs: consolidate_after(pool).map(seconds_up),
                allowed,
                full_reservations: full_reservations(&known, &self.open),
                is_in_launch_backoff,
                pool_policy: PoolPolicy { moved_last_hour, ..controls },
                legacy_rules: legacy_rules(pool),
            };
            (name, value)
        });
        let pools = pools.collect();
        (pools, unusable)
    }
}

/// The number of claims, and the number of nodes that budgets count, by NodePool.
#[derive(Default)]
struct Counts<'a> {
    by_pool: FxHashMap<&'a str, (usize, usize)>,
}

impl<'a> Counts<'a> {
    fn of(state_nodes: &'a [StateNode]) -> Self {
        let mut counts = Self::default();
        for state_node in state_nodes {
            let Some(pool) = state_node.pool.as_deref() else { continue };
            let (claims, nodes) = counts.by_pool.entry(pool).or_default();
            *claims += 1;
            // A rebooting node is not initialized, but budgets still count it.
            let is_counted = state_node.is_initialized || state_node.is_rebooting;
            *nodes += usize::from(is_counted && !state_node.is_instance_terminating);
        }
        counts
    }

    fn claims(&self, pool: &str) -> usize {
        self.by_pool.get(pool).map_or(0, |(claims, _)| *claims)
    }

    fn nodes(&self, pool: &str) -> usize {
        self.by_pool.get(pool).map_or(0, |(_, nodes)| *nodes)
    }
}

/// `consolidateAfter` of a NodePool; if absent, the default of the API, which is zero.
fn consolidate_after(pool: &NodePool) -> Option<i64> {
    let after = pool.spec.disruption.as_ref().and_then(|disruption| disruption.consolidate_after.as_ref());
    after.map_or(Some(0), |after| after.nanos())
}

/// The TTLs of the Provisioner from which the NodePool is derived. They are read at every evaluation, because changes
/// apply to existing nodes.
fn legacy_rules(pool: &NodePool) -> Option<LegacyRules> {
    provisioner_of(&pool.metadata)?;
    let annotations = pool.metadata.annotations.as_ref();
    let expires = annotations.and_then(|all| all.get(ANNOTATION_TTL_UNTIL_EXPIRED));
    let raw_policy = pool.spec.disruption.as_ref().and_then(|one| one.consolidation_policy.as_ref());
    let is_by_time = policy(raw_policy) == ConsolidationPolicy::WhenEmpty;
    Some(LegacyRules {
        expires_after_secs: expires.and_then(|text| text.parse().ok()),
        empty_after_secs: consolidate_after(pool).filter(|_| is_by_time).map(seconds_up),
    })
}

/// The consolidation policy; an unknown one is treated as the one that disrupts least.
fn policy(raw: Option<&RawPolicy>) -> ConsolidationPolicy {
    match raw {
        None | Some(RawPolicy::WhenEmptyOrUnderutilized) => ConsolidationPolicy::WhenEmptyOrUnderutilized,
        Some(RawPolicy::Balanced) => ConsolidationPolicy::Balanced,
        Some(RawPolicy::WhenEmpty | RawPolicy::Other(_)) => ConsolidationPolicy::WhenEmpty,
    }
}

fn is_ready(pool: &NodePool) -> bool {
    let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is_true = conditions.iter().any(|one| one.type_ == "Ready" && one.status == ConditionStatus::True);
    is_true && pool.metadata.deletion_timestamp.is_none()
}

/// The number of nodes that the limit still allows. Terminating nodes count towards the limit until they are gone.
fn nodes_left(pool: &NodePool, claims: usize) -> Option<u32> {
    let limit = pool.spec.limits.as_ref()?.get(NODES)?;
    let left = limit.value_floor().saturating_sub(i64::try_from(claims).unwrap_or(i64::MAX));
    Some(u32::try_from(left.max(0)).unwrap_or(u32::MAX))
}

/// The reservations of a static NodePool that are full. Only static NodePools need this, because only they launch from
/// the template without requirements of pods.
fn full_reservations(known: &Known<'_>, open: &BTreeSet<Arc<str>>) -> Option<BTreeSet<Arc<str>>> {
    known.pool.spec.replicas?;
    let pool = convert_pool(known.pool, 0, ResourceList::new(), &mut Interner::default());
    let mut template = pool.requirements;
    for (key, value) in &pool.labels {
        template.add(Requirement::in_values(key.clone(), [value.clone()]));
    }
    static_drift::full_reservations(known.types, &template, open)
}

fn allowed(
    pool: &NodePool,
    nodes: usize,
    input: &DisruptionInput,
) -> Result<BTreeMap<Reason, u32>, BudgetError> {
    let budgets = pool.spec.disruption.as_ref().and_then(|disruption| disruption.budgets.as_deref());
    let of_reason = |reason: Reason| {
        let now = input.now.as_second();
        let budgets = budgets.unwrap_or_default();
        let allowed = try_allowed_disruptions(budgets, &raw_reason(reason), now, nodes)?;
        Ok((reason, u32::try_from(allowed).unwrap_or(0)))
    };
    Reason::ALL.into_iter().map(of_reason).collect()
}

fn raw_reason(reason: Reason) -> DisruptionReason {
    match reason {
        Reason::Unhealthy => DisruptionReason::Unhealthy,
        Reason::Empty => DisruptionReason::Empty,
        Reason::Drifted => DisruptionReason::Drifted,
        // Expiration is not a reason in budgets, so this value is not used.
        Reason::Underutilized | Reason::Expired => DisruptionReason::Underutilized,
    }
}
