//! Which steps an uninstallation takes, given what is on the cluster. Decides only.

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

/// What becomes of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// Pods are evicted and machines ended while the controller still runs; pools and classes go too.
    Drain,
    /// Everything stays as it is for the controller that comes next.
    HandOver,
    /// They become plain nodes that nobody looks after: they run on, and everything can be deleted by hand.
    Keep,
}

#[derive(Debug, Clone)]
pub struct Choices {
    pub name: String,
    pub nodes: Nodes,
    pub with_definitions: bool,
    pub timeout: Duration,
    /// Goes on although no controller seems to work (drain), or although something is unfinished (keep).
    pub is_forced: bool,
    pub is_dry_run: bool,
}

/// The cluster, as far as it matters.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Ours, by mark and name, in the order in which they are taken away.
    pub installed: Vec<Value>,
    pub controllers: Vec<Controller>,
    pub leases: Vec<Lease>,
    pub pools: Vec<Value>,
    pub claims: Vec<Value>,
    /// Those with a pool, and those that a finalizer of Karpenter's keeps.
    pub nodes: Vec<Value>,
    pub classes: Vec<Value>,
    /// Provisioners and AWSNodeTemplates.
    pub old: Vec<Value>,
    /// Those of ours that the cluster knows.
    pub definitions: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Pools, and old kinds that would bring them back.
    DeletePools(Vec<Value>),
    /// Deletes claims and nodes and waits until they are gone.
    EndMachines,
    DeleteClasses(Vec<Value>),
    /// Waits until nothing is being launched or ended.
    Settle,
    StopController(Value),
    /// Takes finalizers and marks off nodes, claims and classes; those that there are by then.
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
            Self::EndMachines => write!(out, "delete all NodeClaims and wait until their machines are gone"),
            Self::Settle => write!(out, "wait until nothing is being launched or ended"),
            Self::StopController(deployment) => write!(out, "stop {}", title(deployment)),
            Self::Release => write!(out, "take finalizers and marks off nodes, claims and classes"),
            Self::RemoveLease { namespace, name } => write!(out, "delete Lease {namespace}/{name}"),
            Self::Restore(controller) => write!(
                out,
                "scale Deployment {}/{} back to {} replicas",
                controller.namespace,
                controller.name,
                controller.replicas_before.unwrap_or(1)
            ),
            Self::RemoveDefinitions(objects) => {
                write!(out, "delete {} if no objects are left", names(objects))
            }
            Self::Say(line) => write!(out, "say: {line}"),
        }
    }
}

