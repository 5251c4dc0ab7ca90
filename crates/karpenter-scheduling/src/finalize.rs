//! From the ledger to the plan: instance-type options, prices, and which pod sits where.

use karpenter_model::plan::{ExistingPlacement, Plan, PlanStats, PlannedNode, PodRun, Unschedulable};
use karpenter_model::problem::MinValuesPolicy;
use karpenter_model::reason::{Reason, Refusal, Scope};

use crate::classes::QueueRun;
use crate::explain;
use crate::ledger::{Claim, Ledger};
use crate::states::StateType;

/// A claim asks for at most this many instance types.
pub(crate) const MAX_INSTANCE_TYPES: usize = 600;

/// Hands out the pods of each class in queue order.
pub(crate) struct Dealer {
    next: Vec<(usize, u32)>,
}

impl Dealer {
    pub(crate) fn new(classes: usize) -> Self {
        Self { next: vec![(0, 0); classes] }
    }

    pub(crate) fn take(&mut self, ledger: &Ledger<'_>, class: usize, mut count: u32, into: &mut Vec<PodRun>) {
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

pub(crate) fn plan(ledger: &mut Ledger<'_>, left: &[QueueRun]) -> Plan {
    let mut dealer = Dealer::new(ledger.classes.classes.len());
    let mut plan = Plan::default();
    for (node, slot) in ledger.nodes.iter().enumerate() {
        let mut pods = Vec::new();
        for (variant, count) in &slot.content {
            dealer.take(ledger, ledger.classes.variants[*variant].class, *count, &mut pods);
        }
        if !pods.is_empty() {
            plan.existing.push(ExistingPlacement { node, pods });
        }
    }
    let mut dropped: Vec<(PodRun, Refusal)> = Vec::new();
    for claim in &ledger.claims {
        let mut pods = Vec::new();
        for (variant, _, count) in &claim.content {
            dealer.take(ledger, ledger.classes.variants[*variant].class, *count, &mut pods);
        }
        match planned_node(ledger, claim, pods) {
            Ok(node) => {
                plan.price_per_hour += node.price_per_hour;
                plan.new_nodes.push(node);
            }
            Err((pods, refusal)) => dropped.extend(pods.into_iter().map(|run| (run, refusal.clone()))),
        }
    }
    for run in left {
        let mut pods = Vec::new();
        dealer.take(ledger, run.class, run.count, &mut pods);
        let reasons = explain::reasons(ledger, run.class);
        plan.unschedulable
            .extend(pods.into_iter().map(|pods| Unschedulable { pods, reasons: reasons.clone() }));
    }
    plan.unschedulable
        .extend(dropped.into_iter().map(|(pods, refusal)| Unschedulable { pods, reasons: vec![refusal] }));
    for pods in &ledger.classes.refused {
        let refusal = ledger.problem.pods[pods.group as usize].spec.refusal.clone();
        let reasons = refusal.into_iter().map(|reason| Refusal { scope: Scope::Pod, reason }).collect();
        plan.unschedulable.push(Unschedulable { pods: *pods, reasons });
    }
    plan.unschedulable.sort_by_key(|left| left.pods);
    plan.compat_price_per_hour = plan.price_per_hour;
    plan.stats = PlanStats {
        pods: ledger.problem.pods.iter().map(|group| u64::from(group.count())).sum(),
        classes: ledger.classes.classes.len() as u32,
        work: 0,
    };
    plan
}

/// Types that hold a claim's content, cheapest first, names breaking ties.
pub(crate) fn options(ledger: &Ledger<'_>, claim: &Claim) -> Vec<StateType> {
    let state = ledger.states.get(claim.state);
    let mut options = ledger.survivors_of(claim);
    options.sort_by(|a, b| {
        let name = |entry: &StateType| &ledger.states.instance_type(state.template, entry.index).name;
        a.price.total_cmp(&b.price).then_with(|| name(a).cmp(name(b)))
    });
    options
}

fn planned_node(
    ledger: &Ledger<'_>,
    claim: &Claim,
    pods: Vec<PodRun>,
) -> Result<PlannedNode, (Vec<PodRun>, Refusal)> {
    let state = ledger.states.get(claim.state);
    let template = &ledger.prepared.templates[state.template];
    let pool = template.pool;
    let mut options = options(ledger, claim);
    options.truncate(MAX_INSTANCE_TYPES);
    let refuse = |pods, reason| {
        let scope = Scope::NodePool(ledger.problem.pools[pool].name.clone());
        Err((pods, Refusal { scope, reason }))
    };
    let strict = ledger.problem.options.min_values_policy == MinValuesPolicy::Strict;
    if template.has_min_values
        && strict
        && let Some((key, wanted, found)) = ledger.unmet_min_values(claim.state, &options)
    {
        return refuse(pods, Reason::MinValues { key, wanted, found });
    }
    let Some(cheapest) = options.first().copied() else {
        return refuse(pods, Reason::NotEnoughRoom);
    };
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
        requirements: state.requirements.clone(),
        requests,
        pods,
        min_values_relaxed: claim.min_values_relaxed,
    })
}
