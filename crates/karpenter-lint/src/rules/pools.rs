//! Pools by themselves and next to each other.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::labels;
use karpenter_model::requirements::Requirements;

use crate::finding::{Code, Report};
use crate::pool::Pool;
use crate::{Scene, text};

pub(crate) fn check(scene: &Scene<'_>, report: &mut Report) {
    for pool in &scene.pools {
        check_contradiction(pool, report);
        check_types(pool, report);
        check_class(scene, pool, report);
    }
    check_overlaps(scene, report);
    check_exclusive_labels(scene, report);
    check_selected(scene, report);
}

/// A label that the pool's own requirement excludes: no node can be both.
fn check_contradiction(pool: &Pool<'_>, report: &mut Report) {
    for (key, value) in &pool.labels {
        let Some(requirement) = pool.requirements.get(labels::normalize(key)) else { continue };
        if !requirement.has(value) {
            report.add(
                Code::PoolUnselectable,
                pool.place(),
                format!("spec.template.metadata.labels[{key}]"),
                format!("the label says {value}, and the requirement {requirement} allows no such node"),
                "remove the label or the requirement",
            );
        }
    }
}

fn check_types(pool: &Pool<'_>, report: &mut Report) {
    let Some(catalog) = pool.catalog.filter(|catalog| !catalog.is_empty()) else { return };
    if pool.types(&Requirements::new()).next().is_some() {
        return;
    }
    // The first requirement that alone leaves nothing is the one to name.
    let alone = pool.offered.iter().find(|requirement| {
        let only: Requirements = [(*requirement).clone()].into_iter().collect();
        !catalog.iter().any(|one| {
            one.requirements.intersects(&only)
                && one.offerings.iter().any(|offering| offering.requirements.intersects(&only))
        })
    });
    let why = match alone {
        Some(requirement) => format!("no instance type of {} has {requirement}", catalog.len()),
        None => format!("no instance type of {} meets all requirements together", catalog.len()),
    };
    // Where the region is not said it is a guess, and zones are the one thing that is wrong everywhere else.
    let fix = match alone {
        Some(requirement) if &*requirement.key == labels::ZONE => {
            "name a zone of the region whose types were looked at, or that region with --region"
        }
        _ => "widen the requirements; karpenter plan --explain names the types that come close",
    };
    report.add(Code::PoolWithoutTypes, pool.place(), "spec.template.spec.requirements", why, fix);
}

fn check_class(scene: &Scene<'_>, pool: &Pool<'_>, report: &mut Report) {
    let kind = text(pool.value, "/spec/template/spec/nodeClassRef/kind");
    let name = text(pool.value, "/spec/template/spec/nodeClassRef/name");
    let of_kind: Vec<&str> =
        scene.classes.iter().filter(|(other, _)| *other == kind).map(|(_, name)| *name).collect();
    // An input without any class of the kind is only a part of what is installed.
    if !of_kind.is_empty() && !of_kind.contains(&name) {
        report.add(
            Code::ClassMissing,
            pool.place(),
            "spec.template.spec.nodeClassRef.name",
            format!("there is no {kind} {name} in the input, so that the pool never becomes ready"),
            format!("one of: {}", of_kind.join(", ")),
        );
    }
}

fn check_overlaps(scene: &Scene<'_>, report: &mut Report) {
    for (position, one) in scene.pools.iter().enumerate() {
        for other in &scene.pools[position + 1..] {
            if one.weight != other.weight || one.hard_taints != other.hard_taints || !overlap(one, other) {
                continue;
            }
            report.add(
                Code::PoolsOverlap,
                other.place(),
                "spec.weight",
                format!(
                    "pods that may use this pool may use NodePool {} as well, for the same instance types and with the same \
                     weight, so that which one grows is left to chance and to prices",
                    one.name
                ),
                "give one of them a weight, or tell them apart by a label that pods select or by a taint",
            );
        }
    }
}

/// Whether both pools could make a node for one pod: no label tells them apart, and they share a type.
fn overlap(one: &Pool<'_>, other: &Pool<'_>) -> bool {
    let mine = without_names(&one.offered);
    let theirs = without_names(&other.offered);
    if !mine.intersects(&theirs) {
        return false;
    }
    match (one.catalog, other.catalog) {
        (Some(_), Some(_)) => {
            let names: BTreeSet<&str> = one.types(&theirs).map(|one| &*one.name).collect();
            other.types(&mine).any(|one| names.contains(&*one.name))
        }
        _ => true,
    }
}

fn without_names(offered: &Requirements) -> Requirements {
    let mut offered = offered.clone();
    offered.remove(labels::NODEPOOL);
    offered.remove("karpenter.sh/provisioner-name");
    offered
}

/// Labels attract the pods that select them; they repel nobody.
fn check_exclusive_labels(scene: &Scene<'_>, report: &mut Report) {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in scene.pools.iter().flat_map(|pool| &pool.labels) {
        if !scene.open_keys.contains(labels::normalize(key)) {
            values.entry(key).or_default().insert(value);
        }
    }
    for pool in scene.pools.iter().filter(|pool| pool.hard_taints.is_empty()) {
        let exclusive =
            pool.labels.iter().find(|(key, _)| values.get(key).is_some_and(|values| values.len() > 1));
        if let Some((key, value)) = exclusive {
            report.add(
                Code::LabelDoesNotRepel,
                pool.place(),
                format!("spec.template.metadata.labels[{key}]"),
                format!("tells this pool from others, but pods that do not select {key} may still land here"),
                format!("add the taint {key}={value}:NoSchedule and let its workloads tolerate it"),
            );
        }
    }
}

fn check_selected(scene: &Scene<'_>, report: &mut Report) {
    if scene.placeable().next().is_none() {
        return;
    }
    for pool in &scene.pools {
        let selects =
            |requirements: &Requirements| pool.offered.compatible(requirements, scene.open_keys).is_ok();
        let able: Vec<_> = scene.placeable().filter(|one| one.wanted.iter().any(selects)).collect();
        let untolerated = pool.hard_taints.iter().find(|taint| {
            !able.iter().any(|workload| workload.tolerations.iter().any(|one| one.tolerates(taint)))
        });
        match untolerated {
            _ if able.is_empty() => report.add(
                Code::PoolUnselectable,
                pool.place(),
                "spec.template",
                "no workload of the input can select this pool",
                "remove the pool, or let a workload select its labels",
            ),
            Some(taint) => report.add(
                Code::PoolUnselectable,
                pool.place(),
                "spec.template.spec.taints",
                format!("no workload of the input tolerates {taint}"),
                "remove the taint, or add a toleration to the workloads that are meant",
            ),
            None => {}
        }
    }
}
