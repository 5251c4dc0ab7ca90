//! Workloads next to the pools that should take them.

use std::collections::BTreeSet;

use karpenter_model::requirements::{Incompatible, Operator, Requirement, Requirements};
use serde_json::Value;

use crate::finding::{Code, Report};
use crate::pool::{Pool, read_hard_taint};
use crate::workload::{Workload, is_zero};
use crate::{Scene, list, text};

const PROVISIONER_NAME: &str = "karpenter.sh/provisioner-name";
const DO_NOT_EVICT: &str = "karpenter.sh/do-not-evict";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

pub(crate) fn check(scene: &Scene<'_>, report: &mut Report) {
    for workload in &scene.workloads {
        check_requests(workload, report);
        check_volumes(workload, report);
    }
    if !scene.serves_provisioners() {
        scene.workloads.iter().for_each(|workload| check_do_not_evict(workload, report));
    }
    for workload in scene.placeable() {
        if is_karpenter(workload) {
            check_karpenter(scene, workload, report);
        } else if !scene.pools.is_empty() && !check_provisioner_name(scene, workload, report) {
            check_placement(scene, workload, report);
        }
    }
}

/// Without requests everything fits everywhere, and nodes are sized for nothing.
fn check_requests(workload: &Workload<'_>, report: &mut Report) {
    for (index, container) in list(workload.pod, "/containers").iter().enumerate() {
        let has = |resource: &str| {
            ["requests", "limits"]
                .iter()
                .any(|kind| container.pointer(&format!("/resources/{kind}/{resource}")).is_some())
        };
        let missing: Vec<&str> = ["cpu", "memory"].into_iter().filter(|resource| !has(resource)).collect();
        if !missing.is_empty() {
            report.add(
                Code::RequestsMissing,
                workload.place(),
                format!("{}.containers[{index}].resources.requests", workload.path),
                format!("says nothing about {}; nodes are chosen by requests alone", missing.join(" and ")),
                "set requests to what the container uses",
            );
        }
    }
}

/// An API server refuses such a pod, and a Deployment of it never gets one.
fn check_volumes(workload: &Workload<'_>, report: &mut Report) {
    let claims =
        list(workload.value, "/spec/volumeClaimTemplates").iter().map(|one| text(one, "/metadata/name"));
    let known: BTreeSet<&str> =
        list(workload.pod, "/volumes").iter().map(|one| text(one, "/name")).chain(claims).collect();
    for list_name in ["containers", "initContainers"] {
        for (index, container) in list(workload.pod, &format!("/{list_name}")).iter().enumerate() {
            for (mount, name) in
                list(container, "/volumeMounts").iter().map(|one| text(one, "/name")).enumerate()
            {
                if !known.contains(name) {
                    report.add(
                        Code::VolumeMissing,
                        workload.place(),
                        format!("{}.{list_name}[{index}].volumeMounts[{mount}].name", workload.path),
                        format!("the pod has no volume {name:?}, so that the API server refuses it"),
                        format!("add {name} to {}.volumes, for example as emptyDir", workload.path),
                    );
                }
            }
        }
    }
}

/// Whoever wrote it wants to be left alone, and is not.
fn check_do_not_evict(workload: &Workload<'_>, report: &mut Report) {
    let annotation = |key: &str| {
        workload.pod_metadata().and_then(|metadata| metadata.pointer("/annotations")?.get(key)?.as_str())
    };
    // Any other value never kept a pod.
    if annotation(DO_NOT_EVICT) != Some("true") || annotation(DO_NOT_DISRUPT).is_some() {
        return;
    }
    let metadata = workload.path.strip_suffix("spec").unwrap_or_default();
    report.add(
        Code::DoNotEvict,
        workload.place(),
        format!("{metadata}metadata.annotations[{DO_NOT_EVICT}]"),
        "means nothing on nodes of v1 pools, so that consolidation and drift move the pods",
        format!("write {DO_NOT_DISRUPT}: \"true\"; it also counts on nodes of Provisioners"),
    );
}

fn is_karpenter(workload: &Workload<'_>) -> bool {
    let label = |pointer: &str| {
        workload
            .value
            .pointer(pointer)
            .and_then(|labels| labels.get("app.kubernetes.io/name"))
            .and_then(Value::as_str)
    };
    let is_named = ["/metadata/labels", "/spec/template/metadata/labels"]
        .iter()
        .any(|at| label(at) == Some("karpenter"));
    is_named
        || list(workload.pod, "/containers").iter().any(|container| {
            let image = text(container, "/image").split(['@', ':']).next().unwrap_or_default();
            text(container, "/name") == "controller" && image.split('/').any(|part| part == "karpenter")
        })
}

fn check_karpenter(scene: &Scene<'_>, workload: &Workload<'_>, report: &mut Report) {
    let avoids = |requirements: &Requirements| {
        let excluded = requirements.get("karpenter.sh/nodepool");
        excluded.is_some_and(|one| one.operator() == Operator::DoesNotExist)
    };
    if workload.wanted.iter().all(avoids) {
        return;
    }
    let may_land = |pool: &&Pool<'_>| {
        workload.tolerates(pool)
            && workload.wanted.iter().any(|wanted| pool.offered.compatible(wanted, scene.open_keys).is_ok())
    };
    let why = match scene.pools.iter().find(may_land) {
        Some(pool) => format!(
            "may be scheduled onto nodes of NodePool {}, which it manages: if such a node goes, nobody is left to replace it",
            pool.name
        ),
        None if scene.pools.is_empty() => {
            "may be scheduled onto nodes that it manages: if such a node goes, nobody is left to replace it"
                .to_owned()
        }
        None => return,
    };
    report.add(
        Code::KarpenterOnOwnNodes,
        workload.place(),
        format!("{}.affinity.nodeAffinity", workload.path),
        why,
        "require that karpenter.sh/nodepool and karpenter.sh/provisioner-name do not exist, as the chart does",
    );
}

