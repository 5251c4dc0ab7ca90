//! Decides the next step of a Deployment: which ReplicaSet to create, the sizes of the others, and the status.
//!
//! Upstream: pkg/controller/deployment/sync.go, rolling.go

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karpenter_runtime::object::{annotation, is_deleting, name_of};

use super::status;
use super::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION, REVISION_HISTORY, TEMPLATE_HASH};
use crate::controllers::{hash, owners};

/// A change of a ReplicaSet's size, as the message of the event states it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scaled {
    set: String,
    from: i32,
    to: i32,
}

impl fmt::Display for Scaled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.from < self.to { "up" } else { "down" };
        write!(out, "Scaled {direction} replica set {} from {} to {}", self.set, self.from, self.to)
    }
}

/// All writes of one pass.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) create: Option<ReplicaSet>,
    /// Existing ReplicaSets whose annotations, replicas or minReadySeconds change.
    pub(super) changes: Vec<ReplicaSet>,
    pub(super) scaled: Vec<Scaled>,
    pub(super) delete: Vec<String>,
    /// The revision to write to the Deployment's annotation; `None` if the annotation has this revision already.
    pub(super) revision: Option<String>,
    pub(super) status: DeploymentStatus,
    pub(super) again: Option<Duration>,
}

/// A working copy of the ReplicaSets while a pass is planned.
struct Draft<'a> {
    deployment: &'a Deployment,
    spec: &'a DeploymentSpec,
    before: &'a [Arc<ReplicaSet>],
    old: Vec<ReplicaSet>,
    newest: Option<ReplicaSet>,
    is_created: bool,
    scaled: Vec<Scaled>,
    delete: Vec<String>,
}

pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// Plans one pass. `old_pods_running` returns whether pods of ReplicaSets other than the one with the given uid may
/// run.
pub(super) fn plan(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    old_pods_running: impl Fn(Option<&str>) -> bool,
    now: Timestamp,
) -> Plan {
    let default_spec = DeploymentSpec::default();
    let spec = deployment.spec.as_ref().unwrap_or(&default_spec);
    let mut draft = Draft::new(deployment, spec, sets);
    let old_status = deployment.status.clone().unwrap_or_default();
    let mut base = old_status.clone();

    let paused = spec.paused.unwrap_or(false);
    if is_deleting(deployment) {
        let status = status::calculate(deployment, &base, draft.all(), draft.newest.as_ref(), now);
        return draft.finish(status, None, false);
    }
    status::note_pause(&mut base, spec, paused, now);
    if paused || draft.is_scaling() {
        draft.refresh_newest(false);
        draft.scale();
        if paused {
            draft.clean_up();
        }
        let status = status::calculate(deployment, &base, draft.all(), draft.newest.as_ref(), now);
        return draft.finish(status, None, true);
    }

    if is_recreate(deployment) {
        draft.refresh_newest(false);
        let scaled_down = draft.scale_old_to_zero();
        let newest_uid = draft.newest.as_ref().and_then(|set| set.metadata.uid.clone());
        if !scaled_down && !old_pods_running(newest_uid.as_deref()) {
            draft.refresh_newest(true);
            let wanted = draft.wanted();
            draft.scale_newest(wanted);
            if status::is_complete(deployment, &old_status) {
                draft.clean_up();
            }
        }
    } else {
        draft.refresh_newest(true);
        let size = draft.newest_size_allowed();
        let grown = !draft.is_created && draft.scale_newest(size);
        if !grown && !draft.shrink_old() && status::is_complete(deployment, &old_status) {
            draft.clean_up();
        }
    }
    let created = draft.is_created;
    let newest = draft.newest.as_ref();
    let status = status::rollout(deployment, base, draft.all(), newest, created, now);
    let again = status::next_check(spec, deployment, &status, now);
    draft.finish(status, again, true)
}

impl<'a> Draft<'a> {
    fn new(deployment: &'a Deployment, spec: &'a DeploymentSpec, before: &'a [Arc<ReplicaSet>]) -> Self {
        let mut old: Vec<ReplicaSet> = before.iter().map(|set| ReplicaSet::clone(set)).collect();
        old.sort_by(|one, two| age_key(one).cmp(&age_key(two)));
        let wanted = hash::without_label(&spec.template, TEMPLATE_HASH);
        let position = old.iter().position(|set| {
            let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            template.is_some_and(|template| hash::without_label(template, TEMPLATE_HASH) == wanted)
        });
        let newest = position.map(|position| old.remove(position));
        Self {
            deployment,
            spec,
            before,
            old,
            newest,
            is_created: false,
            scaled: Vec::new(),
            delete: Vec::new(),
        }
    }

