//! Findings about NodePools, node classes, NodeClaims and Nodes: invalid references, launches and deletions that do not
//! finish, and objects that are left over.

use std::collections::BTreeSet;

use jiff::Timestamp;
use karpenter_api::labels::{NODEPOOL, TAINT_DISRUPTED, TAINT_UNREGISTERED};
use serde_json::Value;

use super::Finding;
use super::facts::Facts;
use crate::kinds::{condition, entry, finalizers, is_being_deleted, is_held, name, text, title};
use crate::owner::listed;

/// After this time a NodeClaim without a node is reported. The controller deletes it after 15 minutes and launches another
/// one, so a report at that time would never be made.
const UNREGISTERED_CLAIM_SECS: i64 = 5 * 60;
/// After this time a Node that no NodeClaim registered is reported.
const UNREGISTERED_NODE_SECS: i64 = 15 * 60;
/// A drain may take long; if a deletion takes more than this many seconds, the doctor warns.
const DELETION_SECS: i64 = 60 * 60;
const SPOT_ROLE_MISSING: &str = "ServiceLinkedRoleCreationNotPermitted";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (check, observed) in [
        ("pools", &facts.pools),
        ("classes", &facts.classes),
        ("claims", &facts.claims),
        ("nodes", &facts.nodes),
    ] {
        if let Err(error) = observed {
            findings.push(Finding::unreadable(check, error));
        }
    }
    let all = |observed: &'_ super::facts::Observed<Vec<Value>>| observed.clone().unwrap_or_default();
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
    // A node class that is not ready has a finding of its own, so the NodePools that use it are not reported.
    let ready = classes.iter().filter(|class| not_ready(class).is_none());
    findings.extend(ready.filter_map(dropped_settings));
    if findings.is_empty() && facts.classes.is_ok() && !classes.is_empty() {
        findings.push(Finding::ok("classes", format!("{} node classes are ready", classes.len())));
    }
    findings
}

/// The finding that the condition `Ready` of a node class is not true.
fn not_ready(object: &Value) -> Option<Finding> {
    let (status, ..) = condition(object, "Ready")?;
    if status == "True" {
        return None;
    }
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let whys: Vec<String> = conditions
        .filter(|each| each["status"] != "True" && each["type"] != "Ready")
        .map(|each| {
            let reported = if text(each, "/message").is_empty() {
                text(each, "/reason")
            } else {
                text(each, "/message")
            };
            format!("{}: {reported}", text(each, "/type"))
        })
        .collect();
    let why = if whys.is_empty() { "no condition has a reason".to_owned() } else { whys.join("; ") };
    Some(Finding::fail(
        if object["kind"] == "NodePool" { "pools" } else { "classes" },
        format!("{} is not ready: {why}", title(object)),
        format!("kubectl describe {} {}", text(object, "/kind").to_lowercase(), name(object)),
    ))
}

/// The finding that a class has kubelet settings which its instances do not get: Karpenter up to 1.14 ignores them, and
/// with a newer version the class is not ready.
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
        "spec.kubelet.podsPerCore, which Bottlerocket does not support"
    } else if addresses > 1 && !takes_all {
        "several addresses in spec.kubelet.clusterDNS, of which Bottlerocket uses the first"
    } else {
        return None;
    };
    Some(Finding::warn(
        "classes",
        format!("{} has {what}; this controller does not launch instances with such a class", title(class)),
        "remove it from the class before this controller takes over; existing nodes do not change",
    ))
}

