//! Decides the next steps of a StatefulSet, and its pods, claims and status.
//!
//! Upstream: pkg/controller/statefulset/stateful_set_control.go

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_runtime::object::{is_deleting, label, name_of, namespace_of};

use crate::controllers::context::unless_zero;
use crate::controllers::revisions::{REVISION_HASH, template_of};
use crate::controllers::{owners, pods};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Create {
        ordinal: i32,
        /// Whether the pod is created from the revision that a rolling update replaces, not from the newest one.
        from_current: bool,
    },
    Delete {
        name: String,
    },
}

/// Splits a pod name: `web-3` has the parent `web` and the ordinal 3.
pub(super) fn parent_and_ordinal(name: &str) -> Option<(&str, i32)> {
    let (parent, ordinal) = name.rsplit_once('-')?;
    Some((parent, ordinal.parse().ok()?))
}

fn ordinal(pod: &Pod) -> i32 {
    parent_and_ordinal(name_of(pod)).map(|(_, ordinal)| ordinal).unwrap_or(-1)
}

struct Shape {
    start: i32,
    replicas: i32,
    partition: i32,
    min_ready: i32,
    monotonic: bool,
}

impl Shape {
    fn of(spec: &StatefulSetSpec) -> Self {
        let rolling = spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        Self {
            start: spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0),
            replicas: spec.replicas.unwrap_or(1),
            partition: rolling.and_then(|rolling| rolling.partition).unwrap_or(0),
            min_ready: spec.min_ready_seconds.unwrap_or(0),
            monotonic: spec.pod_management_policy.as_deref() != Some("Parallel"),
        }
    }

    fn contains(&self, ordinal: i32) -> bool {
        (self.start..self.start + self.replicas).contains(&ordinal)
    }
}

fn is_healthy(pod: &Pod, min_ready: i32, now: Timestamp) -> bool {
    pods::phase(pod) == "Running" && pods::is_available(pod, min_ready, now) && !is_deleting(pod)
}

/// The steps of this pass; at most one with `OrderedReady`.
pub(super) fn plan(
    set: &StatefulSet,
    current: &ControllerRevision,
    wanted: &ControllerRevision,
    owned: &[Arc<Pod>],
    now: Timestamp,
) -> Vec<Step> {
    let Some(spec) = &set.spec else { return Vec::new() };
    let shape = Shape::of(spec);
    let by_ordinal: BTreeMap<i32, &Arc<Pod>> = owned.iter().map(|pod| (ordinal(pod), pod)).collect();
    let healthy = |pod: &Pod| is_healthy(pod, shape.min_ready, now);
    let delete = |pod: &Pod| Step::Delete { name: name_of(pod).to_string() };
    let mut steps = Vec::new();

    for ordinal in shape.start..shape.start + shape.replicas {
        match by_ordinal.get(&ordinal) {
            None => {
                let from_current =
                    name_of(current) != name_of(wanted) && ordinal < shape.start + shape.partition;
                steps.push(Step::Create { ordinal, from_current });
                if shape.monotonic {
                    return steps;
                }
            }
            Some(pod) if pods::is_finished(pod) => {
                if !is_deleting(&***pod) {
                    steps.push(delete(pod));
                }
                if shape.monotonic {
                    return steps;
                }
            }
            Some(pod) if shape.monotonic && !healthy(pod) => return steps,
            Some(_) => {}
        }
    }
    if !steps.is_empty() {
        return steps;
    }

    let condemned: Vec<&&Arc<Pod>> = by_ordinal
        .iter()
        .rev()
        .filter(|(ordinal, _)| **ordinal >= 0 && !shape.contains(**ordinal))
        .map(|(_, pod)| pod)
        .collect();
    // With `OrderedReady` all replicas are healthy here, so the first unhealthy pod is the lowest of those to delete.
    let first_unhealthy = condemned.iter().rev().find(|pod| !healthy(pod)).map(|pod| name_of(&****pod));
    for pod in &condemned {
        if is_deleting(&****pod) {
            if shape.monotonic {
                return steps;
            }
            continue;
        }
        if shape.monotonic && !healthy(pod) && first_unhealthy != Some(name_of(&****pod)) {
            return steps;
        }
        steps.push(delete(pod));
        if shape.monotonic {
            return steps;
        }
    }
    if !steps.is_empty() {
        return steps;
    }
    roll(spec, &shape, wanted, &by_ordinal, healthy)
}

