//! Deletes launch templates that are no longer used: those of this process when they expire, and, once after the start,
//! those of the previous process. [`crate::launch::templates`] decides which are unused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use crate::launch::templates::LaunchTemplates;

const PERIOD: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);

/// Deletes unused launch templates. It must run only in the leader, because other replicas do not know which launch
/// templates the leader uses.
pub struct LaunchTemplateCollector {
    templates: LaunchTemplates,
    has_looked: AtomicBool,
}

impl LaunchTemplateCollector {
    pub fn new(templates: LaunchTemplates) -> Self {
        Self { templates, has_looked: AtomicBool::new(false) }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }
}

impl Reconcile for LaunchTemplateCollector {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        if !self.has_looked.load(Ordering::Relaxed) {
            if let Err(error) = self.templates.hydrate().await {
                tracing::error!(%error, "failed to list launch templates of the previous process");
                return Ok(Requeue::After(RETRY));
            }
            self.has_looked.store(true, Ordering::Relaxed);
        }
        self.templates.sweep().await;
        Ok(Requeue::After(PERIOD))
    }
}
