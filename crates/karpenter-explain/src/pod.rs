//! Explains one pod: where it runs, where it will run, or why no NodePool can schedule it and what would change that.

pub(crate) mod chain;
pub(crate) mod fix;
pub(crate) mod lift;

use karpenter_model::problem::Problem;
use karpenter_model::reason::{Refusal, Scope as ModelScope};
use karpenter_scheduling::schedule;
use karpenter_view::{Chain, Fix, ObjectRef, Param, PodDocument, Reason, Resolution, Scope};

use self::chain::{PodChain, Step, StepCause, chain, left_over};
use self::fix::{FixWriter, not_ready_fix};
use self::lift::Lift;
use crate::claim;
use crate::format::{duration, quantity, time};
use crate::hints::{distance, hint};
use crate::input::{Excluded, ExcludedPool, ExplainInput, PodFacts, PodState};
use crate::outcome;
use crate::reasons::{of_refusal, reason};
use crate::{NotFound, meta};

/// Explains the pod with this namespace and name.
pub fn explain_pod(input: &ExplainInput, namespace: &str, name: &str) -> Result<PodDocument, NotFound> {
    let key = format!("{namespace}/{name}");
    let facts = input.facts.pods.get(&key);
    let found = find(&input.problem, namespace, name);
    let pod = ObjectRef::namespaced("Pod", namespace, name);
    let state = facts.map_or(PodState::Pending, |facts| facts.state.clone());
    match (state, found) {
        (PodState::Pending, Some((group, position))) => Ok(pending(input, pod, facts, group, position)),
        (PodState::Pending, None) if facts.is_none() => Err(NotFound { object: pod }),
        (state, _) => Ok(settled(input, pod, facts, &state)),
    }
}

fn find(problem: &Problem, namespace: &str, name: &str) -> Option<(usize, u32)> {
    problem.pods.iter().enumerate().find_map(|(index, group)| {
        if &*group.spec.namespace != namespace {
            return None;
        }
        (0..group.count()).find(|position| group.names.name(*position) == name).map(|at| (index, at))
    })
}

fn document(input: &ExplainInput, pod: ObjectRef, facts: Option<&PodFacts>, phase: &str) -> PodDocument {
    PodDocument {
        meta: meta(input),
        owner: facts.map(|facts| facts.owner.clone()).filter(|owner| owner.kind != "Pod"),
        pod,
        replicas: 1,
        phase: phase.to_owned(),
        since: facts.and_then(|facts| facts.created_secs).map(time),
        node: None,
        summary: String::new(),
        resolution: Resolution::ok(),
        requests: Default::default(),
        scopes: Vec::new(),
        chain: Chain::default(),
        plan: None,
        node_claim: None,
    }
}

/// The document of a pod for which no node is planned.
fn settled(input: &ExplainInput, pod: ObjectRef, facts: Option<&PodFacts>, state: &PodState) -> PodDocument {
    let phase = match state {
        PodState::Pending => "Pending",
        PodState::Gated => "Gated",
        PodState::Nominated { .. } => "Nominated",
        PodState::Bound { .. } => "Bound",
        PodState::Terminating => "Terminating",
        PodState::Finished => "Finished",
    };
    let mut document = document(input, pod, facts, phase);
    let waited = waited(input, facts);
    match state {
        PodState::Pending => {
            document.summary = format!("pending{waited}, and not planned: see the notes");
            document.resolution = Resolution::blocked();
        }
        PodState::Gated => {
            document.summary = format!("pending{waited}, a scheduling gate holds it back");
            document.resolution = Resolution::blocked();
        }
        PodState::Bound { node } => {
            document.summary = format!("runs on node {node}");
            document.node = Some(node.clone());
        }
        PodState::Terminating => {
            document.summary = "is being deleted".to_owned();
            document.resolution = Resolution::in_progress(None);
        }
        PodState::Finished => document.summary = "has finished".to_owned(),
        PodState::Nominated { node } => {
            document.summary = format!("pending{waited}, nominated for {node}");
            document.node = Some(node.clone());
            let claim = claim::of_node(input, node);
            document.resolution = match &claim {
                Some(claim) => claim.resolution.clone(),
                None => Resolution::in_progress(None),
            };
            if let Some(claim) = &claim {
                document.summary =
                    format!("pending{waited}, nominated for NodeClaim {}: {}", claim.name, claim.summary);
            }
            document.node_claim = claim.map(Box::new);
        }
    }
    document
}

