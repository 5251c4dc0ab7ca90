//! Pools, classes, claims and nodes: what cannot work, what is stuck, and what was left behind.

use std::collections::BTreeSet;

use jiff::Timestamp;
use karpenter_api::labels::{NODEPOOL, TAINT_DISRUPTED, TAINT_UNREGISTERED};
use serde_json::Value;

use super::Finding;
use super::facts::Facts;
use crate::kinds::{condition, entry, finalizers, is_being_deleted, is_held, name, text, title};
use crate::owner::listed;

/// Nodes register within minutes; a claim that has not is given up by the controller after this.
const REGISTRATION_SECS: i64 = 15 * 60;
/// Draining may take long, but this is worth a look.
const DELETION_SECS: i64 = 60 * 60;
const SPOT_ROLE_MISSING: &str = "ServiceLinkedRoleCreationNotPermitted";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (check, looked) in [
        ("pools", &facts.pools),
        ("classes", &facts.classes),
        ("claims", &facts.claims),
        ("nodes", &facts.nodes),
    ] {
        if let Err(error) = looked {
            findings.push(Finding::unseen(check, error));
        }
    }
    let all = |looked: &'_ super::facts::Looked<Vec<Value>>| looked.clone().unwrap_or_default();
    let (pools, classes, claims, nodes) =
        (all(&facts.pools), all(&facts.classes), all(&facts.claims), all(&facts.nodes));
    findings.extend(judge_classes(&classes, facts));
    findings.extend(judge_pools(&pools, &classes, facts));
    findings.extend(judge_claims(&claims, facts));
    findings.extend(judge_nodes(&nodes, &claims, facts));
    findings.extend(leftovers(&[&claims, &nodes, &classes], facts));
    findings
}

fn judge_classes(classes: &[Value], facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = classes.iter().filter_map(not_ready).collect();
    // A class that is not ready says so itself.
    let ready = classes.iter().filter(|class| not_ready(class).is_none());
    findings.extend(ready.filter_map(dropped_settings));
    if findings.is_empty() && facts.classes.is_ok() && !classes.is_empty() {
        findings.push(Finding::ok("classes", format!("{} node classes are ready", classes.len())));
    }
    findings
}

/// A class that says itself why it cannot be used.
fn not_ready(object: &Value) -> Option<Finding> {
    let (status, ..) = condition(object, "Ready")?;
    if status == "True" {
        return None;
    }
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let whys: Vec<String> = conditions
        .filter(|each| each["status"] != "True" && each["type"] != "Ready")
        .map(|each| {
            let said = if text(each, "/message").is_empty() {
                text(each, "/reason")
            } else {
                text(each, "/message")
            };
            format!("{}: {said}", text(each, "/type"))
        })
        .collect();
    let why = if whys.is_empty() { "it does not say why".to_owned() } else { whys.join("; ") };
    Some(Finding::fail(
        if object["kind"] == "NodePool" { "pools" } else { "classes" },
        format!("{} is not ready: {why}", title(object)),
        format!("kubectl describe {} {}", text(object, "/kind").to_lowercase(), name(object)),
    ))
}

/// Settings of the kubelet that the class's machines never get. Karpenter up to 1.14 passes over that, and such a class
/// stops being ready when a newer one takes the cluster over.
fn dropped_settings(class: &Value) -> Option<Finding> {
    let is_set = |path: &str| class.pointer(path).is_some_and(|value| !value.is_null());
    let alias = class.pointer("/spec/amiSelectorTerms/0/alias").and_then(Value::as_str).unwrap_or_default();
    let family = match text(class, "/spec/amiFamily") {
        "" => alias.split('@').next().unwrap_or_default(),
        family => family,
    };
    let family = family.to_lowercase();
    let addresses = class.pointer("/spec/kubelet/clusterDNS").and_then(Value::as_array).map_or(0, Vec::len);
    let takes_all = matches!(family.as_str(), "" | "al2023" | "custom");
    let what = if family == "bottlerocket" && is_set("/spec/kubelet/podsPerCore") {
        "spec.kubelet.podsPerCore, which Bottlerocket has no setting for"
    } else if addresses > 1 && !takes_all {
        "several addresses in spec.kubelet.clusterDNS, of which its machines get the first"
    } else {
        return None;
    };
    Some(Finding::warn(
        "classes",
        format!("{} has {what}; this controller does not launch from such a class", title(class)),
        "take it out of the class before this controller takes over; nodes do not change by that",
    ))
}

