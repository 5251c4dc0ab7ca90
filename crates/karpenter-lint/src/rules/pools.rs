//! Rules for a single NodePool, and rules that compare NodePools.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::labels;
use karpenter_model::requirements::Requirements;

use crate::finding::{Code, Report};
use crate::pool::Pool;
use crate::{Context, text};

pub(crate) fn check(context: &Context<'_>, report: &mut Report) {
    for pool in &context.pools {
        check_contradiction(pool, report);
        check_types(pool, report);
        check_class(context, pool, report);
    }
    check_overlaps(context, report);
    check_exclusive_labels(context, report);
    check_selected(context, report);
}

/// Reports a label that contradicts a requirement of the same NodePool, because no node can satisfy both.
fn check_contradiction(pool: &Pool<'_>, report: &mut Report) {
    for (key, value) in &pool.labels {
        let Some(requirement) = pool.requirements.get(labels::normalize(key)) else { continue };
        if !requirement.has(value) {
            report.add(
                Code::PoolUnselectable,
                pool.subject(),
                format!("spec.template.metadata.labels[{key}]"),
                format!("the label {value} contradicts the requirement {requirement}"),
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
    // The finding names the first requirement that no instance type meets, even without the other requirements.
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
    // Without --region, the assumed region may not be that of the zone, so the instance types of another region may
    // have been checked.
    let fix = match alone {
        Some(requirement) if &*requirement.key == labels::ZONE => {
            "set a zone of the region whose instance types were checked, or set --region"
        }
        _ => "widen the requirements; karpenter plan --explain lists the closest instance types",
    };
    report.add(Code::PoolWithoutTypes, pool.subject(), "spec.template.spec.requirements", why, fix);
}

fn check_class(context: &Context<'_>, pool: &Pool<'_>, report: &mut Report) {
    let kind = text(pool.value, "/spec/template/spec/nodeClassRef/kind");
    let name = text(pool.value, "/spec/template/spec/nodeClassRef/name");
    let of_kind: Vec<&str> =
        context.classes.iter().filter(|(other, _)| *other == kind).map(|(_, name)| *name).collect();
    // If the input has no node class of this kind, the classes are probably installed separately, so nothing is
    // reported.
    if !of_kind.is_empty() && !of_kind.contains(&name) {
        report.add(
            Code::ClassMissing,
            pool.subject(),
            "spec.template.spec.nodeClassRef.name",
            format!("{kind} {name} is not in the input; the NodePool does not become ready"),
            format!("set one of: {}", of_kind.join(", ")),
        );
    }
}

fn check_overlaps(context: &Context<'_>, report: &mut Report) {
    for (position, one) in context.pools.iter().enumerate() {
        for other in &context.pools[position + 1..] {
            if one.weight != other.weight
                || one.repelling_taints != other.repelling_taints
                || !overlap(one, other)
            {
                continue;
            }
            report.add(
                Code::PoolsOverlap,
                other.subject(),
                "spec.weight",
                format!(
                    "pods that can use this NodePool can also use NodePool {}, with the same instance types and weight; which one \
                     launches nodes depends on prices",
                    one.name
                ),
                "set a weight on one of them, or distinguish them by a label that pods select or by a taint",
            );
        }
    }
}

/// Whether both NodePools could launch a node for one pod, because no label distinguishes them and they have an
/// instance type in common.
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

/// Reports a label that attracts pods but keeps none away: pods without a node selector can run on these nodes as well.
fn check_exclusive_labels(context: &Context<'_>, report: &mut Report) {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in context.pools.iter().flat_map(|pool| &pool.labels) {
        if !context.open_keys.contains(labels::normalize(key)) {
            values.entry(key).or_default().insert(value);
        }
    }
    for pool in context.pools.iter().filter(|pool| pool.repelling_taints.is_empty()) {
        let exclusive =
            pool.labels.iter().find(|(key, _)| values.get(key).is_some_and(|values| values.len() > 1));
        if let Some((key, value)) = exclusive {
            report.add(
                Code::LabelDoesNotRepel,
                pool.subject(),
                format!("spec.template.metadata.labels[{key}]"),
                format!("distinguishes this NodePool, but pods that do not select {key} can still be scheduled to its nodes"),
                format!("add the taint {key}={value}:NoSchedule, and a toleration to its workloads"),
            );
        }
    }
}

fn check_selected(context: &Context<'_>, report: &mut Report) {
    if context.schedulable().next().is_none() {
        return;
    }
    for pool in &context.pools {
        let selects =
            |requirements: &Requirements| pool.offered.compatible(requirements, context.open_keys).is_ok();
        let able: Vec<_> = context.schedulable().filter(|one| one.wanted.iter().any(selects)).collect();
        let untolerated = pool.repelling_taints.iter().find(|taint| {
            !able.iter().any(|workload| workload.tolerations.iter().any(|one| one.tolerates(taint)))
        });
        match untolerated {
            _ if able.is_empty() => report.add(
                Code::PoolUnselectable,
                pool.subject(),
                "spec.template",
                "no workload of the input can use this NodePool",
                "remove the NodePool, or select its labels in a workload",
            ),
            Some(taint) => report.add(
                Code::PoolUnselectable,
                pool.subject(),
                "spec.template.spec.taints",
                format!("no workload of the input tolerates {taint}"),
                "remove the taint, or add a toleration to the workloads of this NodePool",
            ),
            None => {}
        }
    }
}
