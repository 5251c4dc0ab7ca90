//! The static drift hash of a NodePool. It covers the fields of the NodePool's template that cannot change on a running
//! node.
//!
//! Requirements are not part of the hash, because drift compares them with the node's labels. Fields outside of the
//! template are not part of it either.
//!
//! Upstream: `NodePool.Hash` in `pkg/apis/v1/nodepool.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::structural::{Record, hash_bytes, hash_duration, hash_i64, hash_list, hash_text_map};
use crate::types::{NodeClassReference, NodePool, Taint};

/// The hash version, which an annotation records. Hashes of different versions are not compared.
pub const NODE_POOL_HASH_VERSION: &str = "v3";

/// The value of the annotation `karpenter.sh/nodepool-hash`, a decimal number.
pub fn node_pool_hash(pool: &NodePool) -> u64 {
    let template = &pool.spec.template;
    let metadata = template.metadata.as_ref().and_then(|metadata| {
        Record::new("ObjectMeta")
            .field("Labels", metadata.labels.as_ref().map(hash_text_map))
            .field("Annotations", metadata.annotations.as_ref().map(hash_text_map))
            .hash_unless_zero()
    });
    let spec = &template.spec;
    let expire_after = spec.expire_after.as_ref().and_then(|duration| duration.nanos());
    let spec = Record::new("NodeClaimTemplateSpec")
        .field("Taints", spec.taints.as_deref().map(hash_taints))
        .field("StartupTaints", spec.startup_taints.as_deref().map(hash_taints))
        .field("NodeClassRef", hash_node_class_reference(&spec.node_class_ref))
        .field(
            "TerminationGracePeriod",
            spec.termination_grace_period.map(|period| hash_duration(period.nanos)),
        )
        .field(
            "ExpireAfter",
            // Zero is hashed, unlike for other durations; only `Never` and an absent value are not.
            expire_after
                .map(|nanos| Record::new("NillableDuration").field("Duration", Some(hash_i64(nanos))).hash()),
        )
        .hash_unless_zero();
    Record::new("NodeClaimTemplate").field("ObjectMeta", metadata).field("Spec", spec).hash()
}

fn hash_node_class_reference(reference: &NodeClassReference) -> Option<u64> {
    Record::new("NodeClassReference")
        .plain_text("Kind", &reference.kind)
        .plain_text("Name", &reference.name)
        .plain_text("Group", &reference.group)
        .hash_unless_zero()
}

fn hash_taints(taints: &[Taint]) -> u64 {
    hash_list(taints.iter().map(|taint| {
        Record::new("Taint")
            .plain_text("Key", &taint.key)
            .plain_text("Value", taint.value.as_deref().unwrap_or_default())
            .plain_text("Effect", &taint.effect)
            .field("TimeAdded", taint.time_added.as_ref().map(hash_time))
            .hash()
    }))
}

/// The seconds from 1 January of year 1 to the Unix epoch.
const UNIX_EPOCH_SECONDS: i64 = 62_135_596_800;

/// The hash of a time: that of the 15 bytes of Go's binary encoding, in UTC.
fn hash_time(time: &Time) -> u64 {
    let nanos = time.0.subsec_nanosecond();
    // For times before 1970 the fraction of a second is negative here, but positive in Go's encoding.
    let (seconds, nanos) = match nanos {
        ..0 => (time.0.as_second() - 1, nanos + 1_000_000_000),
        _ => (time.0.as_second(), nanos),
    };
    let mut bytes = Vec::with_capacity(15);
    bytes.push(1);
    bytes.extend((seconds + UNIX_EPOCH_SECONDS).to_be_bytes());
    bytes.extend(nanos.to_be_bytes());
    bytes.extend(0i16.to_be_bytes());
    Record::new("Time").field("Time", Some(hash_bytes(&bytes))).hash()
}