fn judge_pools(pools: &[Value], classes: &[Value], facts: &Facts) -> Vec<Finding> {
    if facts.pools.is_err() {
        return Vec::new();
    }
    if pools.is_empty() {
        return vec![Finding::warn(
            "pools",
            "there are no NodePools, so no nodes are launched",
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
        } else if condition(pool, "Ready").is_none() && facts.has_active_controller() {
            findings.push(Finding::warn(
                "pools",
                format!("{} has no status from a controller", title(pool)),
                "check that the controller's provider supports the NodePool's node class",
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
        let reported = condition(claim, "Launched").filter(|(status, ..)| *status != "True");
        if let Some((_, _, message)) = reported.filter(|(_, _, message)| message.contains(SPOT_ROLE_MISSING))
        {
            findings.push(Finding::fail(
                "spot-role",
                format!("{}: {message}", title(claim)),
                "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com (once per account)",
            ));
        } else if let Some((_, reason, message)) = reported.filter(|(status, ..)| *status == "False") {
            findings.push(Finding::fail(
                "claims",
                format!("{} failed to launch: {reason} {message}", title(claim)),
                "see the provider's message",
            ));
        }
        let age = age_secs(claim, "/metadata/creationTimestamp", facts.now).unwrap_or(0);
        let is_registered = condition(claim, "Registered").is_some_and(|(status, ..)| status == "True");
        if !is_registered && !is_being_deleted(claim) && age > UNREGISTERED_CLAIM_SECS {
            findings.push(Finding::fail(
                "claims",
                format!("{} has no node after {} min", title(claim), age / 60),
                "its instance does not join the cluster: check user data, security groups, the role's access to the cluster, and the \
                 console output of the instance",
            ));
        }
    }
    if findings.is_empty() && facts.claims.is_ok() {
        findings.push(Finding::ok("claims", format!("{} NodeClaims, none is stuck", claims.len())));
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
                    "`kubectl describe node {}` shows why; if the IAM role or the EKS access entry of the node was deleted, \
                     create it again; otherwise delete the node, and the controller terminates its instance",
                    name(node)
                ),
            ));
        }
        let age = age_secs(node, "/metadata/creationTimestamp", facts.now).unwrap_or(0);
        if unregistered && age > UNREGISTERED_NODE_SECS {
            findings.push(Finding::fail(
                "nodes",
                format!("{} still has the taint {TAINT_UNREGISTERED} after {} min", title(node), age / 60),
                "the controller found no NodeClaim for the node, and its log says why; if no controller is active, `karpenter \
                 uninstall --nodes keep` uninstalls Karpenter, keeps the nodes and removes this taint",
            ));
        }
        if has_taint(node, TAINT_DISRUPTED) && !is_being_deleted(node) && !facts.has_active_controller() {
            findings.push(Finding::fail(
                "nodes",
                format!("{} has the taint {TAINT_DISRUPTED}, and no controller is active", title(node)),
                "start the controller, which deletes the node or removes the taint; or run `karpenter uninstall --nodes keep`, \
                 which uninstalls Karpenter, keeps the nodes and removes the taint",
            ));
        }
        if is_pools && facts.claims.is_ok() && !claimed.contains(name(node)) && !unregistered {
            findings.push(Finding::warn(
                "nodes",
                format!("{} has the label {NODEPOOL} and no NodeClaim", title(node)),
                "Karpenter does not manage nodes without a NodeClaim: if another program set the label, remove the label; \
                 otherwise delete the node and terminate its instance",
            ));
        }
    }
    if findings.is_empty() && facts.nodes.is_ok() {
        findings.push(Finding::ok("nodes", format!("{count} nodes of NodePools, all ready")));
    }
    findings
}

/// Findings about finalizers that no controller removes, and about deletions that take too long.
fn leftovers(groups: &[&Vec<Value>], facts: &Facts) -> Vec<Finding> {
    let held: Vec<&Value> =
        groups.iter().flat_map(|group| group.iter()).filter(|object| is_held(object)).collect();
    let deleted: Vec<&&Value> = held.iter().filter(|object| is_being_deleted(object)).collect();
    if facts.has_active_controller() {
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
                        "{} has been terminating for {} min ({})",
                        title(object),
                        age / 60,
                        finalizers(object).join(", ")
                    ),
                    "the drain waits for pods that cannot be evicted: see `kubectl get pdb --all-namespaces` and pods with the \
                     annotation karpenter.sh/do-not-disrupt; terminationGracePeriod of the NodePool limits the duration of a drain",
                )
            })
            .collect();
        if !stuck.is_empty() {
            return stuck;
        }
        return vec![Finding::ok("finalizers", "no leftover finalizers")];
    }
    if held.is_empty() {
        return vec![Finding::ok("finalizers", "no leftover finalizers")];
    }
    let titles: Vec<String> = held.iter().map(|object| title(object)).collect();
    let names: Vec<&str> = titles.iter().map(String::as_str).collect();
    let fix = "start the controller, which completes the deletions and removes the finalizers; if no controller will run again, \
               run `karpenter uninstall --nodes keep`, which uninstalls Karpenter, keeps the nodes and removes the finalizers, \
               and terminate the instances of deleted NodeClaims yourself";
    vec![if deleted.is_empty() {
        Finding::warn(
            "finalizers",
            format!(
                "{} objects have a finalizer and no controller is active: {}",
                held.len(),
                listed(&names)
            ),
            fix,
        )
    } else {
        let titles: Vec<String> = deleted.iter().map(|object| title(object)).collect();
        let names: Vec<&str> = titles.iter().map(String::as_str).collect();
        Finding::fail(
            "finalizers",
            format!("{} terminating, and no controller is active", listed(&names)),
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
