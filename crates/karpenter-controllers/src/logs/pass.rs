//! The pass of a controller in which a log line is written. Each line of the pass gets the fields that
//! controller-runtime adds to upstream's lines.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use karpenter_runtime::object::ObjectKey;

tokio::task_local! {
    static CURRENT: Pass;
}

/// One reconciliation of one object, or of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    pub(super) controller: &'static str,
    pub(super) object: Object,
    pub(super) reconcile_id: ReconcileId,
}

/// What a controller reconciles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    /// The whole cluster. The key in the queue has no meaning.
    Cluster,
    /// An object that is known only by its key in a queue. As in upstream, its lines contain the key without a kind.
    Queued(ObjectKey),
    Of(Kind, ObjectKey),
}

/// A kind of object: API group and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
}

const NODE: Kind = Kind { group: "", kind: "Node" };
const NODE_CLAIM: Kind = Kind { group: "karpenter.sh", kind: "NodeClaim" };
const NODE_POOL: Kind = Kind { group: "karpenter.sh", kind: "NodePool" };
const CAPACITY_BUFFER: Kind = Kind { group: "autoscaling.x-k8s.io", kind: "CapacityBuffer" };
const EC2_NODE_CLASS: Kind = Kind { group: "karpenter.k8s.aws", kind: "EC2NodeClass" };

impl Object {
    fn of(controller: &str, key: &ObjectKey) -> Self {
        let kind = match controller {
            "nodeclaim.lifecycle"
            | "nodeclaim.disruption"
            | "nodeclaim.expiration"
            | "nodeclaim.consistency"
            | "nodeclaim.hydration"
            | "nodeclaim.reboot"
            | "nodeclaim.tagging"
            | "pod.nomination"
            | "operatorpkg.nodeclaim.status" => NODE_CLAIM,
            "node.termination" | "node.health" | "node.hydration" | "operatorpkg.node.status" => NODE,
            // The keys in the queue of this controller are names of nodes.
            "nodeclaim.podevents" => NODE,
            "providers.instancetype.capacity" => NODE,
            "nodepool.readiness"
            | "nodepool.counter"
            | "nodepool.hash"
            | "static.provisioning"
            | "static.deprovisioning"
            | "metrics.nodepool"
            | "operatorpkg.nodepool.status" => NODE_POOL,
            "capacitybuffer" | "operatorpkg.capacitybuffer.status" => CAPACITY_BUFFER,
            "nodeclass" | "nodeclass.hash" => EC2_NODE_CLASS,
            "eviction-queue" | "pod.deletioncost.queue" => return Self::Queued(key.clone()),
            _ => return Self::Cluster,
        };
        Self::Of(kind, key.clone())
    }
}

impl Pass {
    /// Runs the pass; its log lines contain the fields of the pass.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    /// The pass of the current task.
    pub(super) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }
}

/// Creates unique pass IDs, within a process and between processes with different start times. Clones share the
/// counter.
#[derive(Debug, Clone)]
pub struct PassIds {
    started: Timestamp,
    count: Arc<AtomicU64>,
}

impl PassIds {
    pub fn new(started: Timestamp) -> Self {
        Self { started, count: Arc::default() }
    }

    pub fn pass(&self, controller: &'static str, key: &ObjectKey) -> Pass {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let reconcile_id = ReconcileId { started: self.started, number };
        Pass { controller, object: Object::of(controller, key), reconcile_id }
    }
}

/// A UUID (version 8 of RFC 9562) made of the start time of the process and the number of the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReconcileId {
    started: Timestamp,
    number: u64,
}

impl std::fmt::Display for ReconcileId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, nanos) = (self.started.as_second(), self.started.subsec_nanosecond());
        // The nanoseconds have 30 bits. They are split into three parts, because the UUID has fixed bits in between:
        // four for the version and two for the variant.
        let (high, middle, low) = (nanos >> 14, (nanos >> 2) & 0xfff, 0x8000 | (nanos & 0b11));
        let number = self.number & 0xffff_ffff_ffff;
        write!(out, "{:08x}-{high:04x}-8{middle:03x}-{low:04x}-{number:012x}", seconds as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_has_its_own_uuid() {
        let ids = PassIds::new("2026-01-02T03:04:05.678901234Z".parse().expect("a time"));
        let key = ObjectKey::new("", "default-x");
        let [one, two] = ["nodeclaim.lifecycle", "disruption"].map(|name| ids.pass(name, &key));
        assert_eq!(one.reconcile_id.to_string(), "695735a5-a1dc-8d7c-8002-000000000000");
        assert_eq!(two.reconcile_id.to_string(), "695735a5-a1dc-8d7c-8002-000000000001");
        assert_eq!((one.object, two.object), (Object::Of(NODE_CLAIM, key), Object::Cluster));
    }
}