/// Whether the workload selects a Provisioner that no pool of the input comes from.
fn check_provisioner_name(scene: &Scene<'_>, workload: &Workload<'_>, report: &mut Report) -> bool {
    let selects = |wanted: &Requirements| {
        wanted
            .get(PROVISIONER_NAME)
            .is_some_and(|one| matches!(one.operator(), Operator::In | Operator::Exists))
    };
    if scene.serves_provisioners() || !workload.wanted.iter().all(selects) {
        return false;
    }
    report.add(
        Code::ProvisionerNameSelected,
        workload.place(),
        workload.selector_field(),
        format!("selects {PROVISIONER_NAME}, which nodes of v1 pools do not carry"),
        "select karpenter.sh/nodepool instead",
    );
    true
}

fn check_placement(scene: &Scene<'_>, workload: &Workload<'_>, report: &mut Report) {
    if scene.foreign_nodes.iter().any(|(_, node)| fits(workload, node)) {
        return;
    }
    let wants = |pool: &&Pool<'_>| {
        workload.wanted.iter().any(|wanted| pool.offered.compatible(wanted, scene.open_keys).is_ok())
    };
    let selectable: Vec<&Pool<'_>> = scene.pools.iter().filter(wants).collect();
    if selectable.is_empty() {
        report.add(
            Code::NoSuchNode,
            workload.place(),
            workload.selector_field(),
            nearest_refusal(scene, workload),
            "select what a pool offers, or add a pool for it",
        );
        return;
    }
    let has_types = |pool: &&&Pool<'_>| pool.catalog.is_none() || first_type(pool, workload).is_some();
    let launchable: Vec<&Pool<'_>> = selectable.iter().filter(has_types).copied().collect();
    if launchable.is_empty() {
        let names: Vec<&str> = selectable.iter().map(|pool| pool.name).collect();
        let devices: Vec<&str> = workload.extended.iter().copied().collect();
        let with =
            if devices.is_empty() { String::new() } else { format!(" with {}", devices.join(" and ")) };
        report.add(
            Code::NoSuchNode,
            workload.place(),
            if devices.is_empty() {
                workload.selector_field()
            } else {
                format!("{}.containers", workload.path)
            },
            format!("NodePool {} has no instance type for it{with}", names.join(", ")),
            "select another type, or widen the pool's requirements",
        );
        return;
    }
    if launchable.iter().any(|pool| workload.tolerates(pool)) {
        return;
    }
    let Some((pool, taint)) = launchable.iter().find_map(|pool| {
        let untolerated = |taint: &&_| !workload.tolerations.iter().any(|one| one.tolerates(taint));
        Some((pool, pool.hard_taints.iter().find(untolerated)?))
    }) else {
        return;
    };
    report.add(
        Code::TaintNotTolerated,
        workload.place(),
        format!("{}.tolerations", workload.path),
        format!(
            "NodePool {} is for it, but its nodes carry {taint}, which the pods do not tolerate",
            pool.name
        ),
        format!("add a toleration: key {}, operator Exists, effect {}", taint.key, taint.effect.as_str()),
    );
}

/// A type of the pool that the workload may have, with all devices it asks for.
fn first_type<'a>(
    pool: &Pool<'a>,
    workload: &Workload<'_>,
) -> Option<&'a karpenter_model::instance_type::InstanceType> {
    workload.wanted.iter().find_map(|wanted| {
        pool.types(wanted).find(|one| workload.extended.iter().all(|device| one.capacity.get(device) > 0))
    })
}

/// Nodes of others take pods as well, and that is between them and the scheduler. Sizes are not compared.
fn fits(workload: &Workload<'_>, node: &Value) -> bool {
    let label = |key: &str| {
        node.pointer("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str)
    };
    let holds = |requirement: &Requirement| match label(&requirement.key) {
        Some(value) => requirement.has(value),
        None => matches!(requirement.operator(), Operator::NotIn | Operator::DoesNotExist),
    };
    let has_device = |device: &&str| {
        let amount = node.pointer("/status/allocatable").and_then(|amounts| amounts.get(*device));
        amount.is_some_and(|amount| !is_zero(amount))
    };
    workload.wanted.iter().any(|wanted| wanted.iter().all(holds))
        && workload.tolerates_all(list(node, "/spec/taints").iter().filter_map(read_hard_taint))
        && workload.extended.iter().all(has_device)
}

/// Why the pool that comes closest does not do: one that contradicts is closer than one that says nothing.
fn nearest_refusal(scene: &Scene<'_>, workload: &Workload<'_>) -> String {
    let mut refusals = scene.pools.iter().flat_map(|pool| {
        workload.wanted.iter().filter_map(move |wanted| {
            pool.offered.compatible(wanted, scene.open_keys).err().map(|refusal| (pool.name, refusal))
        })
    });
    let all: Vec<_> = refusals.by_ref().collect();
    let conflict = all.iter().find(|(_, refusal)| matches!(refusal, Incompatible::Conflict { .. }));
    match conflict.or(all.first()) {
        Some((pool, Incompatible::Conflict { offered, wanted })) => {
            format!(
                "no pool makes such nodes; NodePool {pool} comes closest with {offered}, and the pods want {wanted}"
            )
        }
        Some((_, Incompatible::Undefined { wanted, hint })) => {
            let hint = hint.as_ref().map_or(String::new(), |hint| format!("; did you mean {hint}?"));
            format!("no pool puts {} on its nodes{hint}", wanted.key)
        }
        None => "no pool makes such nodes".to_owned(),
    }
}
