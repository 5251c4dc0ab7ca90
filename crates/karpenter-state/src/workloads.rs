//! The pods that workloads have not created yet, as a count and a template.
//!
//! Existing pods of the input are counted: a workload adds only the missing replicas. Decisions of controllers beyond
//! the replica count (surge during a rollout, backoff of failed jobs, autoscaling) are not predicted.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use rustc_hash::FxHashMap;

use crate::objects::Objects;
use crate::pod::{Phase, Pod};
use crate::pods::is_terminal;

/// Pods that a workload will create.
#[derive(Debug)]
pub(crate) struct Expansion<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) workload: &'a str,
    pub(crate) labels: Cow<'a, BTreeMap<String, String>>,
    pub(crate) spec: &'a PodSpec,
    pub(crate) claim_templates: &'a [PersistentVolumeClaim],
    /// The selector of the pods' controller, if the kind of the controller counts for default spread constraints.
    pub(crate) selector: Option<&'a LabelSelector>,
    pub(crate) names: ExpandedNames,
    pub(crate) created_at_secs: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExpandedNames {
    /// The names are `<workload>-0`, `<workload>-1` and so on, for this number of pods.
    Numbered(u32),
    /// The names are `<workload>-<ordinal>` for these ordinals.
    Ordinals(Vec<u32>),
}

impl Expansion<'_> {
    pub(crate) fn count(&self) -> usize {
        match &self.names {
            ExpandedNames::Numbered(count) => *count as usize,
            ExpandedNames::Ordinals(ordinals) => ordinals.len(),
        }
    }

    pub(crate) fn pod_name(&self, position: usize) -> String {
        let ordinal = match &self.names {
            ExpandedNames::Numbered(_) => position as u32,
            ExpandedNames::Ordinals(ordinals) => ordinals.get(position).copied().unwrap_or_default(),
        };
        format!("{}-{ordinal}", self.workload)
    }

    /// Whether each pod gets its own volumes, so that pods of one workload may differ.
    pub(crate) fn has_own_claims(&self) -> bool {
        let volumes = self.spec.volumes.iter().flatten();
        !self.claim_templates.is_empty() || volumes.into_iter().any(|volume| volume.ephemeral.is_some())
    }
}

pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

pub(crate) fn created_at_secs(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

pub(crate) fn namespace_of(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

pub(crate) fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

type WorkloadKey<'a> = (&'a str, &'a str, &'a str);

/// The number of pods of each workload in the input.
#[derive(Default)]
struct Present<'a> {
    live: FxHashMap<WorkloadKey<'a>, u32>,
    succeeded: FxHashMap<WorkloadKey<'a>, u32>,
    /// Names of existing pods by StatefulSet, including terminating ones, because pods that replace them have the same
    /// names.
    of_stateful_set: FxHashMap<WorkloadKey<'a>, BTreeSet<&'a str>>,
}

impl<'a> Present<'a> {
    fn count(objects: &'a Objects) -> Self {
        let deployment_of: FxHashMap<(&str, &str), &str> = objects
            .replica_sets
            .iter()
            .filter_map(|set| {
                let owner = controller(&set.metadata).filter(|owner| owner.kind == "Deployment")?;
                Some(((namespace_of(&set.metadata), name_of(&set.metadata)), owner.name.as_str()))
            })
            .collect();
        let mut present = Self::default();
        for pod in &objects.pods {
            let Some(owner) = pod.controller() else { continue };
            let namespace = pod.namespace();
            // `objects` has converted ReplicationControllers to ReplicaSets.
            let kind = if owner.kind == "ReplicationController" { "ReplicaSet" } else { owner.kind.as_str() };
            let key = (namespace, kind, owner.name.as_str());
            if kind == "StatefulSet" && !is_terminal(pod) {
                present.of_stateful_set.entry(key).or_default().insert(&pod.name);
            }
            if pod.status.phase == Phase::Succeeded {
                *present.succeeded.entry(key).or_default() += 1;
            }
            if is_terminal(pod) || pod.deleted_at.is_some() {
                continue;
            }
            *present.live.entry(key).or_default() += 1;
            if kind == "ReplicaSet" {
                let deployment = deployment_of.get(&(namespace, owner.name.as_str())).copied();
                if let Some(deployment) = deployment.or_else(|| deployment_by_hash(pod, &owner.name)) {
                    *present.live.entry((namespace, "Deployment", deployment)).or_default() += 1;
                }
            }
        }
        present
    }

    fn live(&self, key: WorkloadKey<'_>) -> u32 {
        self.live.get(&key).copied().unwrap_or(0)
    }
}

/// A ReplicaSet that is not in the input is named `<deployment>-<hash>`, and its pods have the hash as a
/// label.
fn deployment_by_hash<'a>(pod: &Pod, replica_set: &'a str) -> Option<&'a str> {
    let hash = pod.label("pod-template-hash")?;
    replica_set.strip_suffix(hash)?.strip_suffix('-')
}

