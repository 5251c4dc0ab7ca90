//! Turns the ledger (the mutable state of a planning run) into the plan: instance type options, prices, and the pods of
//! each node.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::plan::{ExistingPlacement, Place, Plan, PlanStats, PlannedNode, PodRun, Unschedulable};
use karpenter_model::problem::{MinValuesPolicy, Mode};
use karpenter_model::reason::{Reason, Refusal, Scope};

use crate::classes::QueueRun;
use crate::explain;
use crate::ledger::{Claim, Ledger};
use crate::sequence::{Event, Target};
use crate::states::StateType;

/// The maximum number of instance type options of a NodeClaim.
pub(crate) const INSTANCE_TYPES_MAX: usize = 600;

/// Assigns concrete pods to the counts of a class, in queue order.
pub(crate) struct PodAllocator {
    next: Vec<(usize, u32)>,
}

impl PodAllocator {
    pub(crate) fn new(classes: usize) -> Self {
        Self { next: vec![(0, 0); classes] }
    }

    pub(crate) fn take(&mut self, ledger: &Ledger, class: usize, mut count: u32, into: &mut Vec<PodRun>) {
        let pods = &ledger.classes.classes[class].pods;
        let (segment, offset) = &mut self.next[class];
        while count > 0 {
            let Some(run) = pods.get(*segment) else { return };
            let taken = count.min(run.count - *offset);
            into.push(PodRun { group: run.group, start: run.start + *offset, count: taken });
            *offset += taken;
            count -= taken;
            if *offset == run.count {
                *segment += 1;
                *offset = 0;
            }
        }
    }
}

pub(crate) fn plan(ledger: &mut Ledger, left: &[QueueRun]) -> Plan {
    if !ledger.prepared.reservations.is_empty()
        && let Some(claims) = ledger.with_slots(&ledger.claims)
    {
        ledger.claims = claims;
    }
    let mut allocator = PodAllocator::new(ledger.classes.classes.len());
    let mut plan = Plan::default();
    let mut on_nodes: BTreeMap<usize, Vec<PodRun>> = BTreeMap::new();
    let mut on_claims: Vec<Vec<PodRun>> = vec![Vec::new(); ledger.claims.len()];
    let mut order: Vec<(PodRun, Target)> = Vec::new();
    let (counted, deferred): (Vec<Event>, Vec<Event>) =
        ledger.log.iter().partition(|event| !event.is_deferred);
    for event in counted.into_iter().chain(deferred) {
        let mut pods = Vec::new();
        allocator.take(ledger, ledger.classes.variants[event.variant].class, event.count, &mut pods);
        order.extend(pods.iter().map(|run| (*run, event.target)));
        match event.target {
            Target::Node(node) => on_nodes.entry(ledger.nodes[node].facts.id).or_default().append(&mut pods),
            Target::Claim(claim) => on_claims[claim].append(&mut pods),
        }
    }
    for (node, pods) in on_nodes.into_iter().filter(|(_, pods)| !pods.is_empty()) {
        plan.existing.push(ExistingPlacement { node, pods: joined(pods) });
    }
    let mut dropped: Vec<(PodRun, Refusal)> = Vec::new();
    let mut index_of_claim: Vec<Option<usize>> = Vec::new();
    for (claim, pods) in ledger.claims.iter().zip(on_claims) {
        match planned_node(ledger, claim, joined(pods)) {
            Ok(node) => {
                plan.price_per_hour += node.price_per_hour;
                index_of_claim.push(Some(plan.new_nodes.len()));
                plan.new_nodes.push(node);
            }
            Err((pods, refusal)) => {
                index_of_claim.push(None);
                dropped.extend(pods.into_iter().map(|run| (run, refusal.clone())));
            }
        }
    }
    plan.order = order
        .into_iter()
        .filter_map(|(run, target)| match target {
            Target::Node(node) => Some((run, Place::Existing(ledger.nodes[node].facts.id))),
            Target::Claim(claim) => index_of_claim[claim].map(|index| (run, Place::New(index))),
        })
        .collect();
    for run in left {
        let mut pods = Vec::new();
        allocator.take(ledger, run.class, run.count, &mut pods);
        let reasons = explain::reasons(ledger, run.class);
        plan.unschedulable
            .extend(pods.into_iter().map(|pods| Unschedulable { pods, reasons: reasons.clone() }));
    }
    plan.unschedulable
        .extend(dropped.into_iter().map(|(pods, refusal)| Unschedulable { pods, reasons: vec![refusal] }));
    for (pods, refusal) in &ledger.classes.refused {
        let reasons = refusal.iter().cloned().map(|reason| Refusal { scope: Scope::Pod, reason }).collect();
        plan.unschedulable.push(Unschedulable { pods: *pods, reasons });
    }
    plan.unschedulable.sort_by_key(|left| left.pods);
    plan.compat_price_per_hour = plan.price_per_hour;
    plan.stats =
        PlanStats { pods: ledger.classes.pod_count(), classes: ledger.classes.classes.len() as u32, work: 0 };
    plan
}

