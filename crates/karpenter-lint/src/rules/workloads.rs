//! Rules for workloads, and for the NodePools that could run them.

use std::collections::BTreeSet;

use karpenter_model::requirements::{Incompatible, Operator, Requirement, Requirements};
use serde_json::Value;

use crate::finding::{Code, Report};
use crate::pool::{Pool, read_repelling_taint};
use crate::workload::{Workload, is_zero};
use crate::{Context, list, text};

const PROVISIONER_NAME: &str = "karpenter.sh/provisioner-name";
const DO_NOT_EVICT: &str = "karpenter.sh/do-not-evict";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

pub(crate) fn check(context: &Context<'_>, report: &mut Report) {
    for workload in &context.workloads {
        check_requests(workload, report);
        check_volumes(workload, report);
    }
    if !context.has_provisioners() {
        context.workloads.iter().for_each(|workload| check_do_not_evict(workload, report));
    }
    for workload in context.schedulable() {
        if is_karpenter(workload) {
            check_karpenter(context, workload, report);
        } else if !context.pools.is_empty() && !check_provisioner_name(context, workload, report) {
            check_placement(context, workload, report);
        }
    }
}

/// Reports missing requests. Pods without requests fit on every node, so nodes become too small for what the pods use.
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
                workload.subject(),
                format!("{}.containers[{index}].resources.requests", workload.path),
                format!(
                    "has no request for {}; instance types are chosen by requests only",
                    missing.join(" and ")
                ),
                "set requests to what the container uses",
            );
        }
    }
}

/// Reports a mount of an undefined volume. The API server rejects such a pod, so a Deployment with this template never
/// gets a pod.
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
                        workload.subject(),
                        format!("{}.{list_name}[{index}].volumeMounts[{mount}].name", workload.path),
                        format!("the pod has no volume {name:?}; the API server rejects the pod"),
                        format!("add {name} to {}.volumes, for example as emptyDir", workload.path),
                    );
                }
            }
        }
    }
}