/// Replaces pods from the highest ordinal down to the partition, one at a time; each must be healthy before the next.
/// `maxUnavailable` is behind a feature gate that is off by default.
fn roll(
    spec: &StatefulSetSpec,
    shape: &Shape,
    wanted: &ControllerRevision,
    by_ordinal: &BTreeMap<i32, &Arc<Pod>>,
    healthy: impl Fn(&Pod) -> bool,
) -> Vec<Step> {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return Vec::new();
    }
    for ordinal in (shape.start + shape.partition..shape.start + shape.replicas).rev() {
        let Some(pod) = by_ordinal.get(&ordinal) else { return Vec::new() };
        if label(&***pod, REVISION_HASH) != Some(name_of(wanted)) && !is_deleting(&***pod) {
            return vec![Step::Delete { name: name_of(&***pod).to_string() }];
        }
        if !healthy(pod) {
            return Vec::new();
        }
    }
    Vec::new()
}

/// The claims of a pod, one per template.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let Some(spec) = &set.spec else { return Vec::new() };
    let templates = spec.volume_claim_templates.iter().flatten();
    templates
        .map(|template| {
            let mut claim = template.clone();
            claim.status = None;
            claim.metadata.name = Some(claim_name(template, set, ordinal));
            claim.metadata.namespace = Some(namespace_of(set).to_string());
            let labels = claim.metadata.labels.get_or_insert_default();
            labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
            claim
        })
        .collect()
}

fn claim_name(template: &PersistentVolumeClaim, set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", name_of(template), name_of(set))
}

pub(super) fn new_pod(set: &StatefulSet, revision: &ControllerRevision, ordinal: i32) -> Pod {
    let spec = set.spec.clone().unwrap_or_default();
    let template = template_of(revision).unwrap_or(spec.template);
    let name = format!("{}-{ordinal}", name_of(set));
    let mut pod = pods::from_template(&template, namespace_of(set), owners::controller_reference(set));
    let metadata: &mut ObjectMeta = &mut pod.metadata;
    metadata.generate_name = None;
    metadata.name = Some(name.clone());
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone());
    labels.insert("apps.kubernetes.io/pod-index".into(), ordinal.to_string());
    labels.insert(REVISION_HASH.into(), name_of(revision).to_string());
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.hostname = Some(name);
    pod_spec.subdomain = spec.service_name.filter(|name| !name.is_empty());
    let templates = spec.volume_claim_templates.unwrap_or_default();
    let mut volumes: Vec<Volume> = templates
        .iter()
        .map(|template| Volume {
            name: name_of(template).to_string(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(template, set, ordinal),
                read_only: None,
            }),
            ..Volume::default()
        })
        .collect();
    let others = pod_spec.volumes.take().unwrap_or_default();
    volumes.extend(
        others.into_iter().filter(|other| templates.iter().all(|template| name_of(template) != other.name)),
    );
    pod_spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    pod
}

pub(super) fn status(
    set: &StatefulSet,
    current: &ControllerRevision,
    wanted: &ControllerRevision,
    owned: &[Arc<Pod>],
    now: Timestamp,
) -> StatefulSetStatus {
    let shape = Shape::of(&set.spec.clone().unwrap_or_default());
    let (mut ready, mut available, mut of_current, mut of_wanted) = (0, 0, 0, 0);
    for pod in owned {
        if pods::phase(pod) == "Running" && pods::is_ready(pod) {
            ready += 1;
            available += i32::from(pods::is_available(pod, shape.min_ready, now));
        }
        if !is_deleting(&**pod) {
            let revision = label(&**pod, REVISION_HASH);
            of_current += i32::from(revision == Some(name_of(current)));
            of_wanted += i32::from(revision == Some(name_of(wanted)));
        }
    }
    let replicas = owned.len() as i32;
    let old = set.status.clone().unwrap_or_default();
    let complete = of_wanted == shape.replicas && ready == shape.replicas && replicas == shape.replicas;
    let current_name = if complete { name_of(wanted) } else { name_of(current) };
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas,
        ready_replicas: unless_zero(ready),
        available_replicas: Some(available),
        current_replicas: unless_zero(if complete { of_wanted } else { of_current }),
        updated_replicas: unless_zero(of_wanted),
        current_revision: Some(current_name.to_string()),
        update_revision: Some(name_of(wanted).to_string()),
        collision_count: Some(old.collision_count.unwrap_or(0)),
        conditions: old.conditions,
    }
}
