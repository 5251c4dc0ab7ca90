//! The Kubernetes objects of an input, typed, checked and without duplicates.
//!
//! This module decides which documents are usable. An unusable document is reported with its location, its field and
//! valid values, and left out; all others are kept, so one mistake affects one object. Kinds that planning does not use
//! are only counted. Relations between objects are resolved by `assemble`.

mod check;
mod decode;
mod problem;
mod strict_reader;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod as RawPod, PodTemplate, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use karpenter_api::manifest::Document;
use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_api::schema::short_text;
use karpenter_api::types::{CapacityBuffer, EC2NodeClass, KWOKNodeClass, NodeClaim, NodeOverlay, NodePool};
use rustc_hash::FxHashMap;
use serde_json::Value;

pub use problem::{ObjectError, Origin, Severity};

use decode::Decoded;
use problem::Problem;

use crate::pod::{Pod, PodInterner};

/// All objects of an input, in input order.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    pub node_pools: Vec<NodePool>,
    pub ec2_node_classes: Vec<EC2NodeClass>,
    pub kwok_node_classes: Vec<KWOKNodeClass>,
    pub node_claims: Vec<NodeClaim>,
    pub node_overlays: Vec<NodeOverlay>,
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    pub deployments: Vec<Deployment>,
    pub replica_sets: Vec<ReplicaSet>,
    pub stateful_sets: Vec<StatefulSet>,
    pub daemon_sets: Vec<DaemonSet>,
    pub jobs: Vec<Job>,
    pub cron_jobs: Vec<CronJob>,
    pub persistent_volume_claims: Vec<PersistentVolumeClaim>,
    pub persistent_volumes: Vec<PersistentVolume>,
    pub storage_classes: Vec<StorageClass>,
    pub csi_nodes: Vec<CSINode>,
    pub namespaces: Vec<Namespace>,
    pub pod_disruption_budgets: Vec<PodDisruptionBudget>,
    pub priority_classes: Vec<PriorityClass>,
    pub services: Vec<Service>,
    pub pod_templates: Vec<PodTemplate>,
    pub capacity_buffers: Vec<CapacityBuffer>,
    /// The default spread constraints of kube-scheduler; not read from documents.
    pub scheduler_config: SchedulerConfig,
}

/// The result of reading documents.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub objects: Objects,
    /// Errors (the object is left out) and warnings (the object is used), in input order.
    pub errors: Vec<ObjectError>,
    /// The number of objects of kinds that planning does not use.
    pub ignored: BTreeMap<String, usize>,
}

impl Objects {
    /// Types and checks every document.
    pub fn from_documents(documents: Vec<Document>) -> Reading {
        let mut reader = ObjectReader::default();
        for document in documents {
            reader.read(document);
        }
        reader.finish()
    }
}

/// Groups with kinds of this project: an unknown kind or version in them is an error.
const OWN_GROUPS: [&str; 3] = ["karpenter.sh", "karpenter.k8s.aws", "karpenter.kwok.sh"];

/// The API group is shared with other autoscalers, so other kinds and versions in it are ignored.
const CAPACITY_BUFFER_VERSION: &str = "autoscaling.x-k8s.io/v1beta1";