    fn wanted(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn max_surge(&self) -> i32 {
        bounds(self.spec).0
    }

    fn all(&self) -> impl Iterator<Item = &ReplicaSet> + Clone {
        self.old.iter().chain(&self.newest)
    }

    /// Whether `spec.replicas` changed since the ReplicaSets were scaled.
    fn is_scaling(&self) -> bool {
        self.all().filter(|set| size(set) > 0).any(|set| {
            let desired = annotation(set, DESIRED_REPLICAS).and_then(|text| text.parse::<i32>().ok());
            desired.is_some_and(|desired| desired != self.wanted())
        })
    }

    /// Updates the newest ReplicaSet's annotations, or creates the ReplicaSet.
    fn refresh_newest(&mut self, create: bool) {
        let revision = self.old.iter().map(revision_of).max().unwrap_or(0) + 1;
        if let Some(set) = &mut self.newest {
            annotate(self.deployment, set, revision);
            if let Some(spec) = &mut set.spec {
                spec.min_ready_seconds = self.spec.min_ready_seconds;
            }
            return;
        }
        if !create {
            return;
        }
        let mut set = new_set(self.deployment, self.spec);
        annotate(self.deployment, &mut set, revision);
        self.newest = Some(set);
        self.is_created = true;
        let size = self.newest_size_allowed();
        let (wanted, surge) = (self.wanted(), self.max_surge());
        if let Some(set) = &mut self.newest {
            set_size(set, size);
            note_sizes(set, wanted, wanted + surge);
            if size > 0 {
                self.scaled.push(Scaled { set: name_of(set).to_string(), from: 0, to: size });
            }
        }
    }

    /// The largest number of replicas that the newest ReplicaSet may have in this pass, given the pods of the other
    /// ReplicaSets and maxSurge.
    fn newest_size_allowed(&self) -> i32 {
        let current = self.newest.as_ref().map(size).unwrap_or(0);
        if is_recreate(self.deployment) || current > self.wanted() {
            return self.wanted();
        }
        let total: i32 = self.all().map(size).sum();
        let room = self.wanted() + self.max_surge() - total;
        if room <= 0 { current } else { current + room.min(self.wanted() - current) }
    }

    fn scale_newest(&mut self, to: i32) -> bool {
        let (wanted, surge) = (self.wanted(), self.max_surge());
        let Some(set) = &mut self.newest else { return false };
        resize(set, to, wanted, surge, &mut self.scaled)
    }

    fn resize_old(&mut self, position: usize, to: i32) -> bool {
        let (wanted, surge) = (self.wanted(), self.max_surge());
        resize(&mut self.old[position], to, wanted, surge, &mut self.scaled)
    }

    fn scale_old_to_zero(&mut self) -> bool {
        let active: Vec<usize> = (0..self.old.len()).filter(|at| size(&self.old[*at]) > 0).collect();
        let mut any = false;
        for position in active {
            any |= self.resize_old(position, 0);
        }
        any
    }

    /// Scales old ReplicaSets down as far as enough pods are available, unavailable pods first.
    fn shrink_old(&mut self) -> bool {
        if self.old.iter().all(|set| size(set) == 0) {
            return false;
        }
        let (_, max_unavailable) = bounds(self.spec);
        let min_available = self.wanted() - max_unavailable;
        let newest_unavailable = self.newest.as_ref().map(|set| size(set) - available(set)).unwrap_or(0);
        let total: i32 = self.all().map(size).sum();
        let most = total - min_available - newest_unavailable;
        if most <= 0 {
            return false;
        }
        let mut any = false;
        let mut left = most;
        for position in 0..self.old.len() {
            let (size, available) = (size(&self.old[position]), available(&self.old[position]));
            let count = left.min(size - available);
            if left > 0 && count > 0 {
                any |= self.resize_old(position, size - count);
                left -= count;
            }
        }
        let mut spare = self.all().map(available).sum::<i32>() - min_available;
        for position in 0..self.old.len() {
            let size = size(&self.old[position]);
            let count = spare.min(size);
            if spare > 0 && count > 0 {
                any |= self.resize_old(position, size - count);
                spare -= count;
            }
        }
        any
    }

    /// Applies a change of `spec.replicas` without rolling: if one ReplicaSet is active, it gets the whole change; if
    /// several are active, each gets a share in proportion to its size.
    fn scale(&mut self) {
        let wanted = self.wanted();
        let active: Vec<usize> = (0..self.old.len()).filter(|at| size(&self.old[*at]) > 0).collect();
        let newest_active = self.newest.as_ref().is_some_and(|set| size(set) > 0);
        match (active.as_slice(), newest_active) {
            ([], _) if self.newest.is_some() => {
                self.scale_newest(wanted);
                return;
            }
            ([], _) => {
                if let Some(last) = self.old.len().checked_sub(1) {
                    self.resize_old(last, wanted);
                }
                return;
            }
            ([only], false) => {
                self.resize_old(*only, wanted);
                return;
            }
            _ => {}
        }
        if self.newest.as_ref().is_some_and(|set| is_saturated(set, wanted)) {
            self.scale_old_to_zero();
            return;
        }
        if !is_recreate(self.deployment) {
            self.scale_in_proportion();
        }
    }

    fn scale_in_proportion(&mut self) {
        let (wanted, surge) = (self.wanted(), self.max_surge());
        let status_replicas = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        let allowed = if wanted > 0 { wanted + surge } else { 0 };
        let mut active: Vec<&mut ReplicaSet> =
            self.old.iter_mut().chain(self.newest.as_mut()).filter(|set| size(set) > 0).collect();
        let to_add = allowed - active.iter().map(|set| size(set)).sum::<i32>();
        // The largest ReplicaSets come first; among equal sizes, the newest gains more and the oldest loses more.
        active.sort_by(|one, two| {
            let by_age = age_key(one).cmp(&age_key(two));
            size(two).cmp(&size(one)).then(if to_add > 0 { by_age.reverse() } else { by_age })
        });
        let mut sizes = Vec::new();
        let mut added = 0;
        for set in &active {
            let share = share(set, wanted, surge, status_replicas, to_add, added);
            sizes.push(size(set) + share);
            added += share;
        }
        if let Some(first) = sizes.first_mut().filter(|_| to_add != 0) {
            *first = (*first + to_add - added).max(0);
        }
        for (set, to) in active.into_iter().zip(sizes) {
            resize(set, to, wanted, surge, &mut self.scaled);
        }
    }

    /// Deletes old ReplicaSets beyond the revision history limit.
    fn clean_up(&mut self) {
        let limit = self.spec.revision_history_limit.unwrap_or(i32::MAX).max(0) as usize;
        let mut alive: Vec<&ReplicaSet> = self.old.iter().filter(|set| !is_deleting(*set)).collect();
        let Some(excess) = alive.len().checked_sub(limit) else { return };
        alive.sort_by(|one, two| {
            revision_of(one).cmp(&revision_of(two)).then_with(|| age_key(one).cmp(&age_key(two)))
        });
        for set in alive.into_iter().take(excess) {
            let status = set.status.clone().unwrap_or_default();
            let seen = status.observed_generation.unwrap_or(0) >= set.metadata.generation.unwrap_or(0);
            if status.replicas == 0 && size(set) == 0 && seen {
                self.delete.push(name_of(set).to_string());
            }
        }
    }

    fn finish(self, status: DeploymentStatus, again: Option<Duration>, writes: bool) -> Plan {
        let revision = self
            .newest
            .as_ref()
            .and_then(|set| annotation(set, REVISION))
            .filter(|revision| annotation(self.deployment, REVISION) != Some(revision))
            .map(str::to_string);
        let changes = self
            .all()
            .filter(|set| {
                self.before
                    .iter()
                    .find(|before| before.metadata.name == set.metadata.name)
                    .is_some_and(|before| **before != **set)
            })
            .cloned()
            .collect();
        let create = self.newest.clone().filter(|_| self.is_created);
        Plan {
            create,
            changes: if writes { changes } else { Vec::new() },
            scaled: self.scaled,
            delete: self.delete,
            revision: revision.filter(|_| writes),
            status,
            again,
        }
    }
}

/// The sort key by age: oldest first, then by name.
fn age_key(set: &ReplicaSet) -> (Option<Timestamp>, &str) {
    (set.metadata.creation_timestamp.as_ref().map(|time| time.0), name_of(set))
}

pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn set_size(set: &mut ReplicaSet, size: i32) {
    if let Some(spec) = &mut set.spec {
        spec.replicas = Some(size);
    }
}

fn resize(set: &mut ReplicaSet, to: i32, wanted: i32, surge: i32, scaled: &mut Vec<Scaled>) -> bool {
    note_sizes(set, wanted, wanted + surge);
    let from = size(set);
    if from == to {
        return false;
    }
    set_size(set, to);
    scaled.push(Scaled { set: name_of(set).to_string(), from, to });
    true
}

fn note_sizes(set: &mut ReplicaSet, wanted: i32, most: i32) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED_REPLICAS.into(), wanted.to_string());
    annotations.insert(MAX_REPLICAS.into(), most.to_string());
}

