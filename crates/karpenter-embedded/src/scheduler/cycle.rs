//! One scheduling cycle of one pod: finds the feasible nodes and selects the best one, or returns the reason why there
//! is none.
//!
//! Among nodes with equal scores kube-scheduler chooses at random; this scheduler takes the first by name, so that the
//! result is deterministic. kube-scheduler evaluates a share of the nodes of a large cluster; this scheduler evaluates
//! all.
//!
//! Upstream: pkg/scheduler/schedule_one.go

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::affinity::{AffinityDelta, AffinityState, queries as affinity_queries};
use super::node::{Load, NodeFacts, Verdict};
use super::pod::PodInfo;
use super::preemption::{Preemption, preempt};
use super::score::{best_of, default_spread};
use super::snapshot::Snapshot;
use super::spread::{SpreadState, query_of};
use super::tables::{NodeIndex, PodQuery};
use super::verdict::{Decision, Failure, Histogram, NO_NODES, Plugin, Rejection};
use super::volumes::{PreFilterError, VolumeState};

/// The state that is computed once per cycle (PreFilter).
pub(super) struct Cycle<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) pod: &'a PodInfo,
    pub(super) verdicts: &'a [Verdict],
    volumes: VolumeState,
    spread: Option<SpreadState>,
    affinity: Option<AffinityState>,
}

/// Pods that a preemption simulation adds to or removes from one node.
#[derive(Debug, Clone, Default)]
pub(super) struct Delta {
    spread: Vec<i64>,
    affinity: AffinityDelta,
    exclusive_claims: i64,
}

/// Decides about a pending pod. Nothing in the snapshot changes except its caches.
pub fn schedule_one(snapshot: &mut Snapshot, pod: &PodInfo) -> Decision {
    match attempt(snapshot, pod) {
        Ok((cycle, best)) => {
            let facts = best.first().and_then(|index| cycle.snapshot.nodes[*index].facts.as_ref());
            facts.map_or_else(|| Decision::Failed { message: NO_NODES.to_owned() }, |facts| cycle.bind(facts))
        }
        Err(decision) => decision,
    }
}

/// The nodes with the highest score, by name, among which kube-scheduler chooses at random. Empty if no node is
/// feasible.
pub fn best_nodes(snapshot: &mut Snapshot, pod: &PodInfo) -> Vec<Arc<str>> {
    let Ok((cycle, best)) = attempt(snapshot, pod) else { return Vec::new() };
    let facts = best.iter().filter_map(|index| cycle.snapshot.nodes[*index].facts.as_ref());
    facts.map(|facts| facts.name.clone()).collect()
}

/// The nodes with the highest score, or the decision if none is feasible.
fn attempt<'a>(
    snapshot: &'a mut Snapshot,
    pod: &'a PodInfo,
) -> Result<(Cycle<'a>, Vec<NodeIndex>), Decision> {
    if snapshot.node_count() == 0 {
        let failure = Failure { plugins: BTreeSet::new(), message: NO_NODES.to_owned() };
        return Err(Decision::Unschedulable { failure, gives_up_nomination: true });
    }
    prepare_tables(snapshot, pod);
    let snapshot = &*snapshot;
    let verdicts = snapshot.verdicts.get(&pod.placement).map(Vec::as_slice).unwrap_or_default();
    let named = wanted_names(pod).map_err(|rejection| fail_everywhere(snapshot, &rejection))?;
    let volumes = VolumeState::prepare(snapshot, pod).map_err(|obstacle| match obstacle {
        PreFilterError::Rejected(rejection) => fail_everywhere(snapshot, &rejection),
        PreFilterError::Error(message) => Decision::Failed { message },
    })?;
    let cycle = Cycle {
        snapshot,
        pod,
        verdicts,
        volumes,
        spread: SpreadState::prepare(snapshot, pod, verdicts),
        affinity: AffinityState::prepare(snapshot, pod),
    };
    if let Some(nominated) = pod.nominated_node.as_ref().and_then(|name| snapshot.live_node(name)) {
        let entry = &snapshot.nodes[nominated];
        if let Some(facts) = &entry.facts
            && cycle.filter(nominated, facts, &entry.load, &Delta::default()).is_ok()
        {
            return Ok((cycle, vec![nominated]));
        }
    }
    let mut feasible: Vec<NodeIndex> = Vec::new();
    let mut rejected: Vec<(NodeIndex, Rejection)> = Vec::new();
    let mut unnamed = 0;
    for (index, entry, facts) in snapshot.live_nodes() {
        if named.as_ref().is_some_and(|names| !names.contains(&facts.name)) {
            unnamed += 1;
            continue;
        }
        match cycle.filter(index, facts, &entry.load, &Delta::default()) {
            Ok(()) => feasible.push(index),
            Err(rejection) => rejected.push((index, rejection)),
        }
    }
    if !feasible.is_empty() {
        let best = best_of(&cycle, feasible);
        return Ok((cycle, best));
    }
    let mut histogram = Histogram::default();
    for (_, rejection) in &rejected {
        histogram.add(rejection);
    }
    histogram.add_times("node(s) didn't satisfy plugin(s) [NodeAffinity]".into(), unnamed);
    let mut plugins: BTreeSet<Plugin> =
        rejected.iter().filter_map(|(_, rejection)| rejection.plugin).collect();
    if named.is_some() {
        plugins.insert(Plugin::NodeAffinity);
    }
    let message = histogram.message(snapshot.node_count());
    Err(conclude(preempt(&cycle, &rejected), message, plugins))
}

