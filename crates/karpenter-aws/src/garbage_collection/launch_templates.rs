//! Launch templates that nobody has used for a while: those of this process as they age, and once, at the start, those
//! that an earlier process left behind. Which ones are in use is the launch's knowledge.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::ObjectKey;

use crate::launch::templates::LaunchTemplates;

const PERIOD: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);

/// To be started by the leader only: templates of another process that works are not leftovers.
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
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<After> {
        if !self.has_looked.load(Ordering::Relaxed) {
            if let Err(error) = self.templates.hydrate().await {
                tracing::error!(%error, "launch templates of an earlier process could not be listed");
                return Ok(After::Again(RETRY));
            }
            self.has_looked.store(true, Ordering::Relaxed);
        }
        self.templates.sweep().await;
        Ok(After::Again(PERIOD))
    }
}