/// Reports the annotation do-not-evict, which does not protect pods on nodes of v1 NodePools.
fn check_do_not_evict(workload: &Workload<'_>, report: &mut Report) {
    let annotation = |key: &str| {
        workload.pod_metadata().and_then(|metadata| metadata.pointer("/annotations")?.get(key)?.as_str())
    };
    // In v1alpha5, only the value "true" protected a pod.
    if annotation(DO_NOT_EVICT) != Some("true") || annotation(DO_NOT_DISRUPT).is_some() {
        return;
    }
    let metadata = workload.path.strip_suffix("spec").unwrap_or_default();
    report.add(
        Code::DoNotEvict,
        workload.subject(),
        format!("{metadata}metadata.annotations[{DO_NOT_EVICT}]"),
        "has no effect on nodes of v1 NodePools; consolidation and drift evict the pods",
        format!("set {DO_NOT_DISRUPT}: \"true\", which is valid on nodes of Provisioners too"),
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

fn check_karpenter(context: &Context<'_>, workload: &Workload<'_>, report: &mut Report) {
    let avoids = |requirements: &Requirements| {
        let excluded = requirements.get("karpenter.sh/nodepool");
        excluded.is_some_and(|one| one.operator() == Operator::DoesNotExist)
    };
    if workload.wanted.iter().all(avoids) {
        return;
    }
    let may_land = |pool: &&Pool<'_>| {
        workload.tolerates(pool)
            && workload.wanted.iter().any(|wanted| pool.offered.compatible(wanted, context.open_keys).is_ok())
    };
    let why = match context.pools.iter().find(may_land) {
        Some(pool) => format!(
            "can be scheduled to nodes of NodePool {}, which it manages; if such a node is terminated, Karpenter cannot launch a replacement",
            pool.name
        ),
        None if context.pools.is_empty() => {
            "can be scheduled to nodes that it manages; if such a node is terminated, Karpenter cannot launch a replacement"
                .to_owned()
        }
        None => return,
    };
    report.add(
        Code::KarpenterOnOwnNodes,
        workload.subject(),
        format!("{}.affinity.nodeAffinity", workload.path),
        why,
        "require that karpenter.sh/nodepool and karpenter.sh/provisioner-name do not exist, as the chart does",
    );
}

/// Reports a workload that selects a Provisioner although no NodePool was converted from one; returns whether the
/// workload does so.
fn check_provisioner_name(context: &Context<'_>, workload: &Workload<'_>, report: &mut Report) -> bool {
    let selects = |wanted: &Requirements| {
        wanted
            .get(PROVISIONER_NAME)
            .is_some_and(|one| matches!(one.operator(), Operator::In | Operator::Exists))
    };
    if context.has_provisioners() || !workload.wanted.iter().all(selects) {
        return false;
    }
    report.add(
        Code::ProvisionerNameSelected,
        workload.subject(),
        workload.selector_field(),
        format!("selects {PROVISIONER_NAME}, which nodes of v1 NodePools do not have"),
        "select karpenter.sh/nodepool instead",
    );
    true
}

fn check_placement(context: &Context<'_>, workload: &Workload<'_>, report: &mut Report) {
    if context.unmanaged_nodes.iter().any(|(_, node)| fits(workload, node)) {
        return;
    }
    let wants = |pool: &&Pool<'_>| {
        workload.wanted.iter().any(|wanted| pool.offered.compatible(wanted, context.open_keys).is_ok())
    };
    let selectable: Vec<&Pool<'_>> = context.pools.iter().filter(wants).collect();
    if selectable.is_empty() {
        report.add(
            Code::NoMatchingPool,
            workload.subject(),
            workload.selector_field(),
            closest_mismatch(context, workload),
            "select labels that a NodePool offers, or add a NodePool for the workload",
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
            Code::NoMatchingPool,
            workload.subject(),
            if devices.is_empty() {
                workload.selector_field()
            } else {
                format!("{}.containers", workload.path)
            },
            format!("NodePool {} has no instance type for the workload{with}", names.join(", ")),
            "select another instance type, or widen the requirements of the NodePool",
        );
        return;
    }
    if launchable.iter().any(|pool| workload.tolerates(pool)) {
        return;
    }
    let Some((pool, taint)) = launchable.iter().find_map(|pool| {
        let untolerated = |taint: &&_| !workload.tolerations.iter().any(|one| one.tolerates(taint));
        Some((pool, pool.repelling_taints.iter().find(untolerated)?))
    }) else {
        return;
    };
    report.add(
        Code::TaintNotTolerated,
        workload.subject(),
        format!("{}.tolerations", workload.path),
        format!(
            "NodePool {} matches, but its nodes have the taint {taint}, which the pods do not tolerate",
            pool.name
        ),
        format!("add a toleration: key {}, operator Exists, effect {}", taint.key, taint.effect.as_str()),
    );
}

/// The first instance type of the NodePool that meets the workload's requirements and has all extended resources that
/// it requests.
fn first_type<'a>(
    pool: &Pool<'a>,
    workload: &Workload<'_>,
) -> Option<&'a karpenter_model::instance_type::InstanceType> {
    workload.wanted.iter().find_map(|wanted| {
        pool.types(wanted).find(|one| workload.extended.iter().all(|device| one.capacity.get(device) > 0))
    })
}

/// Whether the pods could run on a node that Karpenter does not manage. Amounts of resources are not compared.
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
        && workload.tolerates_all(list(node, "/spec/taints").iter().filter_map(read_repelling_taint))
        && workload.extended.iter().all(has_device)
}

/// Why the NodePool that comes closest does not match. A NodePool with a conflicting label value counts as closer than
/// one that does not define the label.
fn closest_mismatch(context: &Context<'_>, workload: &Workload<'_>) -> String {
    let mut mismatches = context.pools.iter().flat_map(|pool| {
        workload.wanted.iter().filter_map(move |wanted| {
            pool.offered.compatible(wanted, context.open_keys).err().map(|mismatch| (pool.name, mismatch))
        })
    });
    let all: Vec<_> = mismatches.by_ref().collect();
    let conflict = all.iter().find(|(_, mismatch)| matches!(mismatch, Incompatible::Conflict { .. }));
    match conflict.or(all.first()) {
        Some((pool, Incompatible::Conflict { offered, wanted })) => {
            format!(
                "no NodePool can launch such nodes; the closest, NodePool {pool}, has {offered}, and the pods require {wanted}"
            )
        }
        Some((_, Incompatible::Undefined { wanted, hint })) => {
            let hint = hint.as_ref().map_or(String::new(), |hint| format!("; did you mean {hint}?"));
            format!("no NodePool has the label {}{hint}", wanted.key)
        }
        None => "no NodePool can launch such nodes".to_owned(),
    }
}
