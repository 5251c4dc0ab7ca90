//! Hosts and nodes as far as pods depend on them: which stay, since when they are open, and whether there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::controllers::context::name_of;
use karpenter_state::pod::Pod;

use super::{NOMINATED_MAX, can_never_run_on};
use crate::context::Context;
use crate::node::is_tracked;
use crate::nodeclaim::is_instance_terminating;
use crate::nomination::AvailableCapacity;
use crate::pods;
use crate::provisioning::is_overdue;
use crate::stores::{BY_NODE, BY_PROVIDER_ID};

/// The claims of this provider and the nodes of nobody's, as far as pods depend on them.
pub(super) struct Hosts {
    /// Those that stay, and since when their node has been open to pods, if it is.
    open_since: BTreeMap<String, Option<Timestamp>>,
    /// Nodes without a claim that stay. Only commands move pods there: what was planned for a claim goes with it.
    others: BTreeSet<String>,
    pub(super) of_node: BTreeMap<String, String>,
    /// The nodes of all of those that stay, by host.
    nodes: BTreeMap<String, Arc<Node>>,
    pub(super) leaving_nodes: BTreeSet<String>,
    patience: Duration,
    now: Timestamp,
}

impl Hosts {
    pub(super) fn read(context: &Context, patience: Duration, now: Timestamp) -> Self {
        let stores = &context.stores;
        let mut claims = Self {
            open_since: BTreeMap::new(),
            others: BTreeSet::new(),
            of_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            leaving_nodes: BTreeSet::new(),
            patience,
            now,
        };
        for claim in stores.node_claims.list() {
            if !context.is_managed(&claim.spec.node_class_ref) {
                continue;
            }
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
            let nodes = provider_id
                .filter(|id| !id.is_empty())
                .map(|id| stores.nodes.by(BY_PROVIDER_ID, id))
                .unwrap_or_default();
            let names = nodes.iter().filter_map(|node| node.metadata.name.clone());
            claims.of_node.extend(names.clone().map(|node| (node, name.to_owned())));
            if is_leaving(&claim) || context.state.is_marked_for_deletion(name) {
                claims.leaving_nodes.extend(names);
                continue;
            }
            let is_open = nodes.iter().any(|node| {
                let labels = node.metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(labels::INITIALIZED)).is_some_and(|value| value == "true")
            });
            claims.nodes.extend(nodes.into_iter().next().map(|node| (name.to_owned(), node)));
            claims.open_since.insert(name.to_owned(), is_open.then(|| context.state.record_open(name, now)));
        }
        context.state.retain_claims(|host| {
            stores.node_claims.get("", host).is_some() || stores.nodes.get("", host).is_some()
        });
        for node in stores.nodes.list().into_iter().filter(|node| is_tracked(node)) {
            let name = node.metadata.name.clone().unwrap_or_default();
            if claims.of_node.contains_key(&name) {
                continue;
            }
            if node.metadata.deletion_timestamp.is_some() {
                claims.leaving_nodes.insert(name);
            } else {
                claims.nodes.insert(name.clone(), node);
                claims.others.insert(name);
            }
        }
        claims
    }

    /// The node on which the scheduler is making room for a pod that waits. A name that nobody has acted upon for long,
    /// or that leads nowhere, is none: it may be that of a process before this one.
    pub(super) fn scheduler_nomination_of<'p>(&self, context: &Context, pod: &'p Pod) -> Option<&'p str> {
        let uid = pods::uid_of(pod);
        let node = pods::nominated_node(pod)?;
        if context.state.nominated_by_us(uid).as_deref() == Some(node) {
            return None;
        }
        let since = context.state.nominated_by_others_since(uid, node, self.now);
        let stores = &context.stores;
        let is_anyone_leaving = || stores.pods.by(BY_NODE, node).iter().any(|one| one.deleted_at.is_some());
        let is_fresh = !is_overdue(since, self.now, NOMINATED_MAX) || is_anyone_leaving();
        let is_there = stores.nodes.get("", node).is_some();
        (is_there && is_fresh && !can_never_run_on(stores, Some(node), pod)).then_some(node)
    }

    /// Whether there is such a host, and it stays.
    pub(super) fn is_there(&self, host: &str, is_move: bool) -> bool {
        self.open_since.contains_key(host) || (is_move && self.others.contains(host))
    }

    /// Whether a pod fits the host beside those that are there or expected. One that is still closed holds nobody yet but
    /// those it was planned for.
    pub(super) fn fits(&self, context: &Context, host: &str, pod: &Pod) -> bool {
        let is_closed = self.open_since.get(host).is_some_and(Option::is_none);
        let Some(node) = self.nodes.get(host).filter(|_| !is_closed) else { return true };
        let stores = &context.stores;
        let mut available =
            AvailableCapacity::after_terminations(node, &stores.pods.by(BY_NODE, name_of(&**node)));
        for reservation in
            context.state.reservations_on(host).iter().filter(|reservation| reservation.uid != *pod.uid)
        {
            let expected =
                stores.pods.get_key(&reservation.pod).filter(|one| pods::uid_of(one) == reservation.uid);
            let is_there = |one: &Pod| pods::node_name(one) == Some(name_of(&**node));
            if let Some(expected) = expected.filter(|one| pods::is_active(one) && !is_there(one)) {
                available.try_reserve(&expected);
            }
        }
        available.try_reserve(pod)
    }

    /// Whether a pod that waits since then may still count on its place there: the node is coming up, or the pod is not
    /// overdue.
    pub(super) fn is_usable(&self, host: &str, since: Timestamp, is_move: bool) -> bool {
        self.is_there(host, is_move) && !self.is_late(host, since, self.patience)
    }

    /// Whether a pod that was planned `since` could have been bound there for so long.
    pub(super) fn is_late(&self, host: &str, since: Timestamp, patience: Duration) -> bool {
        match self.open_since.get(host) {
            Some(None) => false,
            Some(Some(opened)) => is_overdue((*opened).max(since), self.now, patience),
            None => is_overdue(since, self.now, patience),
        }
    }
}

/// Says itself that it is on its way out.
fn is_leaving(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some() || is_instance_terminating(claim)
}
