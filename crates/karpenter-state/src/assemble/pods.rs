//! Classifies the pods of the input: bound to a node, pending, or ignored.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec as RawPodSpec;
use karpenter_model::duration::parse_go_duration;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{BoundPod, Daemon, Mobility, PodGroup, PodNames};
use karpenter_model::reason::Reason;
use rustc_hash::FxHashMap;

use super::equality::convert_to_equal_specs;
use crate::buffers;
use crate::convert::node::NodeDrafts;
use crate::convert::pod::{PodConverter, PodSource, uses_resource_claims};
use crate::default_spread::SpreadOwner;
use crate::notes::Note;
use crate::objects::Objects;
use crate::pod::{Phase, Pod};
use crate::pods::{is_owned_by, is_terminal, is_terminating, nominated_node};
use crate::requests::RequestSource;
use crate::workloads::{ExpandedNames, Expansion, expand, name_of, namespace_of};

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

pub(crate) fn source(pod: &Pod) -> PodSource<'_> {
    PodSource {
        namespace: pod.namespace(),
        name: &pod.name,
        labels: Some(pod.labels()),
        spec: &pod.spec,
        requests: RequestSource::Pod(pod),
        claim_templates: &[],
        spread_owner: SpreadOwner::of(pod),
    }
}

pub(crate) fn is_daemon(pod: &Pod) -> bool {
    is_owned_by(pod, "apps/v1", "DaemonSet")
}

fn is_mirror(pod: &Pod) -> bool {
    is_owned_by(pod, "v1", "Node")
}

/// Whether a pod of a deleted node has to be rescheduled.
fn is_reschedulable(pod: &Pod) -> bool {
    let returns = !is_terminating(pod) || is_owned_by(pod, "apps/v1", "StatefulSet");
    returns && !is_daemon(pod) && !is_mirror(pod) && !is_protected(pod)
}

/// Whether do-not-disrupt protects the pod. If the annotation has a duration, the pod counts as protected, because
/// without a clock the end of the duration is not known.
fn is_protected(pod: &Pod) -> bool {
    let value = pod.annotation(DO_NOT_DISRUPT);
    value.is_some_and(|value| value == "true" || parse_go_duration(value).is_ok_and(|nanos| nanos > 0))
}

/// Adds bound pods to their nodes and returns the pending pods, grouped by equal spec.
pub(super) fn place(
    objects: &Objects,
    drafts: &mut NodeDrafts,
    converter: &mut PodConverter<'_>,
    notes: &mut Vec<Note>,
) -> Vec<PodGroup> {
    let mut pending = Pending::default();
    let mut replicas = Replicas::default();
    let (mut gated, mut nominated, mut unknown_node, mut displaced) = (0, 0, 0, 0);
    for pod in objects.pods.iter().filter(|pod| !is_terminal(pod)) {
        let source = source(pod);
        if let Some(node_name) = pod.node_name.as_deref() {
            let Some(position) = drafts.by_node_name.get(node_name) else {
                unknown_node += 1;
                continue;
            };
            let draft = &mut drafts.drafts[*position];
            if !draft.is_deleting {
                draft.node.pods.push(BoundPod {
                    spec: replicas.convert(pod, source, converter),
                    is_daemon: is_daemon(pod),
                    is_terminating: is_terminating(pod),
                    mobility: Mobility::default(),
                });
            } else if is_reschedulable(pod) {
                displaced += 1;
                pending.add(replicas.convert(pod, source, converter), pod);
            }
            continue;
        }
        if is_terminating(pod) || is_daemon(pod) || is_mirror(pod) {
            continue;
        }
        let is_gated = source.spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        if is_gated {
            gated += 1;
        } else if nominated_node(pod).is_some() {
            nominated += 1;
        } else if matches!(pod.status.phase, Phase::Unset | Phase::Pending) {
            pending.add(replicas.convert(pod, source, converter), pod);
        }
    }
    let counts = [
        (gated, Note::GatedPods { count: gated }),
        (nominated, Note::NominatedPods { count: nominated }),
        (unknown_node, Note::PodsOnUnknownNodes { count: unknown_node }),
        (displaced, Note::DisplacedPods { count: displaced }),
    ];
    notes.extend(counts.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note));
    pending.into_groups()
}

