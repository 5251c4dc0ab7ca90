//! Reads zonal shifts every 30 seconds. When a shift begins or ends, publishes events for NodePools that can launch in
//! its zone.
//!
//! Upstream: `pkg/controllers/arczonalshift`

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::NodePool;
use karpenter_controllers::Context;
use karpenter_controllers::events::ObjectEvent;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::pools::{Zone, reachable_zone};
use super::{ShiftSource, ZonalShifts};

const PERIOD: Duration = Duration::from_secs(30);
/// How often shifts are read while ARC does not respond.
const RETRY: Duration = Duration::from_secs(10);

pub struct ZonalShiftController {
    context: Context,
    source: ShiftSource,
    shifts: ZonalShifts,
    published: Mutex<BTreeSet<String>>,
}

impl ZonalShiftController {
    pub fn new(context: Context, source: ShiftSource, shifts: ZonalShifts) -> Self {
        Self { context, source, shifts, published: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }

    async fn publish(&self, before: &BTreeSet<String>, now: &BTreeSet<String>) {
        for pool in self.context.stores.node_pools.list() {
            let zones = self.zones_of(&pool);
            for zone_id in now.difference(before) {
                if let Some(zone) = reachable_zone(&pool, &zones, zone_id) {
                    let message = format!(
                        "Zonal shift detected: offerings in zone {zone} ({zone_id}) are unavailable for this NodePool"
                    );
                    let notice = ObjectEvent::warning(&*pool, "ZonalShiftActive", message);
                    self.context.recorder.publish(notice.dedupe_by(zone_id)).await;
                }
            }
            for zone_id in before.difference(now) {
                if let Some(zone) = reachable_zone(&pool, &zones, zone_id) {
                    let message = format!(
                        "Zonal shift cleared: offerings in zone {zone} ({zone_id}) are restored for this NodePool"
                    );
                    let notice = ObjectEvent::normal(&*pool, "ZonalShiftCleared", message);
                    self.context.recorder.publish(notice.dedupe_by(zone_id)).await;
                }
            }
        }
    }

    /// The zones in which the node class of a NodePool has subnets.
    fn zones_of(&self, pool: &NodePool) -> Vec<Zone> {
        let reference = &pool.spec.template.spec.node_class_ref;
        if reference.group != labels::AWS_GROUP {
            return Vec::new();
        }
        let class = self.context.stores.node_class(&reference.group, &reference.kind, &reference.name);
        let subnets = class.and_then(|class| class.data.pointer("/status/subnets").cloned());
        let subnets = subnets.as_ref().and_then(|subnets| subnets.as_array()).cloned().unwrap_or_default();
        let text = |subnet: &serde_json::Value, key: &str| {
            subnet.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
        };
        subnets.iter().map(|subnet| Zone { name: text(subnet, "zone"), id: text(subnet, "zoneID") }).collect()
    }
}

impl Reconcile for ZonalShiftController {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        match self.source.read().await {
            Ok(answer) => self.shifts.replace(&answer),
            Err(error) => {
                let cluster = self.source.cluster();
                let now = self.context.clock.now();
                if self.context.log_throttle.is_due("reading zonal shifts", &error.code, now) {
                    tracing::error!(%error, cluster, "failed to read zonal shifts, using last known shifts");
                }
                return Ok(Requeue::After(RETRY));
            }
        }
        let now = self.shifts.shifted_zone_ids(self.context.clock.now());
        let before = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if before != now {
            self.publish(&before, &now).await;
            *self.published.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        Ok(Requeue::After(PERIOD))
    }
}