/// The decision if the pod is rejected before nodes are filtered. Preemption is not attempted: in kube-scheduler the
/// plugin for dynamic resources runs first, does not find its state, and appends "not found" to the message.
fn fail_everywhere(snapshot: &Snapshot, rejection: &Rejection) -> Decision {
    let message = format!("0/{} nodes are available: {}. not found", snapshot.node_count(), rejection.first);
    let failure = Failure { plugins: rejection.plugin.into_iter().collect(), message };
    Decision::Unschedulable { failure, gives_up_nomination: false }
}

fn conclude(outcome: Preemption, message: String, plugins: BTreeSet<Plugin>) -> Decision {
    match outcome {
        Preemption::Of { node, victims } => {
            Decision::Nominate { node, victims, failure: Failure { plugins, message } }
        }
        Preemption::Useless { why, gives_up_nomination } => {
            // Before preemption kube-scheduler checks whether deallocating dynamic resources would help; there are
            // none.
            let message = format!("{message} no new claims to deallocate, preemption: {why}");
            Decision::Unschedulable { failure: Failure { plugins, message }, gives_up_nomination }
        }
    }
}

/// The names of the nodes to which required node affinity restricts the pod. `None` if it does not select nodes by
/// name.
fn wanted_names(pod: &PodInfo) -> Result<Option<BTreeSet<Arc<str>>>, Rejection> {
    let Some(terms) = pod.placement.required.as_ref().filter(|terms| !terms.is_empty()) else {
        return Ok(None);
    };
    let mut wanted = BTreeSet::new();
    for term in terms {
        match &term.wanted_names {
            Some(names) => wanted.extend(names.iter().cloned()),
            None => return Ok(None),
        }
    }
    if wanted.is_empty() {
        return Err(Rejection::unresolvable(Plugin::NodeAffinity, "pod affinity terms conflict"));
    }
    Ok(Some(wanted))
}

fn prepare_tables(snapshot: &mut Snapshot, pod: &PodInfo) {
    snapshot.ensure_verdicts(&pod.placement);
    let defaults = default_spread(snapshot, pod);
    let spread = pod.hard_spread.iter().chain(&pod.soft_spread).chain(&defaults);
    let mut queries: Vec<PodQuery> = Vec::new();
    let mut keys: BTreeSet<Arc<str>> = BTreeSet::new();
    for constraint in spread {
        queries.extend(query_of(pod, constraint));
        keys.insert(constraint.topology_key.clone());
    }
    queries.extend(affinity_queries(snapshot, pod));
    for (_, term) in &pod.preferred_affinity {
        queries.extend(PodQuery::affinity(std::iter::once(term), &snapshot.namespaces));
        keys.insert(term.topology_key.clone());
    }
    let own = pod.required_affinity.iter().chain(&pod.required_anti_affinity);
    let others = snapshot.anti_affinity.iter().chain(snapshot.scored_affinity.iter()).map(|(term, _)| term);
    keys.extend(own.chain(others).map(|term| term.topology_key.clone()));
    keys.extend(snapshot.nominated_topology_keys());
    for query in &queries {
        snapshot.ensure_tally(query);
    }
    for key in &keys {
        snapshot.ensure_column(key);
    }
}

