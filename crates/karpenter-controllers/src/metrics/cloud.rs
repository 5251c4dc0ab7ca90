//! Counts and times calls to the cloud provider. Every call is passed to the wrapped provider.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cloud::{
    CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind, RegistrationHook, RepairPolicy,
};
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::object::{label, name_of};
use tokio::time::Instant;

use super::Metrics;

tokio::task_local! {
    /// The controller whose pass is running; the label `controller` of the cloud provider metrics.
    static CONTROLLER: &'static str;
}

/// Runs a pass of a controller. Calls to the cloud provider during the pass get the controller's name as label.
pub async fn as_controller<T>(controller: &'static str, pass: impl Future<Output = T>) -> T {
    CONTROLLER.scope(controller, pass).await
}

/// The controller of the current task, if it runs a pass.
pub fn acting_controller() -> Option<&'static str> {
    CONTROLLER.try_with(|name| *name).ok()
}

pub struct MeasuredCloud {
    inner: Arc<dyn CloudProvider>,
    metrics: Metrics,
}

impl MeasuredCloud {
    pub fn new(inner: Arc<dyn CloudProvider>, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }

    async fn measure<T>(
        &self,
        method: &'static str,
        pool: &str,
        call: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        let started = Instant::now();
        let answer = call.await;
        let controller = acting_controller().unwrap_or_default();
        let provider = self.inner.name();
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.cloud_duration.with_label_values(&[controller, method, provider]).observe(seconds);
        if let Err(error) = &answer {
            let kind = error.metric_label();
            self.metrics.cloud_errors.with_label_values(&[controller, method, provider, kind, pool]).inc();
        }
        answer
    }
}

fn pool_of(claim: &NodeClaim) -> &str {
    label(claim, labels::NODEPOOL).unwrap_or_default()
}

impl CloudProvider for MeasuredCloud {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        self.inner.node_class_kinds()
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        self.inner.well_known_labels()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        Box::pin(self.measure("Create", pool_of(claim), self.inner.create(claim)))
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        Box::pin(self.measure("Delete", pool_of(claim), self.inner.delete(claim)))
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance> {
        Box::pin(self.measure("Get", "", self.inner.get(provider_id)))
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        Box::pin(self.measure("List", "", self.inner.list()))
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        Box::pin(self.measure("GetInstanceTypes", name_of(pool), self.inner.instance_types(pool)))
    }

    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        Box::pin(self.measure("IsDrifted", pool_of(claim), self.inner.drift_reason(claim)))
    }

    fn reboot<'a>(&'a self, claim: &'a NodeClaim, operation_id: &'a str) -> CloudFuture<'a, ()> {
        Box::pin(self.measure("Reboot", pool_of(claim), self.inner.reboot(claim, operation_id)))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.inner.repair_policies()
    }

    fn registration_hooks(&self) -> Vec<Arc<dyn RegistrationHook>> {
        self.inner.registration_hooks()
    }
}
