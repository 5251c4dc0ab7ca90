//! The hosts on which pods can have reservations: whether a host exists and is not terminating, since when its node is
//! initialized, and whether it has capacity.
//!
//! A node is called open here when it is initialized, so that pods can be bound to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::name_of;
use karpenter_state::claim::is_instance_terminating;
use karpenter_state::node::is_tracked;
use karpenter_state::pod::Pod;

use super::is_overdue;
use super::{NOMINATED_MAX, PlannerReader, can_never_run_on};
use crate::nominations::available_capacity::AvailableCapacity;
use crate::pods;
use crate::stores::{BY_NODE, BY_PROVIDER_ID};

/// The NodeClaims of this provider, and nodes without a NodeClaim.
pub(super) struct Hosts {
    /// NodeClaims that are not terminating, and when the node of each was first seen initialized; `None` if it is not
    /// initialized yet.
    open_since: BTreeMap<String, Option<Timestamp>>,
    /// Nodes without a NodeClaim that are not terminating. Only commands reserve capacity on them. A reservation on a
    /// NodeClaim does not continue on its Node when the NodeClaim is deleted.
    nodes_without_claim: BTreeSet<String>,
    pub(super) host_of_node: BTreeMap<String, String>,
    /// The nodes of all hosts that are not terminating, by host.
    nodes: BTreeMap<String, Arc<Node>>,
    pub(super) terminating_nodes: BTreeSet<String>,
    nomination_ttl: Duration,
    now: Timestamp,
}

impl Hosts {
    pub(super) fn read(reader: &PlannerReader, nomination_ttl: Duration, now: Timestamp) -> Self {
        let stores = &reader.reads.stores;
        let mut claims = Self {
            open_since: BTreeMap::new(),
            nodes_without_claim: BTreeSet::new(),
            host_of_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            terminating_nodes: BTreeSet::new(),
            nomination_ttl,
            now,
        };
        for claim in stores.node_claims.list() {
            if !reader.reads.is_managed(&claim.spec.node_class_ref) {
                continue;
            }
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
            let nodes = provider_id
                .filter(|id| !id.is_empty())
                .map(|id| stores.nodes.by(BY_PROVIDER_ID, id))
                .unwrap_or_default();
            let names = nodes.iter().filter_map(|node| node.metadata.name.clone());
            claims.host_of_node.extend(names.clone().map(|node| (node, name.to_owned())));
            if is_terminating(&claim) || reader.reads.state.is_marked_for_deletion(name) {
                claims.terminating_nodes.extend(names);
                continue;
            }
            let is_open = nodes.iter().any(|node| {
                let labels = node.metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(labels::INITIALIZED)).is_some_and(|value| value == "true")
            });
            claims.nodes.extend(nodes.into_iter().next().map(|node| (name.to_owned(), node)));
            claims
                .open_since
                .insert(name.to_owned(), is_open.then(|| reader.reads.state.record_open(name, now)));
        }
        reader.reads.state.retain_claims(|host| {
            stores.node_claims.get("", host).is_some() || stores.nodes.get("", host).is_some()
        });
        for node in stores.nodes.list().into_iter().filter(|node| is_tracked(node)) {
            let name = node.metadata.name.clone().unwrap_or_default();
            if claims.host_of_node.contains_key(&name) {
                continue;
            }
            if node.metadata.deletion_timestamp.is_some() {
                claims.terminating_nodes.insert(name);
            } else {
                claims.nodes.insert(name.clone(), node);
                claims.nodes_without_claim.insert(name);
            }
        }
        claims
    }

    /// The node that the kube-scheduler nominated for a pending pod, for example because it preempts pods there. The
    /// nomination is ignored if the node no longer exists, if the pod can never run there, or if the nomination has had
    /// no effect for a while: it may be left over from an earlier process.
    pub(super) fn scheduler_nomination_of<'p>(
        &self,
        reader: &PlannerReader,
        pod: &'p Pod,
    ) -> Option<&'p str> {
        let uid = pods::uid_of(pod);
        let node = pods::nominated_node(pod)?;
        if reader.reads.state.nominated_by_us(uid).as_deref() == Some(node) {
            return None;
        }
        let since = reader.reads.state.nominated_by_others_since(uid, node, self.now);
        let stores = &reader.reads.stores;
        let is_any_pod_terminating =
            || stores.pods.by(BY_NODE, node).iter().any(|one| one.deleted_at.is_some());
        let is_fresh = !is_overdue(since, self.now, NOMINATED_MAX) || is_any_pod_terminating();
        let is_there = stores.nodes.get("", node).is_some();
        (is_there && is_fresh && !can_never_run_on(stores, Some(node), pod)).then_some(node)
    }

    /// Whether a reservation can be on this host: the host exists and is not terminating.
    pub(super) fn is_there(&self, host: &str, is_move: bool) -> bool {
        self.open_since.contains_key(host) || (is_move && self.nodes_without_claim.contains(host))
    }

    /// Whether the pod fits on the host next to bound pods and other reservations. A node that is not initialized yet
    /// always has capacity, because only pods that are planned for it can use it.
    pub(super) fn fits(&self, reader: &PlannerReader, host: &str, pod: &Pod) -> bool {
        let is_closed = self.open_since.get(host).is_some_and(Option::is_none);
        let Some(node) = self.nodes.get(host).filter(|_| !is_closed) else { return true };
        let stores = &reader.reads.stores;
        let mut available =
            AvailableCapacity::after_terminations(node, &stores.pods.by(BY_NODE, name_of(&**node)));
        for reservation in
            reader.reads.state.reservations_on(host).iter().filter(|reservation| reservation.uid != *pod.uid)
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

    /// Whether a reservation is still valid: its host exists, and the time in which the pod should have been bound is
    /// not over. That time starts when the node is initialized.
    pub(super) fn is_usable(&self, host: &str, since: Timestamp, is_move: bool) -> bool {
        self.is_there(host, is_move) && !self.is_overdue_on(host, since, self.nomination_ttl)
    }

    /// Whether the pod could have been bound to the host for at least `limit`.
    pub(super) fn is_overdue_on(&self, host: &str, since: Timestamp, limit: Duration) -> bool {
        match self.open_since.get(host) {
            Some(None) => false,
            Some(Some(opened)) => is_overdue((*opened).max(since), self.now, limit),
            None => is_overdue(since, self.now, limit),
        }
    }
}

/// Whether the claim is deleted or its instance is terminating.
fn is_terminating(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some() || is_instance_terminating(claim)
}