/// The virtual pods of capacity buffers. A buffer that cannot be resolved gets a note.
pub(super) fn buffered(
    objects: &Objects,
    converter: &mut PodConverter<'_>,
    notes: &mut Vec<Note>,
) -> Vec<PodGroup> {
    let mut groups = Vec::new();
    for buffer in &objects.capacity_buffers {
        let title = format!("{}/{}", namespace_of(&buffer.metadata), name_of(&buffer.metadata));
        let resolved = match buffers::resolve(buffer, objects) {
            Ok(resolved) => resolved,
            Err(unresolved) => {
                notes.push(Note::BufferLeftOut { buffer: title, why: unresolved.message });
                continue;
            }
        };
        let count = u32::try_from(resolved.replicas).unwrap_or(0);
        let Some(first) = buffers::virtual_pods(buffer, &resolved.template, count.min(1)).pop() else {
            continue;
        };
        groups.push(PodGroup {
            spec: converter.convert(source(&first)),
            names: PodNames::Numbered {
                prefix: format!("capacity-buffer-{}", name_of(&buffer.metadata)).into(),
                count,
            },
            created_at_secs: first.created_at_secs(),
        });
    }
    groups
}

/// The latest pod of each controller and its converted spec.
#[derive(Default)]
pub(crate) struct Replicas<'a> {
    latest: FxHashMap<(&'a str, &'a str, &'a str), (&'a Pod, Arc<PodSpec>)>,
}

impl<'a> Replicas<'a> {
    pub(crate) fn convert(
        &mut self,
        pod: &'a Pod,
        source: PodSource<'_>,
        converter: &mut PodConverter<'_>,
    ) -> Arc<PodSpec> {
        let owner = pod.controller();
        let (kind, name) = owner.map_or(("", ""), |owner| (owner.kind.as_str(), owner.name.as_str()));
        let key = (pod.namespace(), kind, name);
        if let Some((latest, spec)) = self.latest.get(&key)
            && convert_to_equal_specs(latest, pod)
        {
            return spec.clone();
        }
        let spec = converter.convert(source);
        self.latest.insert(key, (pod, spec.clone()));
        spec
    }
}

/// Creation time and name of a pod.
type AgedName = (i64, Arc<str>);

/// Pods by spec, in order of first appearance.
#[derive(Default)]
struct Pending {
    /// Equal specs are stored once, so the address of a spec identifies its group.
    by_spec: FxHashMap<usize, usize>,
    groups: Vec<(Arc<PodSpec>, Vec<AgedName>)>,
}

impl Pending {
    fn add(&mut self, spec: Arc<PodSpec>, pod: &Pod) {
        let address = Arc::as_ptr(&spec) as usize;
        let position = *self.by_spec.entry(address).or_insert_with(|| {
            self.groups.push((spec, Vec::new()));
            self.groups.len() - 1
        });
        let name = (pod.created_at_secs(), Arc::from(&*pod.name));
        self.groups[position].1.push(name);
    }

    /// Pods are sorted by age within a group, oldest first, so that unschedulable pods of a group are the newest.
    fn into_groups(self) -> Vec<PodGroup> {
        let finish = |(spec, mut pods): (Arc<PodSpec>, Vec<AgedName>)| {
            pods.sort_unstable();
            let created_at_secs = pods.first().map_or(0, |(created, _)| *created);
            let names = pods.into_iter().map(|(_, name)| name).collect();
            PodGroup { spec, names: PodNames::Listed(names), created_at_secs }
        };
        self.groups.into_iter().map(finish).collect()
    }
}

/// The pods that workloads have not created yet.
pub(super) fn expanded(objects: &Objects, converter: &mut PodConverter<'_>) -> Vec<PodGroup> {
    let mut groups = Vec::new();
    for expansion in expand(objects) {
        if expansion.has_own_claims() {
            groups.extend(convert_each(&expansion, converter));
        } else {
            let spec = converter.convert(expansion_source(&expansion, &expansion.pod_name(0)));
            let positions: Vec<usize> = (0..expansion.count()).collect();
            groups.push(group(&expansion, spec, &positions));
        }
    }
    groups
}

