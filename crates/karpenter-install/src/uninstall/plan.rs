//! Decides on the steps of an uninstallation, given the objects in the cluster. The functions are pure.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::controllers::{Controller, Program};
use crate::kinds::{
    DEPLOYMENT, condition, finalizers, is_being_deleted, is_held, is_ours, name, text, title,
};
use crate::leases::Lease;
use crate::owner::{Owner, listed, owner};

/// What happens to the nodes of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// While the controller still runs, pods are evicted and instances terminated; NodePools and node classes are
    /// deleted as well.
    Drain,
    /// Nodes and objects are kept for the next controller to manage.
    HandOver,
    /// Nodes are kept and run without a controller; every object can be deleted.
    Keep,
}

#[derive(Debug, Clone)]
pub struct Choices {
    pub name: String,
    pub nodes: Nodes,
    pub with_definitions: bool,
    pub timeout: Duration,
    /// Whether to continue even though no controller seems to be active (with drain), or even though NodeClaims are
    /// being launched or terminated (with keep).
    pub is_forced: bool,
    pub is_dry_run: bool,
}

/// The objects in the cluster that the decision depends on.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The objects of this installation, found by label and name, in the order in which they must be deleted.
    pub installed: Vec<Value>,
    pub controllers: Vec<Controller>,
    pub leases: Vec<Lease>,
    pub pools: Vec<Value>,
    pub claims: Vec<Value>,
    /// Nodes that belong to a NodePool or have a finalizer of Karpenter.
    pub nodes: Vec<Value>,
    pub classes: Vec<Value>,
    /// Provisioners and AWSNodeTemplates.
    pub old: Vec<Value>,
    /// Those of our CRDs that the cluster has.
    pub definitions: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Deletes NodePools, and the Provisioners and AWSNodeTemplates from which they are derived.
    DeletePools(Vec<Value>),
    /// Deletes NodeClaims and Nodes, and waits until they are gone.
    TerminateInstances,
    DeleteClasses(Vec<Value>),
    /// Waits until no NodeClaim is being launched or terminated.
    WaitForLaunches,
    StopController(Value),
    /// Removes Karpenter's finalizers, taints and labels from the Nodes, NodeClaims and node classes that exist when
    /// the step is executed.
    Release,
    RemoveObjects(Vec<Value>),
    RemoveLease {
        namespace: String,
        name: String,
    },
    Restore(Controller),
    RemoveDefinitions(Vec<Value>),
    Say(String),
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |objects: &[Value]| {
            let titles: Vec<String> = objects.iter().map(title).collect();
            let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
            listed(&titles)
        };
        match self {
            Self::DeletePools(objects) | Self::DeleteClasses(objects) | Self::RemoveObjects(objects) => {
                write!(out, "delete {}", names(objects))
            }
            Self::TerminateInstances => {
                write!(out, "delete all NodeClaims and wait until their instances are terminated")
            }
            Self::WaitForLaunches => write!(out, "wait until no NodeClaim is launching or terminating"),
            Self::StopController(deployment) => write!(out, "stop {}", title(deployment)),
            Self::Release => {
                write!(out, "remove finalizers and taints from nodes, NodeClaims and node classes")
            }
            Self::RemoveLease { namespace, name } => write!(out, "delete Lease {namespace}/{name}"),
            Self::Restore(controller) => write!(
                out,
                "scale Deployment {}/{} back to {} replicas",
                controller.namespace,
                controller.name,
                controller.replicas_before.unwrap_or(1)
            ),
            Self::RemoveDefinitions(objects) => {
                write!(out, "delete {} if no objects exist", names(objects))
            }
            Self::Say(line) => write!(out, "say: {line}"),
        }
    }
}

