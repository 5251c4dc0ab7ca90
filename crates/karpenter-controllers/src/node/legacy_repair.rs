//! Node repair with the rules before Karpenter 1.15, enabled by `--legacy-node-repair`: a node that is unhealthy for
//! longer than the toleration of a policy is terminated forcefully, without regard to budgets and do-not-disrupt
//! annotations. If more than 20 % of the nodes of a NodePool are unhealthy, none of them is terminated.
//!
//! Only policies with the action `Replace` are used.
//!
//! Upstream: pkg/controllers/node/legacyrepair.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cloud::repair::CompiledPolicy;
use karpenter_cloud::{CloudProvider, RepairAction, RepairPolicy};
use karpenter_runtime::clock::{until, whole_seconds};
use karpenter_runtime::object::{ObjectKey, annotation, is_deleting, label, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::termination_mode;
use serde_json::json;

use crate::events::ObjectEvent;
use crate::inputs::{Reads, Writes};
use crate::stores::BY_POOL;
use crate::writes;

const BLOCKED_RECHECK: Duration = Duration::from_secs(5 * 60);
const BLOCKED_EVENT_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// If more than this percentage (rounded up) of the nodes of a NodePool are unhealthy, none of them is terminated.
/// Nodes without a NodePool are compared with all nodes.
const UNHEALTHY_PERCENT_MAX: usize = 20;

pub struct LegacyRepair {
    reads: Reads,
    writes: Writes,
    policies: Vec<CompiledPolicy>,
}

/// The next step for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Nothing,
    Wait(Duration),
    Blocked,
    Terminate { condition_type: String },
}

impl LegacyRepair {
    /// Creates the controller. Policies with an invalid expression are logged and ignored.
    pub fn new(reads: Reads, writes: Writes, cloud: &dyn CloudProvider) -> Self {
        let policies = compile(cloud.repair_policies());
        Self { reads, writes, policies }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.reads.stores.nodes.observe(move |change: &Change<Node>| {
            let Change::Applied { old, new } = change else { return };
            let conditions = |node: &Node| -> Vec<(String, String, Option<Timestamp>)> {
                let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let fields = conditions.into_iter().map(|one| {
                    (one.type_.clone(), one.status.clone(), one.last_transition_time.as_ref().map(|at| at.0))
                });
                fields.collect()
            };
            if old.as_ref().is_none_or(|old| conditions(old) != conditions(new)) {
                to.add(ObjectKey::of(&new.metadata));
            }
        });
    }

    async fn terminate(
        &self,
        node: &Node,
        claim: &Arc<NodeClaim>,
        condition_type: &str,
    ) -> kube::Result<Requeue> {
        let Reads { stores, clock, .. } = &self.reads;
        let Writes { client, metrics, .. } = &self.writes;
        let now = clock.now();
        let key = labels::ANNOTATION_TERMINATION_TIMESTAMP;
        let present = annotation(&**claim, key).and_then(|text| text.parse::<Timestamp>().ok());
        let mut claim = claim.clone();
        if present.is_none_or(|present| present >= now) {
            let patch = json!({"metadata": {"annotations": {key: whole_seconds(now).to_string()}}});
            match writes::merge(client, &stores.node_claims, &*claim, patch).await? {
                Some(written) => claim = Arc::new(written),
                None => return Ok(Requeue::No),
            }
            tracing::info!(
                nodeclaim = name_of(&*claim),
                "karpenter.sh/nodeclaim-termination-timestamp" = annotation(&*claim, key),
                "annotated nodeclaim"
            );
        }
        if is_deleting(&*claim) {
            return Ok(Requeue::No);
        }
        writes::delete(client, &stores.node_claims, &*claim).await?;
        tracing::info!(nodeclaim = name_of(&*claim), condition = condition_type, "deleting unhealthy node");
        let get = |key| label(node, key).unwrap_or_default();
        let (pool, capacity_type) = (get(labels::NODEPOOL), get(labels::CAPACITY_TYPE));
        let mode = termination_mode(&claim);
        let series = ["unhealthy", pool, capacity_type, "", mode];
        metrics.nodeclaims_disrupted.with_label_values(&series).inc();
        let pods = stores.reschedulable_pods_on(name_of(node));
        metrics.disruption.pods_initiated.with_label_values(&series).inc_by(pods as u64);
        let image = claim.status.as_ref().and_then(|status| status.image_id.as_deref()).unwrap_or_default();
        let series =
            [snake_case(condition_type).as_str(), pool, capacity_type, image, mode].map(str::to_owned);
        metrics.nodeclaims_unhealthy_disrupted.with_label_values(&series).inc();
        Ok(Requeue::No)
    }
}