fn judge_pools(pools: &[Value], classes: &[Value], facts: &Facts) -> Vec<Finding> {
    if facts.pools.is_err() {
        return Vec::new();
    }
    if pools.is_empty() {
        return vec![Finding::warn(
            "pools",
            "there are no NodePools, so no nodes will be launched",
            "apply a NodePool and its node class; examples/ has some",
        )];
    }
    let mut findings = Vec::new();
    for pool in pools {
        let reference = pool.pointer("/spec/template/spec/nodeClassRef").cloned().unwrap_or_default();
        let is_meant = |class: &&Value| {
            name(class) == text(&reference, "/name")
                && class["kind"] == reference["kind"]
                && text(class, "/apiVersion").split('/').next() == Some(text(&reference, "/group"))
        };
        if facts.classes.is_ok() && !classes.iter().any(|class| is_meant(&class)) {
            findings.push(Finding::fail(
                "pools",
                format!(
                    "{} names the {} {}, which does not exist",
                    title(pool),
                    text(&reference, "/kind"),
                    text(&reference, "/name")
                ),
                "create it, or correct spec.template.spec.nodeClassRef",
            ));
        } else if condition(pool, "Ready").is_none() && facts.works() {
            findings.push(Finding::warn(
                "pools",
                format!("{} was not looked at by any controller", title(pool)),
                "check that the controller's provider is the one of the pool's node class",
            ));
        } else {
            findings.extend(not_ready(pool));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("pools", format!("{} NodePools are ready", pools.len())));
    }
    findings
}

fn judge_claims(claims: &[Value], facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for claim in claims {
        let said = condition(claim, "Launched").filter(|(status, ..)| *status != "True");
        if let Some((_, _, message)) = said.filter(|(_, _, message)| message.contains(SPOT_ROLE_MISSING)) {
            findings.push(Finding::fail(
                "spot-role",
                format!("{}: {message}", title(claim)),
                "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com (once per account)",
            ));
        } else if let Some((_, reason, message)) = said.filter(|(status, ..)| *status == "False") {
            findings.push(Finding::fail(
                "claims",
                format!("{} cannot be launched: {reason} {message}", title(claim)),
                "the message says what the cloud refused",
            ));
        }
        let age = age_secs(claim, "/metadata/creationTimestamp", facts.now).unwrap_or(0);
        let is_registered = condition(claim, "Registered").is_some_and(|(status, ..)| status == "True");
        if !is_registered && !is_being_deleted(claim) && age > REGISTRATION_SECS {
            findings.push(Finding::fail(
                "claims",
                format!("{} has no node after {} min", title(claim), age / 60),
                "its machine does not join: check user data, security groups, the role's access to the cluster, and the \
                 console output of the instance",
            ));
        }
    }
    if findings.is_empty() && facts.claims.is_ok() {
        findings.push(Finding::ok("claims", format!("{} NodeClaims, none of them stuck", claims.len())));
    }
    findings
}