impl Cycle<'_> {
    /// Whether the pod fits on the node, both without and with the pods of at least its priority that are nominated to
    /// the node.
    pub(super) fn filter(
        &self,
        index: NodeIndex,
        facts: &NodeFacts,
        load: &Load,
        delta: &Delta,
    ) -> Result<(), Rejection> {
        let mut expected = self.snapshot.nominated_on(&facts.name).filter(|other| {
            other.priority >= self.pod.priority && other.uid != self.pod.uid && other.key != self.pod.key
        });
        if let Some(first) = expected.next() {
            let mut load = load.clone();
            let mut delta = delta.clone();
            for other in std::iter::once(first).chain(expected) {
                load.add(other);
                self.change(&mut delta, other, index, facts, 1);
            }
            self.filter_as_is(index, facts, &load, &delta)?;
        }
        self.filter_as_is(index, facts, load, delta)
    }

    fn filter_as_is(
        &self,
        index: NodeIndex,
        facts: &NodeFacts,
        load: &Load,
        delta: &Delta,
    ) -> Result<(), Rejection> {
        let (pod, verdict) = (self.pod, &self.verdicts[index]);
        if !verdict.schedulable {
            return Err(Rejection::unresolvable(Plugin::NodeUnschedulable, "node(s) were unschedulable"));
        }
        if pod.requested_node.as_ref().is_some_and(|name| *name != facts.name) {
            let reason = "node(s) didn't match the requested node name";
            return Err(Rejection::unresolvable(Plugin::NodeName, reason));
        }
        if !verdict.tolerated {
            return Err(Rejection::unresolvable(Plugin::TaintToleration, "node(s) had untolerated taint(s)"));
        }
        if !verdict.affine {
            let reason = "node(s) didn't match Pod's node affinity/selector";
            return Err(Rejection::unresolvable(Plugin::NodeAffinity, reason));
        }
        if !pod.host_ports.is_empty() {
            let mut used = load.pods.iter().flat_map(|other| &other.host_ports);
            if used.any(|used| pod.host_ports.iter().any(|port| port.conflicts_with(used))) {
                let reason = "node(s) didn't have free ports for the requested pod ports";
                return Err(Rejection::resolvable(Plugin::NodePorts, reason));
            }
        }
        fits(pod, facts, load)?;
        self.volumes.check_restrictions(pod, load, delta.exclusive_claims)?;
        self.volumes.check_limits(self.snapshot, pod, facts, load)?;
        if !pod.claims.is_empty() {
            self.volumes.check_binding(self.snapshot, facts)?;
            self.volumes.check_zones(&facts.labels)?;
        }
        if let Some(spread) = &self.spread {
            spread.check(self.snapshot, pod, index, &delta.spread)?;
        }
        if let Some(affinity) = &self.affinity {
            affinity.check(self.snapshot, pod, index, &delta.affinity)?;
        }
        Ok(())
    }

    /// Records that a simulation adds a pod to the node or, with a negative sign, removes it.
    pub(super) fn change(
        &self,
        delta: &mut Delta,
        other: &PodInfo,
        index: NodeIndex,
        facts: &NodeFacts,
        sign: i64,
    ) {
        if let Some(spread) = &self.spread {
            delta.spread.resize(self.pod.hard_spread.len(), 0);
            let counts = spread.weight_of(self.pod, other, facts, &self.verdicts[index]);
            for (sum, counts) in delta.spread.iter_mut().zip(counts) {
                *sum += sign * i64::from(counts);
            }
        }
        if let Some(affinity) = &self.affinity {
            affinity.change(&mut delta.affinity, self.snapshot, self.pod, other, facts, sign);
        }
        if self.volumes.restricts() && other.key.namespace == self.pod.key.namespace {
            let shared = other.claims.iter().filter(|claim| !claim.ephemeral);
            let shared = shared.filter(|claim| self.volumes.exclusive.contains(&claim.name)).count();
            delta.exclusive_claims += sign * shared as i64;
        }
    }

    fn bind(&self, facts: &NodeFacts) -> Decision {
        let volumes = if self.pod.claims.is_empty() {
            Default::default()
        } else {
            self.volumes.check_binding(self.snapshot, facts).unwrap_or_default()
        };
        Decision::Bind { node: facts.name.clone(), volumes }
    }
}

/// Whether the node has enough free resources for the pod; if not, the rejection names those that are insufficient.
fn fits(pod: &PodInfo, facts: &NodeFacts, load: &Load) -> Result<(), Rejection> {
    let mut lacking: Vec<Cow<'static, str>> = Vec::new();
    let mut resolvable = true;
    if load.pods.len() as i64 + 1 > facts.pods_max {
        lacking.push("Too many pods".into());
    }
    let wanted = &pod.requests.total;
    if !wanted.is_empty() {
        let (there, taken) = (&facts.allocatable, &load.requested);
        let mut check = |wanted: i64, there: i64, taken: i64, reason: &dyn Fn() -> Cow<'static, str>| {
            if wanted > 0 && wanted > there.saturating_sub(taken) {
                lacking.push(reason());
                resolvable &= wanted <= there;
            }
        };
        check(wanted.cpu_milli, there.cpu_milli, taken.cpu_milli, &|| "Insufficient cpu".into());
        check(wanted.memory_bytes, there.memory_bytes, taken.memory_bytes, &|| "Insufficient memory".into());
        check(
            wanted.ephemeral_storage_bytes,
            there.ephemeral_storage_bytes,
            taken.ephemeral_storage_bytes,
            &|| "Insufficient ephemeral-storage".into(),
        );
        for (name, amount) in &wanted.scalars {
            let reason = || format!("Insufficient {name}").into();
            check(*amount, there.scalar(name), taken.scalar(name), &reason);
        }
    }
    let mut lacking = lacking.into_iter();
    match lacking.next() {
        None => Ok(()),
        Some(first) => Err(Rejection {
            plugin: Some(Plugin::NodeResourcesFit),
            resolvable,
            first,
            more: lacking.collect(),
        }),
    }
}

/// Whether the pod would fit on the node if it had no pods.
pub(super) fn fits_when_empty(pod: &PodInfo, facts: &NodeFacts) -> bool {
    fits(pod, facts, &Load::default()).is_ok()
}