fn is_saturated(set: &ReplicaSet, wanted: i32) -> bool {
    let desired = annotation(set, DESIRED_REPLICAS).and_then(|text| text.parse::<i32>().ok());
    size(set) == wanted && desired == Some(wanted) && available(set) == wanted
}

/// How many of the `to_add` pods (negative if pods are removed) one ReplicaSet gets, in proportion to its size.
fn share(set: &ReplicaSet, wanted: i32, surge: i32, status_replicas: i32, to_add: i32, added: i32) -> i32 {
    if size(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = if wanted == 0 {
        -size(set)
    } else {
        let before = annotation(set, MAX_REPLICAS)
            .and_then(|text| text.parse::<i32>().ok())
            .filter(|before| *before > 0)
            .unwrap_or(status_replicas);
        if before == 0 {
            return 0;
        }
        let scaled = f64::from(size(set)) * f64::from(wanted + surge) / f64::from(before);
        scaled.round() as i32 - size(set)
    };
    let left = to_add - added;
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

pub(super) fn revision_of(set: &ReplicaSet) -> i64 {
    annotation(set, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// An absolute number, or a percentage of `total` rounded up or down.
pub(crate) fn scaled_value(value: Option<&IntOrString>, total: i32, round_up: bool) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(count)) => *count,
        Some(IntOrString::String(text)) => {
            let percent = text.trim_end_matches('%').parse::<i64>().unwrap_or(0);
            let product = percent * i64::from(total);
            (if round_up { (product + 99).div_euclid(100) } else { product.div_euclid(100) }) as i32
        }
    }
}

/// maxSurge and maxUnavailable as numbers.
pub(super) fn bounds(spec: &DeploymentSpec) -> (i32, i32) {
    let strategy = spec.strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
        return (0, 0);
    }
    let wanted = spec.replicas.unwrap_or(1);
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled_value(rolling.and_then(|rolling| rolling.max_surge.as_ref()), wanted, true);
    let unavailable =
        scaled_value(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), wanted, false);
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    (surge, if wanted == 0 { 0 } else { unavailable.min(wanted) })
}

