//! The writes of the scheduler: bindings, conditions, nominations, deletion of victims, volume bindings, events.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::events::v1::Event;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::ObjectKey;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::snapshot::PodKey;
use super::sources::Sources;
use super::storage::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use super::volumes::VolumePlan;

/// The changes of a pod's status.
#[derive(Debug, Clone, Default)]
pub(super) struct StatusChange {
    /// Reason and message of `PodScheduled=False`.
    pub(super) unscheduled: Option<(&'static str, String)>,
    /// `Some(None)` removes the nomination.
    pub(super) nomination: Option<Option<Arc<str>>>,
}

/// One write for a pod. The writes of one pod run in order.
#[derive(Debug)]
pub(super) enum Write {
    Status(StatusChange),
    Volumes { node: Arc<str>, plan: VolumePlan },
    Bind { node: Arc<str> },
    Preempt { node: Arc<str>, victims: Vec<PodKey> },
}

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Status,
    Volumes,
    Bind,
    Preempt,
}

impl Write {
    pub(super) fn step(&self) -> Step {
        match self {
            Self::Status(_) => Step::Status,
            Self::Volumes { .. } => Step::Volumes,
            Self::Bind { .. } => Step::Bind,
            Self::Preempt { .. } => Step::Preempt,
        }
    }
}

#[derive(Clone)]
pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) sources: Sources,
    pub(super) clock: Clock,
    pub(super) name: Arc<str>,
}

/// Whether the error means that the object does not exist any more, so that the write is not needed.
pub(super) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

impl Writer {
    pub(super) async fn write(&self, key: &ObjectKey, uid: &str, write: Write) -> kube::Result<()> {
        match write {
            Write::Status(change) => self.write_status(key, change).await,
            Write::Volumes { node, plan } => self.write_volumes(&node, &plan).await,
            Write::Bind { node } => self.bind(key, uid, &node).await,
            Write::Preempt { node, victims } => self.preempt(uid, &node, &victims).await,
        }
    }

    fn pods(&self, namespace: &str) -> Api<core::Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Patches the status, unless it has the values already.
    async fn write_status(&self, key: &ObjectKey, change: StatusChange) -> kube::Result<()> {
        let Some(pod) = self.sources.pods.get_key(key) else { return Ok(()) };
        let mut status = serde_json::Map::new();
        if let Some((reason, message)) = change.unscheduled
            && let Some(condition) =
                changed_condition(&pod, "PodScheduled", "False", reason, &message, self.clock.now())
        {
            status.insert("conditions".to_owned(), json!([condition]));
        }
        let present = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
        if let Some(nomination) = change.nomination
            && nomination.as_deref() != present.filter(|node| !node.is_empty())
        {
            status.insert("nominatedNodeName".to_owned(), json!(nomination.as_deref()));
        }
        if status.is_empty() {
            return Ok(());
        }
        self.patch_status(key, Value::Object(status)).await
    }

    async fn patch_status(&self, key: &ObjectKey, status: Value) -> kube::Result<()> {
        let patch = Patch::Strategic(json!({"status": status}));
        let pods = self.pods(&key.namespace);
        let patched = pods.patch_status(&key.name, &PatchParams::default(), &patch).await?;
        self.sources.pods.apply(patched);
        Ok(())
    }