/// The steps, or why there are none.
pub fn plan(seen: &Seen, choices: &Choices, now: Timestamp) -> Result<Vec<Step>, Vec<String>> {
    let mut steps = Vec::new();
    let works = who_works(seen, now);
    match choices.nodes {
        Nodes::Drain => steps.extend(drain(seen, choices, works.as_deref())?),
        Nodes::Keep => steps.extend(settle(seen, choices, works.as_deref())?),
        Nodes::HandOver => {}
    }
    let deployments = |object: &&Value| object["kind"] == DEPLOYMENT.kind;
    let ours: Vec<&Value> = seen.installed.iter().filter(deployments).collect();
    if choices.nodes == Nodes::Keep {
        refuse_others(seen, &ours, works.as_deref(), choices)?;
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

/// A name for whoever works, if anybody seems to.
pub(crate) fn who_works(seen: &Seen, now: Timestamp) -> Option<String> {
    let lease = seen.leases.iter().find(|lease| lease.is_held(now));
    let ready = seen.controllers.iter().find(|controller| controller.ready > 0);
    lease
        .map(|lease| format!("{} (lease {}/{})", lease.holder, lease.namespace, lease.name))
        .or(ready.map(|controller| format!("Deployment {}/{}", controller.namespace, controller.name)))
}

fn drain(seen: &Seen, choices: &Choices, works: Option<&str>) -> Result<Vec<Step>, Vec<String>> {
    let held_classes = seen.classes.iter().any(is_held);
    let has_machines = !seen.claims.is_empty() || seen.nodes.iter().any(is_held);
    if (has_machines || held_classes) && works.is_none() && !choices.is_forced {
        return Err(vec![format!(
            "{} and no controller seems to work, so nobody would end the machines: start the controller, or choose \
             --nodes keep, or --force if you know that one works",
            counts(seen)
        )]);
    }
    let mut steps = Vec::new();
    // Old kinds first: they bring their pools back.
    let pools: Vec<Value> = seen.old.iter().chain(&seen.pools).cloned().collect();
    if !pools.is_empty() {
        steps.push(Step::DeletePools(pools));
    }
    if has_machines {
        steps.push(Step::EndMachines);
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

/// Whether a claim is on its way, to or from being a node.
pub(crate) fn is_unfinished(object: &Value) -> bool {
    let is_registered = condition(object, "Registered").is_some_and(|(status, ..)| status == "True");
    is_being_deleted(object) || (object["kind"] == "NodeClaim" && !is_registered)
}

fn settle(seen: &Seen, choices: &Choices, works: Option<&str>) -> Result<Vec<Step>, Vec<String>> {
    let all = seen.claims.iter().chain(&seen.nodes).chain(&seen.classes);
    let unfinished: Vec<String> = all.filter(|object| is_unfinished(object)).map(title).collect();
    let titles: Vec<&str> = unfinished.iter().map(String::as_str).collect();
    match (titles.is_empty() || choices.is_forced, works) {
        (true, _) => Ok(Vec::new()),
        (false, Some(_)) => Ok(vec![Step::Settle]),
        (false, None) => Err(vec![format!(
            "{} being launched or ended, and no controller works that would finish it: start the controller, or \
             --force to let go of them as they are (machines of claims without a node have to be ended by hand)",
            match titles.len() {
                1 => format!("{} is", titles[0]),
                _ => format!("{} are", listed(&titles)),
            }
        )]),
    }
}

/// Nodes must not be let go of while somebody whom we do not stop still works on them.
fn refuse_others(
    seen: &Seen,
    ours: &[&Value],
    works: Option<&str>,
    choices: &Choices,
) -> Result<(), Vec<String>> {
    if choices.is_forced || works.is_none() {
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
                "Deployment {0}/{1} works and is not ours to stop: kubectl --namespace {0} scale deployment {1} \
                 --replicas 0",
                controller.namespace, controller.name
            )
        })
        .collect();
    if ours.is_empty() && lines.is_empty() {
        lines.push(format!(
            "{} works and was not installed by us: stop it first",
            works.unwrap_or("somebody")
        ));
    }
    if lines.is_empty() { Ok(()) } else { Err(lines) }
}

/// Objects with something of Karpenter's on them that would be in the way later.
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

/// Controllers of others: the ones we took over from work again, unless everything was drained; for the rest it is said
/// how they are removed.
fn others(seen: &Seen, choices: &Choices) -> Vec<Step> {
    let mut steps = Vec::new();
    for controller in &seen.controllers {
        let place = format!("{}/{}", controller.namespace, controller.name);
        let was_taken_over = controller.taken_over_by.as_deref() == Some(choices.name.as_str());
        if was_taken_over && choices.nodes != Nodes::Drain {
            steps.push(Step::Restore(controller.clone()));
        } else if was_taken_over {
            steps.push(Step::Say(format!(
                "Deployment {place} stays at zero; kubectl --namespace {} scale deployment {} --replicas {} starts it",
                controller.namespace,
                controller.name,
                controller.replicas_before.unwrap_or(1)
            )));
        } else if let Owner::Helm { release, namespace } = &controller.owner {
            steps.push(Step::Say(format!(
                "Deployment {place} is not ours; helm uninstall {release} --namespace {namespace} removes it"
            )));
        } else if controller.owner == Owner::Unsigned && controller.program == Program::Ours {
            steps.push(Step::Say(format!("Deployment {place} was not installed by us and stays")));
        }
    }
    steps
}

/// Why a definition has to stay although its deletion was asked for.
pub(crate) fn definition_stays(definition: &Value, objects_count: usize) -> Option<String> {
    if let Owner::Helm { release, namespace } = owner(definition) {
        return Some(format!("helm uninstall {release} --namespace {namespace} removes it"));
    }
    (objects_count > 0).then(|| {
        let plural = text(definition, "/spec/names/plural");
        format!(
            "{objects_count} {plural} are left: kubectl delete {} --all, then run the command again",
            name(definition)
        )
    })
}

/// Finalizers without ours.
pub(crate) fn other_finalizers(object: &Value) -> Vec<String> {
    finalizers(object).into_iter().filter(|finalizer| !is_ours(finalizer)).map(str::to_owned).collect()
}