fn waited(input: &ExplainInput, facts: Option<&PodFacts>) -> String {
    let since = facts.and_then(|facts| facts.created_secs);
    match (since, input.now_secs) {
        (Some(since), Some(now)) => format!(" for {}", duration(now - since)),
        _ => String::new(),
    }
}

fn pending(
    input: &ExplainInput,
    pod: ObjectRef,
    facts: Option<&PodFacts>,
    group: usize,
    position: u32,
) -> PodDocument {
    let owner = facts.map_or_else(|| pod.clone(), |facts| facts.owner.clone());
    let mut document = document(input, pod, facts, "Pending");
    let waited = waited(input, facts);
    let spec = &input.problem.pods[group].spec;
    document.replicas = u64::from(input.problem.pods[group].count());
    let requests = spec.requests.iter().filter(|(name, _)| &***name != "pods");
    document.requests = requests.map(|(name, amount)| (name.to_string(), quantity(name, amount))).collect();
    let plan = schedule(&input.problem);
    let is_left = plan.unschedulable.iter().find(|one| {
        let range = one.pods.start..one.pods.start + one.pods.count;
        one.pods.group as usize == group && range.contains(&position)
    });
    let Some(left) = is_left else {
        let outcome = outcome::of_plan(&input.problem, &plan, group);
        let others = match document.replicas.saturating_sub(outcome.pods) {
            0 => String::new(),
            left => format!(", and not {left} of its replicas"),
        };
        document.summary = format!("pending{waited}, Karpenter can schedule it{others}");
        document.resolution = Resolution::in_progress(None);
        document.plan = Some(outcome);
        return document;
    };
    document.resolution = Resolution::blocked();
    let found = chain(input, group, &left.reasons);
    let closest = found.as_ref().map(|chain| &*chain.pool);
    document.scopes = scopes(input, &left.reasons, closest);
    document.summary = format!("pending{waited}, {}", summary(&document.scopes, found.as_ref()));
    if let Some(found) = &found {
        document.chain = view_of(input, &owner, found, group);
    }
    document
}

/// The reasons by NodePool: the closest NodePool first, the others by the distance of their reason.
fn scopes(input: &ExplainInput, refusals: &[Refusal], closest: Option<&str>) -> Vec<Scope> {
    let mut ordered: Vec<(bool, u8, Scope)> = Vec::new();
    for refusal in refusals {
        let (node_pool, existing_nodes) = match &refusal.scope {
            ModelScope::NodePool(name) => (Some(name.to_string()), None),
            ModelScope::ExistingNodes { count } => (None, Some(u64::from(*count))),
            ModelScope::Pod => (None, None),
            // The document has separate reasons for NodePools that launch no nodes.
            ModelScope::Cluster if !input.facts.excluded_pools.is_empty() => continue,
            ModelScope::Cluster => (None, None),
        };
        let mut reason = of_refusal(refusal);
        reason.fix = hint(refusal).map(|text| Fix { text, object: None, patch: None, patch_type: None });
        let scope = Scope { node_pool, existing_nodes, closest: false, reasons: vec![reason] };
        ordered.push((scope.existing_nodes.is_some(), distance(&refusal.reason), scope));
    }
    for excluded in &input.facts.excluded_pools {
        let reasons = vec![excluded_reason(input, excluded)];
        let node_pool = Some(excluded.pool.name.to_string());
        ordered.push((false, u8::MAX, Scope { node_pool, existing_nodes: None, closest: false, reasons }));
    }
    for (_, _, scope) in &mut ordered {
        scope.closest = closest.is_some() && scope.node_pool.as_deref() == closest;
    }
    ordered.sort_by_key(|(is_existing, distance, scope)| (!scope.closest, *is_existing, *distance));
    ordered.into_iter().map(|(_, _, scope)| scope).collect()
}