    async fn bind(&self, key: &ObjectKey, uid: &str, node: &str) -> kube::Result<()> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": key.namespace, "name": key.name, "uid": uid},
            "target": {"kind": "Node", "name": node},
        });
        let path = core::Pod::url_path(&(), Some(&key.namespace));
        let request = kube::core::Request::new(path)
            .create_subresource(
                "binding",
                &key.name,
                &PostParams::default(),
                binding.to_string().into_bytes(),
            )
            .map_err(kube::Error::BuildRequest)?;
        self.client.request_text(request).await?;
        let note = format!("Successfully assigned {key} to {node}");
        self.record_event(key, uid, None, EventKind::Scheduled, &note).await;
        Ok(())
    }

    async fn write_volumes(&self, node: &str, plan: &VolumePlan) -> kube::Result<()> {
        for (claim, volume) in &plan.bindings {
            let uid = self.sources.claims.get_key(claim).and_then(|claim| claim.metadata.uid.clone());
            let known = self.sources.volumes.get("", volume);
            let version = known.and_then(|volume| volume.metadata.resource_version.clone());
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": version, "annotations": {BOUND_BY_CONTROLLER: "yes"}},
                "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace, "name": claim.name, "uid": uid}},
            }));
            let volumes: Api<core::PersistentVolume> = Api::all(self.client.clone());
            let patched = volumes.patch(volume, &PatchParams::default(), &patch).await?;
            self.sources.volumes.apply(patched);
        }
        for claim in &plan.provisions {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
            let claims: Api<core::PersistentVolumeClaim> =
                Api::namespaced(self.client.clone(), &claim.namespace);
            let patched = claims.patch(&claim.name, &PatchParams::default(), &patch).await?;
            self.sources.claims.apply(patched);
        }
        Ok(())
    }

    /// Sets the condition `DisruptionTarget` on the victims and deletes them; terminating victims are skipped.
    async fn preempt(&self, preemptor_uid: &str, node: &str, victims: &[PodKey]) -> kube::Result<()> {
        for key in victims {
            let Some(victim) = self.sources.pods.get_key(key) else { continue };
            if victim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let message = format!("{}: preempting to accommodate a higher priority pod", self.name);
            let condition = changed_condition(
                &victim,
                "DisruptionTarget",
                "True",
                "PreemptionByScheduler",
                &message,
                self.clock.now(),
            );
            if let Some(condition) = condition {
                match self.patch_status(key, json!({"conditions": [condition]})).await {
                    Err(error) if is_gone(&error) => continue,
                    result => result?,
                }
            }
            match self.pods(&key.namespace).delete(&key.name, &DeleteParams::default()).await {
                Err(error) if is_gone(&error) => continue,
                result => drop(result?),
            }
            let uid = victim.metadata.uid.as_deref().unwrap_or_default();
            let note = format!("Preempted by pod {preemptor_uid} on node {node}");
            self.record_event(key, uid, Some(preemptor_uid), EventKind::Preempted, &note).await;
        }
        Ok(())
    }

    /// Records an event; failures are ignored.
    pub(super) async fn record_event(
        &self,
        key: &ObjectKey,
        uid: &str,
        related_uid: Option<&str>,
        kind: EventKind,
        note: &str,
    ) -> Option<String> {
        let (severity, reason, action) = kind.words();
        let now = self.clock.now();
        let name = format!("{}.{:x}", key.name, name_suffix(now, uid, reason));
        let event: Event = serde_json::from_value(json!({
            "metadata": {"namespace": key.namespace, "name": name},
            "eventTime": self.clock.micro_time(),
            "reportingController": &*self.name,
            "reportingInstance": &*self.name,
            "type": severity,
            "reason": reason,
            "action": action,
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": key.namespace, "name": key.name, "uid": uid},
            "related": related_uid.map(|uid| json!({"apiVersion": "v1", "kind": "Pod", "uid": uid})),
            "note": shortened(note),
        }))
        .ok()?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), &key.namespace);
        let created = events.create(&PostParams::default(), &event).await.ok()?;
        created.metadata.name
    }

    /// Increments the count of an event.
    pub(super) async fn increment_event(&self, namespace: &str, name: &str, count: u32) {
        let patch =
            Patch::Merge(json!({"series": {"count": count, "lastObservedTime": self.clock.micro_time()}}));
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        // The event may have expired; then the patch fails, and the error is ignored.
        let _ = events.patch(name, &PatchParams::default(), &patch).await;
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum EventKind {
    Scheduled,
    FailedScheduling,
    Preempted,
}

impl EventKind {
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Scheduled => ("Normal", "Scheduled", "Binding"),
            Self::FailedScheduling => ("Warning", "FailedScheduling", "Scheduling"),
            Self::Preempted => ("Normal", "Preempted", "Preempting"),
        }
    }
}

/// The suffix of an event's name: the time, with uid and reason mixed in so that events of the same time differ.
fn name_suffix(now: Timestamp, uid: &str, reason: &str) -> u64 {
    let mixed = uid.bytes().chain(reason.bytes());
    let mixed = mixed.fold(0u64, |mixed, byte| mixed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    (now.as_nanosecond() as u64).wrapping_add(mixed % 1_000_000)
}

/// The API accepts notes of up to 1024 bytes.
fn shortened(note: &str) -> String {
    const BYTES_MAX: usize = 1024;
    if note.len() <= BYTES_MAX {
        return note.to_owned();
    }
    let end = (0..=BYTES_MAX - 4).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
    format!("{} ...", &note[..end])
}

/// The condition to write, unless the pod already has it.
fn changed_condition(
    pod: &core::Pod,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let present = conditions.into_iter().find(|condition| condition.type_ == kind);
    let generation = pod.metadata.generation;
    let mut changed_at = karpenter_runtime::clock::whole_seconds(now);
    if let Some(present) = present {
        let same = present.status == status
            && present.reason.as_deref() == Some(reason)
            && present.message.as_deref() == Some(message)
            && present.observed_generation == generation;
        if same {
            return None;
        }
        if let Some(time) = present.last_transition_time.as_ref().filter(|_| present.status == status) {
            changed_at = time.0;
        }
    }
    let mut condition = json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(changed_at),
    });
    if let (Some(condition), Some(generation)) = (condition.as_object_mut(), generation) {
        condition.insert("observedGeneration".to_owned(), json!(generation));
    }
    Some(condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: Value) -> core::Pod {
        serde_json::from_value(json!({"metadata": {"generation": 2}, "status": status})).expect("a pod")
    }

    #[test]
    fn condition_keeps_its_last_transition_time() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let refused = |pod: &core::Pod, message: &str| {
            changed_condition(pod, "PodScheduled", "False", "Unschedulable", message, now)
        };
        let fresh = refused(&pod(json!({})), "no").expect("written");
        assert_eq!(fresh["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(fresh["observedGeneration"], 2);
        let mut old = fresh.clone();
        old["lastTransitionTime"] = json!("2025-12-31T00:00:00Z");
        let known = pod(json!({"conditions": [old]}));
        assert_eq!(refused(&known, "no"), None);
        assert_eq!(
            refused(&known, "still no").expect("written")["lastTransitionTime"],
            "2025-12-31T00:00:00Z"
        );
    }

    #[test]
    fn notes_are_cut_to_1024_bytes() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&"ä".repeat(1000));
        assert!(long.len() <= 1024 && long.ends_with("ä ..."), "{} bytes", long.len());
    }
}
