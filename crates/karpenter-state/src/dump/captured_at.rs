//! Determines when a dump was captured, from the newest timestamp in it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::objects::Objects;

/// The newest timestamp of the objects; heartbeats of nodes are at most minutes older than the dump.
pub fn captured_at(objects: &Objects) -> Option<Timestamp> {
    let mut newest = Newest(None);
    for node in &objects.nodes {
        newest.see_metadata(&node.metadata);
        for condition in node.status.iter().flat_map(|status| status.conditions.iter().flatten()) {
            newest.see(condition.last_heartbeat_time.as_ref());
            newest.see(condition.last_transition_time.as_ref());
        }
    }
    for pod in &objects.pods {
        let status = &pod.status;
        let marks = [status.ready, status.scheduled].into_iter().flatten().map(|mark| mark.since);
        let times = marks.chain([pod.created_at, status.started_at]);
        newest.0 = times.fold(newest.0, Option::max);
    }
    for claim in &objects.node_claims {
        newest.see_metadata(&claim.metadata);
        let Some(status) = &claim.status else { continue };
        newest.see(status.last_pod_event_time.as_ref());
        for condition in &status.conditions {
            newest.see(condition.last_transition_time.as_ref());
        }
    }
    for pool in &objects.node_pools {
        newest.see_metadata(&pool.metadata);
    }
    for budget in &objects.pod_disruption_budgets {
        newest.see_metadata(&budget.metadata);
    }
    newest.0
}

struct Newest(Option<Timestamp>);

impl Newest {
    fn see(&mut self, time: Option<&Time>) {
        self.0 = self.0.max(time.map(|time| time.0));
    }

    /// A deletion timestamp is ignored, because it may be in the future by the grace period.
    fn see_metadata(&mut self, metadata: &ObjectMeta) {
        self.see(metadata.creation_timestamp.as_ref());
        for entry in metadata.managed_fields.iter().flatten() {
            self.see(entry.time.as_ref());
        }
    }
}