/// Sorts runs of consecutive pods and merges adjacent runs.
fn joined(mut runs: Vec<PodRun>) -> Vec<PodRun> {
    runs.sort_unstable();
    let mut joined: Vec<PodRun> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.group == run.group && last.start + last.count == run.start => {
                last.count += run.count
            }
            _ => joined.push(run),
        }
    }
    joined
}

/// Instance types that hold the pods of a planned node, cheapest first; equal prices are ordered by name.
pub(crate) fn options(ledger: &Ledger, claim: &Claim) -> Vec<StateType> {
    let state = ledger.states.get(claim.state);
    let mut options = ledger.survivors_of(claim);
    options.sort_by(|a, b| {
        let name = |entry: &StateType| &ledger.states.instance_type(state.template, entry.index).name;
        a.price.total_cmp(&b.price).then_with(|| name(a).cmp(name(b)))
    });
    // If the offerings of an instance type differ in allocatable resources, the type is one option, at the lowest
    // price.
    let types = &ledger.prepared.templates[state.template].types;
    if options.iter().any(|entry| types[entry.index].offerings.is_some()) {
        let mut seen = BTreeSet::new();
        options.retain(|entry| seen.insert(types[entry.index].index));
    }
    options
}

/// In cost mode, drops expensive instance type options of a spot node as long as enough options remain. A spot launch
/// weighs capacity against price, so it could launch an expensive option; an on-demand launch uses the cheapest
/// available one.
fn trim_expensive_options(ledger: &Ledger, claim: &Claim, options: &mut Vec<StateType>) {
    let settings = &ledger.options;
    let template = ledger.states.get(claim.state).template;
    if settings.mode == Mode::Compat || ledger.prepared.templates[template].has_min_values {
        return;
    }
    let types = &ledger.prepared.templates[template].types;
    let is_spot = |entry: &StateType| types[entry.index].offering_flags[entry.offering as usize].is_spot;
    if let Some(first) = options.first().filter(|first| is_spot(first)) {
        let price_max = first.price * settings.max_option_price_factor;
        let within = options.iter().take_while(|entry| entry.price <= price_max).count();
        options.truncate(within.max(settings.min_spot_types).max(1));
    }
}

fn planned_node(
    ledger: &Ledger,
    claim: &Claim,
    pods: Vec<PodRun>,
) -> Result<PlannedNode, (Vec<PodRun>, Refusal)> {
    let state = ledger.states.get(claim.state);
    let template = &ledger.prepared.templates[state.template];
    let pool = template.pool;
    let mut options = options(ledger, claim);
    options.truncate(INSTANCE_TYPES_MAX);
    trim_expensive_options(ledger, claim, &mut options);
    let refuse = |pods, reason| {
        let scope = Scope::NodePool(ledger.problem.pools[pool].name.clone());
        Err((pods, Refusal { scope, reason }))
    };
    let strict = ledger.options.min_values_policy == MinValuesPolicy::Strict;
    if template.has_min_values
        && strict
        && let Some((key, wanted, found)) = ledger.unmet_min_values(claim.state, &options)
    {
        return refuse(pods, Reason::MinValues { key, wanted, found });
    }
    let Some(cheapest) = options.first().copied() else {
        let waits = !state.reserved.is_empty();
        return refuse(pods, if waits { Reason::ReservationFull } else { Reason::NotEnoughRoom });
    };
    let mut requirements = ledger.final_requirements(claim);
    let is_lowered = template.has_min_values && ledger.lower_min_values(claim, &options, &mut requirements);
    let mut requests = ledger.list(&claim.used);
    let overheads: Vec<_> =
        options.iter().map(|entry| &template.types[entry.index].daemon_requests).collect();
    if let Some(first) = overheads.first() {
        for (name, _) in first.iter() {
            let least = overheads.iter().map(|overhead| overhead.get(name)).min().unwrap_or(0);
            requests.set(name.clone(), requests.get(name).saturating_add(least));
        }
    }
    Ok(PlannedNode {
        pool,
        instance_type: template.types[cheapest.index].index,
        offering: cheapest.offering as usize,
        price_per_hour: cheapest.price,
        instance_type_options: options.iter().map(|entry| template.types[entry.index].index).collect(),
        requirements,
        requests,
        pods,
        min_values_relaxed: claim.min_values_relaxed || is_lowered,
    })
}
