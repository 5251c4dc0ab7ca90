//! The labels and taints that the kubelet gives the node when it registers, derived from those of the NodeClaim.
//!
//! The API server rejects a node if its kubelet sets labels of Kubernetes' own domains (NodeRestriction). The
//! registration controller sets those labels later.

use std::collections::BTreeMap;

use karpenter_model::labels::CAPACITY_TYPE;
use karpenter_model::taints::{Effect, Taint};

use crate::AmiFamily;

/// A label on nodes whose kubelet sets the NodeClaim's taints, so that registration does not add them.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// The taint that keeps pods off a node until registration has set the NodeClaim's labels and taints.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";

const FORBIDDEN_DOMAINS: [&str; 3] = ["node-restriction.kubernetes.io", "kubernetes.io", "k8s.io"];

/// The value of [`crate::Input::labels`] for a NodeClaim.
pub fn labels(
    family: AmiFamily,
    claim: &BTreeMap<String, String>,
    capacity_type: &str,
) -> BTreeMap<String, String> {
    let mut labels = claim.clone();
    labels.insert(CAPACITY_TYPE.to_owned(), capacity_type.to_owned());
    // The user data of a custom AMI may not set taints, so registration must add them.
    if family != AmiFamily::Custom {
        labels.insert(DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
    }
    labels.retain(|key, _| !is_forbidden(key));
    labels
}

/// The value of [`crate::Input::taints`] for a NodeClaim.
pub fn taints(claim: &[Taint], startup: &[Taint]) -> Vec<Taint> {
    let mut taints: Vec<Taint> = claim.iter().chain(startup).cloned().collect();
    let is_unregistered = |taint: &Taint| &*taint.key == UNREGISTERED && taint.effect == Effect::NoExecute;
    if !taints.iter().any(is_unregistered) {
        taints.push(Taint { key: UNREGISTERED.into(), value: "".into(), effect: Effect::NoExecute });
    }
    taints
}

fn is_forbidden(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    FORBIDDEN_DOMAINS.iter().any(|forbidden| {
        domain.strip_suffix(forbidden).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn taint(key: &str, value: &str, effect: Effect) -> Taint {
        Taint { key: key.into(), value: value.into(), effect }
    }

    #[test]
    fn labels_of_kubernetes_domains_are_omitted() {
        for (key, kept) in [
            ("team", true),
            ("example.com/team", true),
            ("karpenter.sh/nodepool", true),
            ("karpenter.k8s.aws/instance-cpu", true),
            ("topology.k8s.aws/zone-id", true),
            ("mykubernetes.io/a", true),
            ("kubernetes.io", true),
            ("kubernetes.io/arch", false),
            ("k8s.io/a", false),
            ("x.k8s.io/a", false),
            ("node.kubernetes.io/instance-type", false),
            ("topology.kubernetes.io/zone", false),
            ("node-restriction.kubernetes.io/a", false),
            ("team.node-restriction.kubernetes.io/a", false),
            ("kops.k8s.io/instancegroup", false),
        ] {
            let labels = labels(AmiFamily::Al2023, &map(&[(key, "v")]), "spot");
            assert_eq!(labels.contains_key(key), kept, "{key}");
        }
    }

    #[test]
    fn every_family_except_custom_has_do_not_sync_taints() {
        for family in AmiFamily::ALL {
            let expected = match family {
                AmiFamily::Custom => map(&[("karpenter.sh/capacity-type", "on-demand")]),
                _ => map(&[
                    ("karpenter.sh/capacity-type", "on-demand"),
                    ("karpenter.sh/do-not-sync-taints", "true"),
                ]),
            };
            assert_eq!(labels(family, &BTreeMap::new(), "on-demand"), expected, "{family:?}");
        }
    }

    #[test]
    fn launched_capacity_type_overrides_label_of_claim() {
        let labels = labels(AmiFamily::Al2, &map(&[("karpenter.sh/capacity-type", "spot")]), "reserved");
        assert_eq!(labels["karpenter.sh/capacity-type"], "reserved");
    }

    #[test]
    fn taints_keep_their_order_and_end_with_unregistered() {
        let answer = taints(&[taint("b", "1", Effect::NoSchedule)], &[taint("a", "", Effect::NoExecute)]);
        let shown: Vec<String> = answer.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["b=1:NoSchedule", "a:NoExecute", "karpenter.sh/unregistered:NoExecute"]);
    }

    #[test]
    fn unregistered_is_added_unless_present_with_no_execute() {
        let present = taint(UNREGISTERED, "x", Effect::NoExecute);
        assert_eq!(taints(&[], std::slice::from_ref(&present)), [present]);
        let other = taint(UNREGISTERED, "", Effect::NoSchedule);
        assert_eq!(taints(std::slice::from_ref(&other), &[]).len(), 2);
    }
}