fn convert_each(expansion: &Expansion<'_>, converter: &mut PodConverter<'_>) -> Vec<PodGroup> {
    let mut by_spec: Vec<(Arc<PodSpec>, Vec<usize>)> = Vec::new();
    let mut index: FxHashMap<usize, usize> = FxHashMap::default();
    for position in 0..expansion.count() {
        let name = expansion.pod_name(position);
        let spec = converter.convert(expansion_source(expansion, &name));
        let slot = *index.entry(Arc::as_ptr(&spec) as usize).or_insert_with(|| {
            by_spec.push((spec, Vec::new()));
            by_spec.len() - 1
        });
        by_spec[slot].1.push(position);
    }
    by_spec.into_iter().map(|(spec, positions)| group(expansion, spec, &positions)).collect()
}

fn expansion_source<'a>(expansion: &'a Expansion<'_>, name: &'a str) -> PodSource<'a> {
    PodSource {
        namespace: expansion.namespace,
        name,
        labels: Some(&expansion.labels),
        spec: expansion.spec,
        requests: RequestSource::Template(expansion.spec),
        claim_templates: expansion.claim_templates,
        spread_owner: expansion.selector.map_or(SpreadOwner::None, SpreadOwner::Selecting),
    }
}

fn group(expansion: &Expansion<'_>, spec: Arc<PodSpec>, positions: &[usize]) -> PodGroup {
    let names = match expansion.names {
        ExpandedNames::Numbered(count) if count as usize == positions.len() => {
            PodNames::Numbered { prefix: expansion.workload.into(), count }
        }
        _ => {
            PodNames::Listed(positions.iter().map(|position| expansion.pod_name(*position).into()).collect())
        }
    };
    PodGroup { spec, names, created_at_secs: expansion.created_at_secs }
}

/// One spec per DaemonSet: that of its newest active pod, which includes changes by admission; without an active pod,
/// that of the template.
pub(crate) fn daemons<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    sets: impl Iterator<Item = &'a DaemonSet>,
    converter: &mut PodConverter<'_>,
) -> Vec<Daemon> {
    let mut newest: FxHashMap<(&str, &str), &Pod> = FxHashMap::default();
    for pod in pods.filter(|pod| !is_terminal(pod) && !is_terminating(pod) && is_daemon(pod)) {
        let Some(owner) = pod.controller() else { continue };
        let entry = newest.entry((pod.namespace(), owner.name.as_str())).or_insert(pod);
        if (pod.created_at_secs(), &pod.name) > (entry.created_at_secs(), &entry.name) {
            *entry = pod;
        }
    }
    let mut daemons = Vec::new();
    for set in sets {
        let Some(template) = set.spec.as_ref().map(|spec| &spec.template) else { continue };
        let Some(template_spec) = &template.spec else { continue };
        let (namespace, name) = (namespace_of(&set.metadata), name_of(&set.metadata));
        let living = newest.get(&(namespace, name)).map(|pod| source(pod));
        let uses_claims = uses_resource_claims(living.map_or(template_spec, |living| living.spec));
        let mut spec = match living {
            Some(living) => {
                let unpinned = with_node_affinity_of(living.spec, template_spec);
                let spread_owner = SpreadOwner::Excluded;
                converter.convert(PodSource { spec: &unpinned, spread_owner, ..living })
            }
            None => converter.convert(PodSource {
                namespace,
                name,
                labels: template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()),
                spec: template_spec,
                requests: RequestSource::Template(template_spec),
                claim_templates: &[],
                spread_owner: SpreadOwner::Excluded,
            }),
        };
        if uses_claims {
            // The reason DynamicResources replaces any other reason, because it decides whether nodes reserve capacity
            // for the pod.
            Arc::make_mut(&mut spec).refusal = Some(Reason::DynamicResources);
        }
        daemons.push(Daemon { name: name.into(), spec });
    }
    daemons
}

/// The spec of a running DaemonSet pod with the node affinity of the template. The DaemonSet controller adds a node
/// affinity that pins each pod to its node; pods for other nodes must not have it.
fn with_node_affinity_of(living: &RawPodSpec, template: &RawPodSpec) -> RawPodSpec {
    let required = |spec: &RawPodSpec| {
        let node_affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
        node_affinity.required_during_scheduling_ignored_during_execution.clone()
    };
    let mut unpinned = living.clone();
    let affinity = unpinned.affinity.get_or_insert_default();
    affinity.node_affinity.get_or_insert_default().required_during_scheduling_ignored_during_execution =
        required(template);
    unpinned
}
