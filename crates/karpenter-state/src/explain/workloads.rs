//! The workloads of pods: owners, and the parts of pod templates that a fix may change.

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_explain::input::{Facts, PodFacts, PodState, WorkloadFacts};
use karpenter_view::ObjectRef;
use rustc_hash::FxHashMap;

use crate::objects::Objects;
use crate::pod::Pod;
use crate::pods;
use crate::workloads::{controller, expand, name_of, namespace_of};

/// The label that the Deployment controller adds to pods. Its value is the last part of the ReplicaSet's name.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

pub(super) fn add(objects: &Objects, facts: &mut Facts) {
    let owner_of_set: FxHashMap<(&str, &str), ObjectRef> = objects
        .replica_sets
        .iter()
        .filter_map(|set| {
            let owner = controller(&set.metadata)?;
            let namespace = namespace_of(&set.metadata);
            Some((
                (namespace, name_of(&set.metadata)),
                ObjectRef::namespaced(&owner.kind, namespace, &owner.name),
            ))
        })
        .collect();
    add_templates(objects, facts);
    let mut by_name: FxHashMap<(String, String), ObjectRef> = FxHashMap::default();
    for owner in facts.workloads.keys() {
        let key = (owner.namespace.clone().unwrap_or_default(), owner.name.clone());
        by_name.entry(key).or_insert_with(|| owner.clone());
    }
    for pod in &objects.pods {
        let owner = owner(pod, &owner_of_set);
        if owner.kind == "Pod" {
            facts.workloads.insert(owner.clone(), template(&pod.spec));
        }
        let created_secs = pod.created_at.map(|time| time.as_second());
        let value = PodFacts { owner, state: state(pod), created_secs };
        facts.pods.insert(format!("{}/{}", pod.namespace(), pod.name), value);
    }
    for expansion in expand(objects) {
        let key = (expansion.namespace.to_owned(), expansion.workload.to_owned());
        let Some(owner) = by_name.get(&key) else { continue };
        for position in 0..expansion.count() {
            let name = format!("{}/{}", expansion.namespace, expansion.pod_name(position));
            let value = PodFacts { owner: owner.clone(), state: PodState::Pending, created_secs: None };
            facts.pods.entry(name).or_insert(value);
        }
    }
}

/// The workload whose template the pod was created from. A pod without a workload is its own owner.
fn owner(pod: &Pod, owner_of_set: &FxHashMap<(&str, &str), ObjectRef>) -> ObjectRef {
    let namespace = pod.namespace();
    let Some(owner) = pod.controller() else { return ObjectRef::namespaced("Pod", namespace, &*pod.name) };
    if owner.kind == "ReplicaSet" {
        if let Some(deployment) = owner_of_set.get(&(namespace, owner.name.as_str())) {
            return deployment.clone();
        }
        let hash = pod.label(POD_TEMPLATE_HASH).map(|hash| format!("-{hash}"));
        if let Some(name) = hash.and_then(|hash| owner.name.strip_suffix(&hash)) {
            return ObjectRef::namespaced("Deployment", namespace, name);
        }
    }
    ObjectRef::namespaced(&owner.kind, namespace, &owner.name)
}

fn state(pod: &Pod) -> PodState {
    let gates = pod.spec.scheduling_gates.as_ref();
    if pods::is_terminal(pod) {
        PodState::Finished
    } else if pods::is_terminating(pod) {
        PodState::Terminating
    } else if let Some(node) = pods::node_name(pod) {
        PodState::Bound { node: node.to_owned() }
    } else if gates.is_some_and(|gates| !gates.is_empty()) {
        PodState::Gated
    } else if let Some(node) = pods::nominated_node(pod) {
        PodState::Nominated { node: node.to_owned() }
    } else {
        PodState::Pending
    }
}

fn add_templates(objects: &Objects, facts: &mut Facts) {
    let mut add = |kind: &str, metadata: &ObjectMeta, spec: Option<&PodSpec>| {
        let Some(spec) = spec else { return };
        let owner = ObjectRef::namespaced(kind, namespace_of(metadata), name_of(metadata));
        facts.workloads.insert(owner, template(spec));
    };
    for one in &objects.deployments {
        add("Deployment", &one.metadata, one.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()));
    }
    for one in &objects.stateful_sets {
        add("StatefulSet", &one.metadata, one.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()));
    }
    for one in objects.replica_sets.iter().filter(|one| controller(&one.metadata).is_none()) {
        let template = one.spec.as_ref().and_then(|spec| spec.template.as_ref());
        add("ReplicaSet", &one.metadata, template.and_then(|template| template.spec.as_ref()));
    }
    for one in objects.jobs.iter().filter(|one| controller(&one.metadata).is_none()) {
        add("Job", &one.metadata, one.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()));
    }
    for one in &objects.cron_jobs {
        let job = one.spec.as_ref().and_then(|spec| spec.job_template.spec.as_ref());
        add("CronJob", &one.metadata, job.and_then(|job| job.template.spec.as_ref()));
    }
}

fn template(spec: &PodSpec) -> WorkloadFacts {
    WorkloadFacts {
        tolerations: super::facts::values(spec.tolerations.iter().flatten()),
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        containers: spec.containers.iter().map(|container| container.name.clone()).collect(),
    }
}