fn new_set(deployment: &Deployment, spec: &DeploymentSpec) -> ReplicaSet {
    const NAME_BYTES_MAX: usize = 253;
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = hash::short_hash(&spec.template, collisions);
    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(TEMPLATE_HASH.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.into(), hash.clone());
    let mut name = name_of(deployment).to_string();
    name.truncate(NAME_BYTES_MAX - 1 - hash.len());
    let metadata = ObjectMeta {
        name: Some(format!("{name}-{hash}")),
        namespace: deployment.metadata.namespace.clone(),
        labels: Some(labels),
        owner_references: Some(vec![owners::controller_reference(deployment)]),
        ..ObjectMeta::default()
    };
    let spec = ReplicaSetSpec {
        replicas: Some(0),
        min_ready_seconds: spec.min_ready_seconds,
        selector,
        template: Some(template),
    };
    ReplicaSet { metadata, spec: Some(spec), status: None }
}

const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];
const HISTORY_BYTES_MAX: usize = 2000;

/// Copies the Deployment's annotations to its newest ReplicaSet and raises the revision to `revision`.
fn annotate(deployment: &Deployment, set: &mut ReplicaSet, revision: i64) {
    let before = revision_of(set);
    let known = annotation(set, REVISION).is_some();
    let annotations: &mut BTreeMap<String, String> = set.metadata.annotations.get_or_insert_default();
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    if before >= revision {
        return;
    }
    annotations.insert(REVISION.into(), revision.to_string());
    if known {
        let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
        let mut revisions: Vec<&str> = history.split(',').filter(|part| !part.is_empty()).collect();
        let last = before.to_string();
        revisions.push(&last);
        while revisions.len() > 1 && revisions.join(",").len() > HISTORY_BYTES_MAX {
            revisions.remove(0);
        }
        let history = revisions.join(",");
        annotations.insert(REVISION_HISTORY.into(), history);
    }
}
