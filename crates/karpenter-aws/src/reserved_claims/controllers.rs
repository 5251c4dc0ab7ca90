//! The controllers for NodeClaims in capacity reservations; each runs once a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_controllers::stores::BY_PROVIDER_ID;
use karpenter_controllers::{Context, writes};
use karpenter_runtime::object::{ObjectKey, is_conflict, is_deleting, label, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::provider_id;
use kube::ResourceExt;

use super::{demotion, expiring};
use crate::api::ec2::{CapacityReservation, ReservationQuery};
use crate::api::{AwsError, Ec2};

const PERIOD: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);
const CONCURRENT_DELETIONS_MAX: usize = 10;

/// Corrects the labels of NodeClaims and Nodes after their instances became on-demand.
pub struct CapacityTypeController {
    context: Context,
}

impl CapacityTypeController {
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    async fn correct(&self, claim: &NodeClaim, is_on_demand: bool) -> kube::Result<()> {
        let Context { client, stores, .. } = &self.context;
        if let Some(patch) = demotion(is_on_demand, claim.labels()) {
            writes::merge(client, &stores.node_claims, claim, patch).await?;
            tracing::debug!(nodeclaim = name_of(claim), "updated capacity type for nodeclaim");
        }
        let nodes = provider_id(claim).map(|id| stores.nodes.by(BY_PROVIDER_ID, id)).unwrap_or_default();
        for node in nodes {
            // If the node is not registered yet, registration writes its labels; the next run checks them.
            let is_registered = label(&*node, labels::REGISTERED) == Some("true");
            let patch =
                demotion(is_on_demand, node.labels()).filter(|_| is_registered && !is_deleting(&*node));
            if let Some(patch) = patch {
                writes::merge(client, &stores.nodes, &*node, patch).await?;
            }
        }
        Ok(())
    }
}

impl Reconcile for CapacityTypeController {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let Ok(instances) = self.context.cloud.list().await else { return Ok(Requeue::After(RETRY)) };
        let capacity_types: BTreeMap<&str, &str> = instances
            .iter()
            .filter_map(|instance| {
                let capacity_type = instance.labels.get(labels::CAPACITY_TYPE)?;
                Some((instance.provider_id.as_str(), capacity_type.as_str()))
            })
            .collect();
        let (mut next, mut failure) = (PERIOD, None);
        for claim in self.context.stores.node_claims.list() {
            if is_deleting(&*claim) || !self.context.is_managed(&claim.spec.node_class_ref) {
                continue;
            }
            let found = provider_id(&claim).and_then(|id| capacity_types.get(id));
            let is_on_demand = found == Some(&labels::CAPACITY_TYPE_ON_DEMAND);
            match self.correct(&claim, is_on_demand).await {
                Ok(()) => {}
                Err(error) if is_conflict(&error) => next = Duration::ZERO,
                // If one NodeClaim fails, the others are still handled.
                Err(error) => failure = Some(log_failure(&claim, error)),
            }
        }
        failure.map_or(Ok(Requeue::After(next)), Err)
    }
}

/// Deletes NodeClaims whose capacity block ends soon.
pub struct ReservationExpiration {
    context: Context,
    ec2: Arc<dyn Ec2>,
}

impl ReservationExpiration {
    pub fn new(context: Context, ec2: Arc<dyn Ec2>) -> Self {
        Self { context, ec2 }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    /// Reads the reservations, with one query per id, because an unknown id makes a whole call fail.
    async fn reservations(&self, ids: BTreeSet<String>) -> Result<Vec<CapacityReservation>, AwsError> {
        let answers = stream::iter(ids).map(|id| async move {
            let query = ReservationQuery { ids: vec![id], ..ReservationQuery::default() };
            match self.ec2.describe_capacity_reservations(&query).await {
                Err(error) if error.is_not_found() => Ok(Vec::new()),
                answer => answer,
            }
        });
        answers.buffered(CONCURRENT_DELETIONS_MAX).try_concat().await
    }
}

impl Reconcile for ReservationExpiration {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let Context { client, stores, clock, .. } = &self.context;
        let reservation = |claim: &NodeClaim| {
            label(claim, labels::AWS_CAPACITY_RESERVATION_ID).unwrap_or_default().to_owned()
        };
        let claims: Vec<Arc<NodeClaim>> = stores
            .node_claims
            .list()
            .into_iter()
            .filter(|claim| self.context.is_managed(&claim.spec.node_class_ref))
            .filter(|claim| !is_deleting(&**claim) && !reservation(claim).is_empty())
            .collect();
        let ids: BTreeSet<String> = claims.iter().map(|claim| reservation(claim)).collect();
        let reservations = match self.reservations(ids).await {
            Ok(reservations) => reservations,
            Err(error) => {
                tracing::error!(%error, "failed to read capacity reservations");
                return Ok(Requeue::After(RETRY));
            }
        };
        let expiring = expiring(&reservations, clock.now());
        let mut deletions = Vec::new();
        for claim in claims {
            let id = reservation(&claim);
            if expiring.contains(id.as_str()) {
                deletions.push(async move {
                    let deleted = writes::delete(client, &stores.node_claims, &*claim).await;
                    deleted.map_err(|error| log_failure(&claim, error))?;
                    tracing::info!(
                        nodeclaim = name_of(&*claim),
                        capacity_reservation_id = id,
                        "initiating delete for capacity block expiration"
                    );
                    Ok::<(), kube::Error>(())
                });
            }
        }
        // All deletions are attempted, because one that fails must not keep other NodeClaims on instances that EC2 is
        // about to terminate.
        let outcomes: Vec<kube::Result<()>> =
            stream::iter(deletions).buffered(CONCURRENT_DELETIONS_MAX).collect().await;
        outcomes.into_iter().find_map(Result::err).map_or(Ok(Requeue::After(PERIOD)), Err)
    }
}

fn log_failure(claim: &NodeClaim, error: kube::Error) -> kube::Error {
    tracing::error!(nodeclaim = name_of(claim), %error, "failed to update or delete nodeclaim in capacity reservation");
    error
}