/// Kubernetes kinds that planning reads, with the only supported version.
const READ_KINDS: [(&str, &str); 18] = [
    ("Pod", "v1"),
    ("Node", "v1"),
    ("Namespace", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("PersistentVolume", "v1"),
    ("Deployment", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("CronJob", "batch/v1"),
    ("StorageClass", "storage.k8s.io/v1"),
    ("CSINode", "storage.k8s.io/v1"),
    ("PodDisruptionBudget", "policy/v1"),
    ("PriorityClass", "scheduling.k8s.io/v1"),
    ("ReplicationController", "v1"),
    ("Service", "v1"),
    ("PodTemplate", "v1"),
];

/// Groups with older versions of the kinds above; the same kind name in other groups is unrelated.
const READ_GROUPS: [&str; 6] = ["", "apps", "batch", "extensions", "policy", "scheduling.k8s.io"];

/// Reads documents one by one. A document is dropped as soon as it has been converted to an object, to save memory.
#[derive(Debug, Default)]
pub struct ObjectReader {
    reading: Reading,
    seen: FxHashMap<String, Origin>,
    family: PodInterner,
}

/// A document that is being read.
struct Candidate {
    origin: Origin,
    kind: String,
    /// `Kind namespace/name`, or `Kind name`.
    title: String,
    value: Value,
}

impl ObjectReader {
    /// The objects and errors of all documents that were read.
    pub fn finish(self) -> Reading {
        self.reading
    }

    /// Deserializes and validates one document.
    pub fn read(&mut self, document: Document) {
        let Document { source, index, item, line, value } = document;
        let origin = Origin { source, document: index, item, line };
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        for (field, present) in [("apiVersion", &api_version), ("kind", &kind)] {
            if present.is_empty() {
                let problem =
                    Problem::new(field, "is missing").valid("a non-empty text, as in every manifest");
                self.report(&origin, "object", Severity::Error, problem);
                return;
            }
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let is_buffer = kind == "CapacityBuffer" && api_version == CAPACITY_BUFFER_VERSION;
        if is_buffer || OWN_GROUPS.contains(&group) {
            self.read_own(Candidate { title: title(&kind, &value), origin, kind, value });
            return;
        }
        match READ_KINDS.iter().find(|(known, _)| *known == kind) {
            Some((_, version)) if *version == api_version => {
                // The title is set after the object is complete.
                self.read_kubernetes(Candidate { title: String::new(), origin, kind, value });
            }
            Some((_, version)) if READ_GROUPS.contains(&group) => {
                let problem = Problem::new(
                    "apiVersion",
                    format!("kind {kind} of {} is not supported", short_text(&api_version)),
                )
                .valid(*version);
                let title = title(&kind, &value);
                self.report(&origin, &title, Severity::Error, problem);
            }
            _ => *self.reading.ignored.entry(short_text(&kind)).or_default() += 1,
        }
    }

    fn read_own(&mut self, candidate: Candidate) {
        match candidate.kind.as_str() {
            "NodePool" => self.admit(candidate, |objects| &mut objects.node_pools),
            "EC2NodeClass" => self.admit(candidate, |objects| &mut objects.ec2_node_classes),
            "KWOKNodeClass" => self.admit(candidate, |objects| &mut objects.kwok_node_classes),
            "NodeOverlay" => self.admit(candidate, |objects| &mut objects.node_overlays),
            "NodeClaim" => self.admit(candidate, |objects| &mut objects.node_claims),
            "CapacityBuffer" => self.admit(candidate, |objects| &mut objects.capacity_buffers),
            _ => {
                // This project has no such kind. The schema check is run only to suggest the kind that was probably
                // meant.
                let decoded = decode::own::<Value>(&candidate.value);
                self.conclude(&candidate, decoded.problems);
            }
        }
    }

    fn admit<T>(&mut self, candidate: Candidate, list: impl FnOnce(&mut Objects) -> &mut Vec<T>)
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        let decoded = decode::own::<T>(&candidate.value);
        self.keep(candidate, decoded, list);
    }

    fn read_kubernetes(&mut self, mut candidate: Candidate) {
        decode::complete(
            &mut candidate.value,
            &candidate.kind,
            is_namespaced(&candidate.kind),
            candidate.origin.document,
        );
        candidate.title = title(&candidate.kind, &candidate.value);
        // The other kinds are checked against our CRDs, with these two additional rules.
        let mut refusals: Vec<_> =
            karpenter_api::validate::size_error(&candidate.value).into_iter().collect();
        if refusals.is_empty() {
            refusals = karpenter_api::validate::metadata_errors(&candidate.value);
        }
        if !refusals.is_empty() {
            let problems = refusals.into_iter().map(|error| (Severity::Error, decode::field_problem(error)));
            self.conclude(&candidate, problems.collect());
            return;
        }
        match candidate.kind.as_str() {
            "Pod" => {
                let Decoded { object, problems } = checked::<RawPod>(&candidate, check::pod);
                let pod = object.map(|raw| self.family.keep(raw));
                self.keep(candidate, Decoded { object: pod, problems }, |objects| &mut objects.pods)
            }
            "Node" => self.decode(candidate, check::node, |objects| &mut objects.nodes),
            "Namespace" => self.decode(candidate, check::nothing, |objects| &mut objects.namespaces),
            "PersistentVolumeClaim" => {
                self.decode(candidate, check::nothing, |objects| &mut objects.persistent_volume_claims)
            }
            "PersistentVolume" => {
                self.decode(candidate, check::persistent_volume, |objects| &mut objects.persistent_volumes)
            }
            "Deployment" => self.decode(candidate, check::deployment, |objects| &mut objects.deployments),
            "ReplicaSet" => self.decode(candidate, check::replica_set, |objects| &mut objects.replica_sets),
            "StatefulSet" => {
                self.decode(candidate, check::stateful_set, |objects| &mut objects.stateful_sets)
            }
            "DaemonSet" => self.decode(candidate, check::daemon_set, |objects| &mut objects.daemon_sets),
            "Job" => self.decode(candidate, check::job, |objects| &mut objects.jobs),
            "CronJob" => self.decode(candidate, check::cron_job, |objects| &mut objects.cron_jobs),
            "StorageClass" => self.decode(candidate, check::nothing, |objects| &mut objects.storage_classes),
            "CSINode" => self.decode(candidate, check::csi_node, |objects| &mut objects.csi_nodes),
            "PodDisruptionBudget" => {
                self.decode(candidate, check::nothing, |objects| &mut objects.pod_disruption_budgets)
            }
            "PriorityClass" => {
                self.decode(candidate, check::nothing, |objects| &mut objects.priority_classes)
            }
            "PodTemplate" => self.decode(candidate, check::nothing, |objects| &mut objects.pod_templates),
            "Service" => self.decode(candidate, check::nothing, |objects| &mut objects.services),
            "ReplicationController" => match decode::replication_controller(&mut candidate.value) {
                // The kind is an older form of ReplicaSet with the same fields, so it is planned like a ReplicaSet.
                Ok(()) => self.decode(candidate, check::replica_set, |objects| &mut objects.replica_sets),
                Err(problem) => self.report(&candidate.origin, &candidate.title, Severity::Error, problem),
            },
            _ => *self.reading.ignored.entry(candidate.kind).or_default() += 1,
        }
    }

    fn decode<T: serde::de::DeserializeOwned>(
        &mut self,
        candidate: Candidate,
        check: impl FnOnce(&T, &mut Vec<Problem>),
        list: impl FnOnce(&mut Objects) -> &mut Vec<T>,
    ) {
        let decoded = checked(&candidate, check);
        self.keep(candidate, decoded, list);
    }

    fn keep<T>(
        &mut self,
        candidate: Candidate,
        decoded: Decoded<T>,
        list: impl FnOnce(&mut Objects) -> &mut Vec<T>,
    ) {
        let Decoded { object, problems } = decoded;
        if !self.conclude(&candidate, problems) {
            return;
        }
        match self.seen.get(&candidate.title) {
            Some(first) => {
                let problem = Problem::new("metadata.name", format!("is already used in {first}"))
                    .valid("one object per kind, namespace and name");
                self.report(&candidate.origin, &candidate.title, Severity::Error, problem);
            }
            None => {
                if let Some(object) = object {
                    list(&mut self.reading.objects).push(object);
                }
                self.seen.insert(candidate.title, candidate.origin);
            }
        }
    }

    /// Reports all problems of an object; returns whether the object may be used.
    fn conclude(&mut self, candidate: &Candidate, problems: Vec<(Severity, Problem)>) -> bool {
        let usable = problems.iter().all(|(severity, _)| *severity == Severity::Warning);
        for (severity, problem) in problems {
            self.report(&candidate.origin, &candidate.title, severity, problem);
        }
        usable
    }

    fn report(&mut self, origin: &Origin, title: &str, severity: Severity, problem: Problem) {
        self.reading.errors.push(ObjectError {
            origin: origin.clone(),
            object: title.to_owned(),
            path: problem.path,
            message: problem.message,
            valid: problem.valid,
            severity,
        });
    }
}

fn checked<T: serde::de::DeserializeOwned>(
    candidate: &Candidate,
    check: impl FnOnce(&T, &mut Vec<Problem>),
) -> Decoded<T> {
    let mut decoded = decode::kubernetes::<T>(&candidate.value);
    if let Some(object) = &decoded.object {
        let mut problems = Vec::new();
        check(object, &mut problems);
        decoded.problems.extend(problems.into_iter().map(|problem| (Severity::Error, problem)));
    }
    decoded
}

fn is_namespaced(kind: &str) -> bool {
    !matches!(kind, "Node" | "Namespace" | "PersistentVolume" | "StorageClass" | "CSINode" | "PriorityClass")
}

fn title(kind: &str, value: &Value) -> String {
    let field = |name: &str| value.get("metadata").and_then(|m| m.get(name)).and_then(Value::as_str);
    match (field("namespace"), field("name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => format!("{kind} without a name"),
    }
}
