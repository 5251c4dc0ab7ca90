//! Queries EC2 for unhealthy instances periodically, and handles each of them like an interruption message.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::try_join_all;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::{Category, next_delay, queries, unhealthy};
use crate::api::{AwsError, Ec2};
use crate::interruption::Handler;

#[derive(Debug, Default)]
struct Memory {
    /// Findings that the metric has counted and that every query since then has reported again, so that they are not
    /// counted twice.
    counted: BTreeSet<(String, Category)>,
    failures: u32,
    logged: String,
}

pub struct InstanceStatusPoller {
    handler: Handler,
    ec2: Arc<dyn Ec2>,
    memory: Mutex<Memory>,
}

impl InstanceStatusPoller {
    pub fn new(handler: Handler, ec2: Arc<dyn Ec2>) -> Self {
        Self { handler, ec2, memory: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    fn failed(&self, error: &AwsError) -> Requeue {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.failures = memory.failures.saturating_add(1);
        let text = error.to_string();
        if memory.logged != text {
            let advice = if error.is_unauthorized() {
                "allow ec2:DescribeInstanceStatus so that unhealthy instances are replaced; `karpenter bootstrap aws` prints the policy"
            } else {
                "the call is retried"
            };
            tracing::error!(error = text, "failed to read instance status: {advice}");
            memory.logged = text;
        }
        Requeue::After(next_delay(Some(error.kind), memory.failures))
    }
}

impl Reconcile for InstanceStatusPoller {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let queries = queries();
        let answers = try_join_all(queries.iter().map(|query| self.ec2.describe_instance_status(query)));
        let statuses = match answers.await {
            Ok(answers) => answers.concat(),
            Err(error) => return Ok(self.failed(&error)),
        };
        let mut found = BTreeSet::new();
        let mut failure = None;
        for (instance_id, categories) in unhealthy(&statuses, self.handler.context().clock.now()) {
            for category in categories {
                let is_ours = match self.handler.handle(category.kind(), &instance_id, None).await {
                    Ok(is_ours) => is_ours,
                    Err(error) => {
                        tracing::error!(instance_id, %error, "failed to handle unhealthy instance");
                        // If one instance cannot be handled, the others still are.
                        failure = Some(error);
                        true
                    }
                };
                // The account may have instances of other clusters; only those of this cluster are counted.
                if is_ours {
                    found.insert((instance_id.clone(), category));
                }
            }
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        for (instance_id, category) in found.difference(&memory.counted) {
            tracing::info!(
                instanceID = instance_id,
                category = category.name(),
                "detected unhealthy instance owned by cluster"
            );
            self.handler.metrics().unhealthy.with_label_values(&[category.name()]).inc();
        }
        *memory = Memory { counted: found, ..Memory::default() };
        failure.map_or_else(|| Ok(Requeue::After(next_delay(None, 0))), Err)
    }
}
