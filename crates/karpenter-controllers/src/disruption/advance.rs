//! The loop that leads commands to their end: whatever the state machine asks for is done, and marks that no command
//! accounts for are taken off.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::controllers::context::{is_deleting, name_of};
use karpenter_disruption::command::Decision;
use karpenter_disruption::fleet::Repair;

use super::flight::{ClaimId, Stage, Step, next_step};
use super::flights::Flight;
use super::observe::{self, see};
use super::order::{Order, Target};
use super::resume::{Resumed, resumable};
use super::{DISRUPTION_REASON, Disruption, IDLE_POLL, RETRY_POLL};
use crate::nodeclaim::{REBOOTING, condition, is_true, nodes_of};
use crate::pods;

impl Disruption {
    pub(super) async fn advance(&self) -> Duration {
        if !observe::is_synced(&self.context) {
            return RETRY_POLL;
        }
        if !self.flights().is_resumed {
            self.resume();
        }
        let (flights, queued) = {
            let flights = self.flights();
            (flights.started(), flights.queued())
        };
        for flight in &flights {
            self.step(flight, queued).await;
        }
        let is_clean = self.take_off_stray_marks().await;
        let is_idle = is_clean && self.flights().started().is_empty();
        if is_idle { IDLE_POLL } else { RETRY_POLL }
    }

    async fn step(&self, flight: &Flight, queued: usize) {
        let context = &self.context;
        let now = context.clock.now();
        let order = &flight.order;
        let step = next_step(&flight.stage, &order.ids(), |id| see(context, id), queued, now);
        match step {
            // Proposals are the other loop's business, and so is a command that it is about to begin.
            Step::Rest { .. } | Step::Leave | Step::Revalidate => {}
            Step::Wait { pending } => self.tell_waiting(order, &pending).await,
            Step::Delete { left } => {
                if let Stage::Waiting { since, replacements } = &flight.stage {
                    self.tell_launched(order, replacements).await;
                    let stage = Stage::Deleting { since: *since };
                    self.flights().update(flight.number, order.clone(), stage);
                }
                self.delete(order, &left).await;
            }
            Step::RollBack { left, failure } => {
                self.flights().fail(flight, now);
                self.roll_back(flight, &left, &failure).await;
                self.flights().remove(flight.number);
            }
            Step::Finish => {
                tracing::debug!(command = flight.id, "command succeeded");
                self.flights().remove(flight.number);
            }
        }
    }

    /// Takes up what a process before this one began.
    fn resume(&self) {
        self.recall();
        let context = &self.context;
        let now = context.clock.now();
        let claims = context.stores.node_claims.list();
        let is_ours = |claim: &Arc<NodeClaim>| context.is_managed(&claim.spec.node_class_ref);
        let claims: Vec<Arc<NodeClaim>> = claims.into_iter().filter(is_ours).collect();
        let is_marked = |claim: &NodeClaim| {
            is_true(claim, DISRUPTION_REASON) && nodes_of(context, claim).iter().any(|node| is_closed(node))
        };
        for resumed in resumable(&claims, is_marked, now) {
            tracing::info!(command = resumed.id, "took up a command of an earlier process");
            let leaving = resumed.targets.iter().map(|id| id.name.as_str());
            context.state.start_command(leaving, [], now);
            let order = Arc::new(self.order_of(&resumed));
            let Resumed { id, since, replacements, .. } = resumed;
            self.flights().add_with_id(id, order, Stage::Waiting { since, replacements }, None);
        }
        self.flights().is_resumed = true;
    }

    fn order_of(&self, resumed: &Resumed) -> Order {
        let target = |id: &ClaimId| {
            let claim = self.context.stores.node_claims.get("", &id.name);
            let node = claim.as_ref().and_then(|claim| claim.status.as_ref()?.node_name.clone());
            let node = node.unwrap_or_default();
            let pool = claim.as_deref().map(observe::pool_label).unwrap_or_default().to_owned();
            Target {
                id: id.clone(),
                policy: resumed.policies.get(&pool).copied().unwrap_or_default(),
                pods: pods::reschedulable_on(&self.context.stores, &node),
                repair: resumed.condition.as_deref().map(repair_of),
                node,
                pool,
            }
        };
        Order {
            method: resumed.method,
            decision: Decision::Replace,
            targets: resumed.targets.iter().map(target).collect(),
            launches: Vec::new(),
            moves: Vec::new(),
            price_before_per_hour: 0.0,
            price_after_per_hour: 0.0,
            termination_grace_period_secs: resumed.termination_grace_period_secs,
            is_thorough: false,
            terminate_first_reason: "",
        }
    }

    /// Marks that a process before this one left behind, or a start that failed. False if some are left.
    async fn take_off_stray_marks(&self) -> bool {
        let context = &self.context;
        let accounted = self.flights().started_targets();
        let mut is_clean = true;
        for claim in context.stores.node_claims.list() {
            let name = name_of(&*claim);
            let is_going = is_deleting(&*claim)
                || is_true(&claim, "InstanceTerminating")
                || is_true(&claim, REBOOTING)
                || context.state.is_marked_for_deletion(name);
            if is_going || accounted.contains(name) || !context.is_managed(&claim.spec.node_class_ref) {
                continue;
            }
            let nodes = nodes_of(context, &claim);
            if nodes.iter().any(|node| is_deleting(&**node)) {
                continue;
            }
            let is_marked =
                condition(&claim, DISRUPTION_REASON).is_some() || nodes.iter().any(|node| is_closed(node));
            if is_marked && self.open_again(name).await.is_err() {
                is_clean = false;
            }
        }
        is_clean
    }
}

/// All that is left to be known of a repair that has begun is what it is about.
fn repair_of(condition: &str) -> Repair {
    Repair {
        condition: condition.into(),
        is_reboot: false,
        termination_grace_period_secs: None,
        score: 0.0,
        is_vetoed: false,
    }
}

fn is_closed(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == labels::TAINT_DISRUPTED)
}