/// The steps; or an error that states why the uninstallation must not be run.
pub fn plan(seen: &Seen, choices: &Choices, now: Timestamp) -> Result<Vec<Step>, Vec<String>> {
    let mut steps = Vec::new();
    let active = active_controller(seen, now);
    match choices.nodes {
        Nodes::Drain => steps.extend(drain(seen, choices, active.as_deref())?),
        Nodes::Keep => steps.extend(settle(seen, choices, active.as_deref())?),
        Nodes::HandOver => {}
    }
    let deployments = |object: &&Value| object["kind"] == DEPLOYMENT.kind;
    let ours: Vec<&Value> = seen.installed.iter().filter(deployments).collect();
    if choices.nodes == Nodes::Keep {
        check_other_controllers(seen, &ours, active.as_deref(), choices)?;
    }
    steps.extend(ours.iter().map(|deployment| Step::StopController((*deployment).clone())));
    let has_nodes = !(seen.nodes.is_empty() && seen.claims.is_empty() && seen.classes.is_empty());
    if choices.nodes == Nodes::Keep && has_nodes {
        steps.push(Step::Release);
    }
    let rest: Vec<Value> = seen.installed.iter().filter(|object| !deployments(object)).cloned().collect();
    if !rest.is_empty() {
        steps.push(Step::RemoveObjects(rest));
    }
    steps.extend(leases(seen, &ours));
    steps.extend(others(seen, choices));
    if choices.with_definitions && !seen.definitions.is_empty() {
        steps.push(Step::RemoveDefinitions(seen.definitions.clone()));
    }
    Ok(steps)
}

/// The name of the active controller; `None` if no controller is active.
pub(crate) fn active_controller(seen: &Seen, now: Timestamp) -> Option<String> {
    let lease = seen.leases.iter().find(|lease| lease.is_held(now));
    let ready = seen.controllers.iter().find(|controller| controller.ready > 0);
    lease
        .map(|lease| format!("{} (lease {}/{})", lease.holder, lease.namespace, lease.name))
        .or(ready.map(|controller| format!("Deployment {}/{}", controller.namespace, controller.name)))
}

fn drain(seen: &Seen, choices: &Choices, active: Option<&str>) -> Result<Vec<Step>, Vec<String>> {
    let held_classes = seen.classes.iter().any(is_held);
    let has_instances = !seen.claims.is_empty() || seen.nodes.iter().any(is_held);
    if (has_instances || held_classes) && active.is_none() && !choices.is_forced {
        return Err(vec![format!(
            "{} and no controller seems active, so the instances would not be terminated: start the controller, or choose \
             --nodes keep, or --force if you know that one is active",
            counts(seen)
        )]);
    }
    let mut steps = Vec::new();
    // Provisioners are deleted before NodePools; otherwise the controller would derive the NodePools again.
    let pools: Vec<Value> = seen.old.iter().chain(&seen.pools).cloned().collect();
    if !pools.is_empty() {
        steps.push(Step::DeletePools(pools));
    }
    if has_instances {
        steps.push(Step::TerminateInstances);
    }
    if !seen.classes.is_empty() {
        steps.push(Step::DeleteClasses(seen.classes.clone()));
    }
    Ok(steps)
}

fn counts(seen: &Seen) -> String {
    let nodes = seen.nodes.iter().filter(|node| is_held(node)).count();
    format!("there are {} NodeClaims, {nodes} nodes and {} classes", seen.claims.len(), seen.classes.len())
}

/// Whether a NodeClaim is being launched or terminated.
pub(crate) fn is_unfinished(object: &Value) -> bool {
    let is_registered = condition(object, "Registered").is_some_and(|(status, ..)| status == "True");
    is_being_deleted(object) || (object["kind"] == "NodeClaim" && !is_registered)
}

fn settle(seen: &Seen, choices: &Choices, active: Option<&str>) -> Result<Vec<Step>, Vec<String>> {
    let all = seen.claims.iter().chain(&seen.nodes).chain(&seen.classes);
    let unfinished: Vec<String> = all.filter(|object| is_unfinished(object)).map(title).collect();
    let titles: Vec<&str> = unfinished.iter().map(String::as_str).collect();
    match (titles.is_empty() || choices.is_forced, active) {
        (true, _) => Ok(Vec::new()),
        (false, Some(_)) => Ok(vec![Step::WaitForLaunches]),
        (false, None) => Err(vec![format!(
            "{} launching or terminating, and no controller is active: start the controller, or \
             --force to release them in their current state (terminate the instances of NodeClaims without a node yourself)",
            match titles.len() {
                1 => format!("{} is", titles[0]),
                _ => format!("{} are", listed(&titles)),
            }
        )]),
    }
}