/// The missing pods of all workloads, in input order by kind.
pub(crate) fn expand(objects: &Objects) -> Vec<Expansion<'_>> {
    let present = Present::count(objects);
    let mut expansions = Vec::new();
    for deployment in &objects.deployments {
        let Some(spec) = &deployment.spec else { continue };
        let key = key("Deployment", &deployment.metadata);
        let missing = replicas(spec.replicas).saturating_sub(present.live(key));
        push(&mut expansions, &deployment.metadata, &spec.template, Some(&spec.selector), missing);
    }
    let deployments: BTreeSet<(&str, &str)> = objects
        .deployments
        .iter()
        .map(|deployment| (namespace_of(&deployment.metadata), name_of(&deployment.metadata)))
        .collect();
    for set in &objects.replica_sets {
        let Some(spec) = &set.spec else { continue };
        let owner = controller(&set.metadata).filter(|owner| owner.kind == "Deployment");
        let is_owned_by_listed_deployment = owner
            .is_some_and(|owner| deployments.contains(&(namespace_of(&set.metadata), owner.name.as_str())));
        if let (false, Some(template)) = (is_owned_by_listed_deployment, &spec.template) {
            let missing =
                replicas(spec.replicas).saturating_sub(present.live(key("ReplicaSet", &set.metadata)));
            push(&mut expansions, &set.metadata, template, Some(&spec.selector), missing);
        }
    }
    for set in &objects.stateful_sets {
        let Some(spec) = &set.spec else { continue };
        let existing = present.of_stateful_set.get(&key("StatefulSet", &set.metadata));
        let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
        let start = u32::try_from(start).unwrap_or(0);
        let count = replicas(spec.replicas);
        push(&mut expansions, &set.metadata, &spec.template, Some(&spec.selector), count);
        let Some(expansion) = expansions.last_mut().filter(|_| count > 0 && spec.template.spec.is_some())
        else {
            continue;
        };
        expansion.claim_templates = spec.volume_claim_templates.as_deref().unwrap_or_default();
        if start > 0 || existing.is_some() {
            let name = name_of(&set.metadata);
            let is_missing = |ordinal: &u32| {
                existing.is_none_or(|names| !names.contains(format!("{name}-{ordinal}").as_str()))
            };
            let ordinals = (start..start.saturating_add(count)).filter(is_missing).collect();
            expansion.names = ExpandedNames::Ordinals(ordinals);
        }
        if expansion.count() == 0 {
            expansions.pop();
        }
    }
    for job in objects.jobs.iter().filter(|job| !is_finished(job)) {
        let Some(spec) = &job.spec else { continue };
        let key = key("Job", &job.metadata);
        let reported = job.status.as_ref().and_then(|status| status.succeeded);
        let reported = reported.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        let succeeded = present.succeeded.get(&key).copied().unwrap_or(0).max(reported);
        let missing = job_pods(spec, succeeded).saturating_sub(present.live(key));
        push_job(&mut expansions, &job.metadata, spec, missing);
    }
    let running: BTreeSet<(&str, &str)> = objects
        .jobs
        .iter()
        .filter(|job| !is_finished(job))
        .filter_map(|job| {
            let owner = controller(&job.metadata).filter(|owner| owner.kind == "CronJob")?;
            Some((namespace_of(&job.metadata), owner.name.as_str()))
        })
        .collect();
    for cron_job in &objects.cron_jobs {
        let Some(spec) = &cron_job.spec else { continue };
        let is_running = running.contains(&(namespace_of(&cron_job.metadata), name_of(&cron_job.metadata)));
        if let (false, false, Some(job)) = (is_running, spec.suspend == Some(true), &spec.job_template.spec) {
            push_job(&mut expansions, &cron_job.metadata, job, job_pods(job, 0));
        }
    }
    expansions
}

fn key<'a>(kind: &'a str, metadata: &'a ObjectMeta) -> WorkloadKey<'a> {
    (namespace_of(metadata), kind, name_of(metadata))
}

fn replicas(replicas: Option<i32>) -> u32 {
    replicas.map_or(1, |count| u32::try_from(count).unwrap_or(0))
}

fn is_finished(job: &Job) -> bool {
    let Some(status) = &job.status else { return false };
    let conditions = status.conditions.iter().flatten();
    status.completion_time.is_some()
        || conditions
            .into_iter()
            .any(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True")
}

/// The number of pods that a job runs in parallel. Without `completions` the first success ends the job, so
/// only parallelism counts.
fn job_pods(spec: &JobSpec, succeeded: u32) -> u32 {
    if spec.suspend == Some(true) {
        return 0;
    }
    let parallelism = replicas(spec.parallelism);
    match spec.completions {
        Some(completions) => parallelism.min(replicas(Some(completions)).saturating_sub(succeeded)),
        None if succeeded > 0 => 0,
        None => parallelism,
    }
}

fn push<'a>(
    expansions: &mut Vec<Expansion<'a>>,
    metadata: &'a ObjectMeta,
    template: &'a PodTemplateSpec,
    selector: Option<&'a LabelSelector>,
    count: u32,
) {
    let Some(spec) = &template.spec else { return };
    if count == 0 {
        return;
    }
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    expansions.push(Expansion {
        namespace: namespace_of(metadata),
        workload: name_of(metadata),
        labels: labels.map_or_else(|| Cow::Owned(BTreeMap::new()), Cow::Borrowed),
        spec,
        claim_templates: &[],
        selector,
        names: ExpandedNames::Numbered(count),
        created_at_secs: created_at_secs(metadata),
    });
}

/// Pods of a job have its name as a label, which spread constraints commonly select.
fn push_job<'a>(
    expansions: &mut Vec<Expansion<'a>>,
    metadata: &'a ObjectMeta,
    spec: &'a JobSpec,
    count: u32,
) {
    let before = expansions.len();
    push(expansions, metadata, &spec.template, None, count);
    for expansion in &mut expansions[before..] {
        let labels = expansion.labels.to_mut();
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.entry(key.to_owned()).or_insert_with(|| name_of(metadata).to_owned());
        }
    }
}