fn judge_nodes(nodes: &[Value], claims: &[Value], facts: &Facts) -> Vec<Finding> {
    let claimed: BTreeSet<&str> = claims.iter().map(|claim| text(claim, "/status/nodeName")).collect();
    let mut findings = Vec::new();
    let mut count = 0;
    for node in nodes {
        let is_pools = entry(node, "/metadata/labels", NODEPOOL).is_some();
        let unregistered = has_taint(node, TAINT_UNREGISTERED);
        if !is_pools && !unregistered && !has_taint(node, TAINT_DISRUPTED) {
            continue;
        }
        count += 1;
        if condition(node, "Ready").is_none_or(|(status, ..)| status != "True") {
            findings.push(Finding::fail(
                "nodes",
                format!("{} is not ready", title(node)),
                format!(
                    "kubectl describe node {}; if its machine lost its role or its entry in the cluster's access list, give \
                     them back; else delete the node, and the controller ends the machine",
                    name(node)
                ),
            ));
        }
        let age = age_secs(node, "/metadata/creationTimestamp", facts.now).unwrap_or(0);
        if unregistered && age > REGISTRATION_SECS {
            findings.push(Finding::fail(
                "nodes",
                format!("{} still has the taint {TAINT_UNREGISTERED} after {} min", title(node), age / 60),
                "no NodeClaim recognises it: look at the controller's log; if nobody works any more, karpenter uninstall \
                 --nodes keep takes the taint off",
            ));
        }
        if has_taint(node, TAINT_DISRUPTED) && !is_being_deleted(node) && !facts.works() {
            findings.push(Finding::fail(
                "nodes",
                format!(
                    "{} has the taint {TAINT_DISRUPTED}, and no controller works that would go on",
                    title(node)
                ),
                "start the controller, or karpenter uninstall --nodes keep, which takes it off",
            ));
        }
        if is_pools && facts.claims.is_ok() && !claimed.contains(name(node)) && !unregistered {
            findings.push(Finding::warn(
                "nodes",
                format!("{} has the label {NODEPOOL} and no NodeClaim", title(node)),
                "nobody will end or replace it: remove the label if it is another's, else delete the node and its machine",
            ));
        }
    }
    if findings.is_empty() && facts.nodes.is_ok() {
        findings.push(Finding::ok("nodes", format!("{count} nodes of pools, all of them ready")));
    }
    findings
}

/// Finalizers that nobody removes, and deletions that do not end.
fn leftovers(groups: &[&Vec<Value>], facts: &Facts) -> Vec<Finding> {
    let held: Vec<&Value> =
        groups.iter().flat_map(|group| group.iter()).filter(|object| is_held(object)).collect();
    let deleted: Vec<&&Value> = held.iter().filter(|object| is_being_deleted(object)).collect();
    if facts.works() {
        let is_stuck = |object: &&&&Value| {
            age_secs(object, "/metadata/deletionTimestamp", facts.now).is_some_and(|age| age > DELETION_SECS)
        };
        let stuck: Vec<Finding> = deleted
            .iter()
            .filter(is_stuck)
            .map(|object| {
                let age = age_secs(object, "/metadata/deletionTimestamp", facts.now).unwrap_or(0);
                Finding::warn(
                    "finalizers",
                    format!(
                        "{} has been going for {} min ({})",
                        title(object),
                        age / 60,
                        finalizers(object).join(", ")
                    ),
                    "pods that may not be evicted hold it: kubectl get pdb --all-namespaces, and pods with \
                     karpenter.sh/do-not-disrupt; terminationGracePeriod of the pool sets an end to it",
                )
            })
            .collect();
        if !stuck.is_empty() {
            return stuck;
        }
        return vec![Finding::ok("finalizers", "none is left over")];
    }
    if held.is_empty() {
        return vec![Finding::ok("finalizers", "none is left over")];
    }
    let titles: Vec<String> = held.iter().map(|object| title(object)).collect();
    let names: Vec<&str> = titles.iter().map(String::as_str).collect();
    let fix = "start the controller, which finishes what was begun; or, if none is to come back, karpenter uninstall --nodes \
               keep, which takes the finalizers off (machines of deleted claims have to be ended by hand)";
    vec![if deleted.is_empty() {
        Finding::warn(
            "finalizers",
            format!("{} objects have a finalizer and no controller works: {}", held.len(), listed(&names)),
            fix,
        )
    } else {
        let titles: Vec<String> = deleted.iter().map(|object| title(object)).collect();
        let names: Vec<&str> = titles.iter().map(String::as_str).collect();
        Finding::fail(
            "finalizers",
            format!("{} being deleted, and no controller works that would finish it", listed(&names)),
            fix,
        )
    }]
}

fn has_taint(node: &Value, key: &str) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints.into_iter().flatten().any(|taint| taint["key"] == key)
}

fn age_secs(object: &Value, pointer: &str, now: Timestamp) -> Option<i64> {
    let at: Timestamp = text(object, pointer).parse().ok()?;
    Some(now.duration_since(at).as_secs())
}