/// Reports controllers that are active and that this command does not stop, because nodes must not be released while
/// one is active.
fn check_other_controllers(
    seen: &Seen,
    ours: &[&Value],
    active: Option<&str>,
    choices: &Choices,
) -> Result<(), Vec<String>> {
    if choices.is_forced || active.is_none() {
        return Ok(());
    }
    let is_stopped = |namespace: &str, with_name: Option<&str>| {
        ours.iter().any(|deployment| {
            text(deployment, "/metadata/namespace") == namespace
                && with_name.is_none_or(|wanted| wanted == name(deployment))
        })
    };
    let others = seen.controllers.iter().filter(|controller| controller.ready > 0);
    let mut lines: Vec<String> = others
        .filter(|controller| !is_stopped(&controller.namespace, Some(&controller.name)))
        .map(|controller| {
            format!(
                "Deployment {0}/{1} is active and was not installed by this command: kubectl --namespace {0} scale deployment {1} \
                 --replicas 0",
                controller.namespace, controller.name
            )
        })
        .collect();
    if ours.is_empty() && lines.is_empty() {
        lines.push(format!(
            "{} is active and was not installed by this command: stop it first",
            active.unwrap_or("another controller")
        ));
    }
    if lines.is_empty() { Ok(()) } else { Err(lines) }
}

/// The objects that have finalizers, taints or owner references of Karpenter.
pub(crate) fn to_release(seen: &Seen) -> Vec<Value> {
    let all = seen.nodes.iter().chain(&seen.claims).chain(&seen.classes);
    all.filter(|object| super::release::patch(object).is_some()).cloned().collect()
}

fn leases(seen: &Seen, ours: &[&Value]) -> Vec<Step> {
    let is_ours = |lease: &&Lease| {
        let is_here = |deployment: &&Value| text(deployment, "/metadata/namespace") == lease.namespace;
        let is_shared = seen.controllers.iter().any(|controller| {
            let is_own = ours.iter().any(|deployment| name(deployment) == controller.name);
            controller.namespace == lease.namespace && !is_own
        });
        ours.iter().any(is_here) && !is_shared
    };
    let found = seen.leases.iter().filter(is_ours);
    found
        .map(|lease| Step::RemoveLease { namespace: lease.namespace.clone(), name: lease.name.clone() })
        .collect()
}

/// The steps for controllers of other installers. Those that were scaled to zero get their replicas back, except after
/// a drain; for the others, a message says how to remove them.
fn others(seen: &Seen, choices: &Choices) -> Vec<Step> {
    let mut steps = Vec::new();
    for controller in &seen.controllers {
        let place = format!("{}/{}", controller.namespace, controller.name);
        let was_taken_over = controller.taken_over_by.as_deref() == Some(choices.name.as_str());
        if was_taken_over && choices.nodes != Nodes::Drain {
            steps.push(Step::Restore(controller.clone()));
        } else if was_taken_over {
            steps.push(Step::Say(format!(
                "Deployment {place} stays at 0 replicas; start it with kubectl --namespace {} scale deployment {} --replicas {}",
                controller.namespace,
                controller.name,
                controller.replicas_before.unwrap_or(1)
            )));
        } else if let Owner::Helm { release, namespace } = &controller.owner {
            steps.push(Step::Say(format!(
                "Deployment {place} was not installed by this command; helm uninstall {release} --namespace {namespace} removes it"
            )));
        } else if controller.owner == Owner::Unsigned && controller.program == Program::Ours {
            steps
                .push(Step::Say(format!("Deployment {place} was not installed by this command and is kept")));
        }
    }
    steps
}

/// Why a CRD is kept although its deletion was requested; `None` if the CRD can be deleted.
pub(crate) fn definition_stays(definition: &Value, objects_count: usize) -> Option<String> {
    if let Owner::Helm { release, namespace } = owner(definition) {
        return Some(format!("helm uninstall {release} --namespace {namespace} removes it"));
    }
    (objects_count > 0).then(|| {
        let plural = text(definition, "/spec/names/plural");
        format!(
            "{objects_count} {plural} exist: kubectl delete {} --all, then run the command again",
            name(definition)
        )
    })
}

/// The finalizers of the object that are not Karpenter's.
pub(crate) fn other_finalizers(object: &Value) -> Vec<String> {
    finalizers(object).into_iter().filter(|finalizer| !is_ours(finalizer)).map(str::to_owned).collect()
}