/// Why a NodePool launches no nodes.
pub(crate) fn excluded_reason(input: &ExplainInput, excluded: &ExcludedPool) -> Reason {
    let name = &*excluded.pool.name;
    let facts = input.facts.pools.get(name);
    let class = facts.and_then(|facts| facts.node_class.as_ref());
    match excluded.why {
        Excluded::Static => reason(
            "NodePoolStatic",
            &[("nodePool", name.into())],
            "has a fixed number of nodes (spec.replicas)".to_owned(),
        ),
        Excluded::Deleting => {
            reason("NodePoolDeleting", &[("nodePool", name.into())], "is being deleted".to_owned())
        }
        Excluded::NotReady => {
            let not_ready = facts.and_then(|facts| facts.not_ready.clone()).unwrap_or_default();
            let known = &input.facts.node_classes;
            let is_missing = class.is_some_and(|class| {
                known.iter().any(|one| one.kind == class.kind) && !known.contains(class)
            });
            let cause = match (class.filter(|_| is_missing), not_ready.message.as_str()) {
                (Some(class), _) => format!("not ready: {class} not found"),
                (None, "") => "not ready".to_owned(),
                (None, message) => format!("not ready: {message}"),
            };
            let mut params = vec![("nodePool", Param::from(name))];
            params.extend(class.map(|class| ("nodeClass", Param::from(class.to_string()))));
            if !not_ready.reason.is_empty() {
                params.push(("reason", not_ready.reason.into()));
            }
            let mut reason = reason("NodePoolNotReady", &params, cause);
            reason.fix = Some(not_ready_fix(&input.facts, name));
            reason
        }
    }
}

fn summary(scopes: &[Scope], chain: Option<&PodChain>) -> String {
    let pools = scopes.iter().filter(|scope| scope.node_pool.is_some()).count();
    match chain.and_then(|chain| chain.steps.first().map(|step| (&chain.pool, &step.lift))) {
        Some((pool, Lift::Limit { .. })) => format!("NodePool {pool} is at its limit"),
        Some((pool, Lift::NodePoolReady { .. })) if pools == 1 => format!("NodePool {pool} is not ready"),
        Some((_, Lift::Spread { key })) => format!("a topology spread over {key} cannot be met"),
        _ if pools == 0 => "there is no NodePool for it".to_owned(),
        _ => "no NodePool can schedule it".to_owned(),
    }
}

/// The blocker chain as it is shown: with fixes and with the result.
fn view_of(input: &ExplainInput, owner: &ObjectRef, chain: &PodChain, group: usize) -> Chain {
    let mut writer = FixWriter::new(&input.facts, owner);
    let blockers = chain.steps.iter().map(|step| {
        let fix = writer.fix(&step.lift);
        blocker(input, &chain.pool, step, fix)
    });
    Chain {
        blockers: blockers.collect(),
        result: chain.solved.as_ref().map(|(problem, plan)| outcome::of_plan(problem, plan, group)),
        remaining: chain.remaining.as_ref().map(of_refusal),
    }
}

fn blocker(input: &ExplainInput, pool: &str, step: &Step, fix: Fix) -> Reason {
    let mut blocker = match &step.cause {
        StepCause::Refusal(refusal) => of_refusal(refusal),
        StepCause::NotReady => match input.excluded(pool) {
            Some(excluded) => excluded_reason(input, excluded),
            None => reason("NodePoolNotReady", &[("nodePool", pool.into())], "not ready".to_owned()),
        },
    };
    if let Lift::Limit { pool, resource, amount: Some(amount) } = &step.lift {
        let used =
            input.problem.pools.iter().find(|one| one.name == *pool).map(|one| one.usage.get(resource));
        let required = amount - used.unwrap_or(0);
        blocker.params.insert("required".to_owned(), quantity(resource, required).into());
        blocker.message = format!("{}, {} more required", blocker.message, quantity(resource, required));
    }
    blocker.fix = Some(fix);
    blocker
}

/// Whether all pods of the group would be placed if the NodePool launched nodes. The NodePool's document states the
/// number of such pods.
pub(crate) fn is_placed_with(problem: &Problem, group: usize) -> bool {
    left_over(&schedule(problem), group).is_none()
}