impl Reconcile for LegacyRepair {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.reads.stores;
        let Some(node) = stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        let claim = stores.claim_of_node(&node);
        let Some(claim) = claim.filter(|claim| self.reads.is_managed(&claim.spec.node_class_ref)) else {
            return Ok(Requeue::No);
        };
        let pool = label(&*claim, labels::NODEPOOL);
        let pool_nodes = match pool {
            Some(pool) => stores.nodes.by(BY_POOL, pool),
            None => stores.nodes.list(),
        };
        match decide(&self.policies, &node, &pool_nodes, self.reads.clock.now()) {
            Step::Nothing => Ok(Requeue::No),
            Step::Wait(wait) => Ok(Requeue::After(wait)),
            Step::Blocked => {
                let message = match pool {
                    Some(_) => "more than 20% nodes are unhealthy in the nodepool",
                    None => "more then 20% nodes are unhealthy in the cluster",
                };
                let event = ObjectEvent::warning(&*node, "NodeRepairBlocked", message);
                self.writes.recorder.publish(event.repeat_after(BLOCKED_EVENT_INTERVAL)).await;
                Ok(Requeue::After(BLOCKED_RECHECK))
            }
            Step::Terminate { condition_type } => self.terminate(&node, &claim, &condition_type).await,
        }
    }
}

fn compile(policies: Vec<RepairPolicy>) -> Vec<CompiledPolicy> {
    let replacing = policies.into_iter().filter(|policy| policy.action == RepairAction::Replace);
    let compiled = replacing.map(CompiledPolicy::compile);
    let usable = compiled.filter_map(|policy| match policy {
        Ok(policy) => Some(policy),
        Err(error) => {
            tracing::error!(%error, "invalid repair policy");
            None
        }
    });
    usable.collect()
}

/// Decides by the policy whose toleration passes first.
fn decide(policies: &[CompiledPolicy], node: &Node, pool_nodes: &[Arc<Node>], now: Timestamp) -> Step {
    let due = policies.iter().filter_map(|policy| {
        let condition = matching(policy, node)?;
        let since = condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let seconds = i64::try_from(policy.policy.toleration_secs).unwrap_or(i64::MAX);
        let at = since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        Some((at, condition))
    });
    let Some((at, condition)) = due.min_by_key(|(at, _)| *at) else { return Step::Nothing };
    if now < at {
        return Step::Wait(until(now, at));
    }
    let is_unhealthy = |node: &Node| policies.iter().any(|policy| matching(policy, node).is_some());
    let unhealthy = pool_nodes.iter().filter(|node| is_unhealthy(node)).count();
    if unhealthy > (pool_nodes.len() * UNHEALTHY_PERCENT_MAX).div_ceil(100) {
        return Step::Blocked;
    }
    Step::Terminate { condition_type: condition.type_.clone() }
}

fn matching<'a>(policy: &CompiledPolicy, node: &'a Node) -> Option<&'a NodeCondition> {
    let wanted = &policy.policy;
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.find(|condition| condition.type_ == wanted.condition_type)?;
    let reason = condition.reason.as_deref().unwrap_or_default();
    (condition.status == wanted.condition_status && policy.fits_reason(reason)).then_some(condition)
}

/// Condition types as metrics spell them: `DiskPressure` becomes `disk_pressure`. Consecutive capitals are one word.
pub(crate) fn snake_case(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| letters.get(index));
        let after = letters.get(index + 1);
        let starts_word = letter.is_uppercase()
            && before.is_some_and(|before| {
                !before.is_uppercase() && *before != '_'
                    || before.is_uppercase() && after.is_some_and(|after| after.is_lowercase())
            });
        if starts_word {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}
