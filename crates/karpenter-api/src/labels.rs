//! The keys of labels, annotations, taints and finalizers, and which label keys users may set.
//!
//! For each provider, the module decides whether a label key is well known, restricted or deprecated. Keys that the
//! planner interprets are defined in `karpenter-model` and re-exported here.
//!
//! Upstream: `pkg/apis/v1/labels.go`.

mod aws;
#[cfg(test)]
mod tests;

pub use aws::*;

use std::collections::BTreeSet;

pub use karpenter_model::labels::{
    ARCH, CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT, HOSTNAME,
    INITIALIZED, INSTANCE_TYPE, NODEPOOL, OS, REGION, REGISTERED, WINDOWS_BUILD, ZONE,
};

/// The API group of Karpenter's core kinds, which is also the domain of its labels.
pub const GROUP: &str = "karpenter.sh";
/// API group of CapacityBuffers.
pub const CAPACITY_BUFFER_GROUP: &str = "autoscaling.x-k8s.io";

// Labels.
/// A Node label: if it is present, registration does not copy the NodeClaim's taints to the Node.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// A label that a Node has while it drains, so that load balancers stop sending traffic to it.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
pub const EXCLUDE_FROM_LOAD_BALANCERS_VALUE: &str = "karpenter";
/// A label on Nodes of the v1alpha5 API: the name of the node's Provisioner.
pub const PROVISIONER_NAME: &str = "karpenter.sh/provisioner-name";
/// An annotation of derived objects: the kind of the v1alpha5 object that they are derived from.
pub const DERIVED_FROM: &str = "compatibility.karpenter.sh/derived-from";
pub const DERIVED_FROM_PROVISIONER: &str = "provisioner";
pub const DERIVED_FROM_NODE_TEMPLATE: &str = "awsnodetemplate";
/// An annotation of a NodePool derived from a Provisioner: the Provisioner's ttlSecondsUntilExpired.
pub const ANNOTATION_TTL_UNTIL_EXPIRED: &str =
    "compatibility.karpenter.sh/v1alpha5-ttl-seconds-until-expired";
/// An annotation of an EC2NodeClass derived from an AWSNodeTemplate whose selector has both ids and tags: the ids,
/// separated by commas. Of what the selector terms select, only resources with these ids are used.
pub const ANNOTATION_SUBNET_IDS: &str = "compatibility.karpenter.sh/v1alpha1-subnet-ids";
pub const ANNOTATION_SECURITY_GROUP_IDS: &str = "compatibility.karpenter.sh/v1alpha1-security-group-ids";
/// An annotation of a Node of a Provisioner: the time since when the node is empty.
pub const ANNOTATION_EMPTINESS_TIMESTAMP: &str = "karpenter.sh/emptiness-timestamp";
/// An annotation of a Node of a Provisioner: `true` excludes the node from consolidation, any other value includes it.
pub const ANNOTATION_DO_NOT_CONSOLIDATE: &str = "karpenter.sh/do-not-consolidate";
/// A Pod annotation of the v1alpha5 API with the meaning of do-not-disrupt; it does not block a drain.
pub const ANNOTATION_DO_NOT_EVICT: &str = "karpenter.sh/do-not-evict";

// Annotations.
pub const ANNOTATION_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
pub const ANNOTATION_DO_NOT_REPAIR: &str = "karpenter.sh/do-not-repair";
pub const ANNOTATION_DISRUPTION_COST: &str = "karpenter.sh/disruption-cost";
pub const ANNOTATION_NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
pub const ANNOTATION_NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
pub const ANNOTATION_TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
pub const ANNOTATION_MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
pub const ANNOTATION_REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
pub const ANNOTATION_PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
pub const ANNOTATION_CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
pub const ANNOTATION_REBOOT_PRE_BOOT_ID: &str = "karpenter.sh/reboot-pre-boot-id";
pub const ANNOTATION_REBOOT_TERMINATION_GRACE_PERIOD: &str = "karpenter.sh/reboot-termination-grace-period";
pub const ANNOTATION_BUFFER_FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
pub const ANNOTATION_BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
pub const ANNOTATION_BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";
pub const ANNOTATION_POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

// Annotations of a NodePool that only this controller knows; upstream ignores them. See docs/consolidation.md and
// docs/knobs.md.
/// The percentage of a hard hostname spread's pods that one node of the NodePool may hold.
pub const ANNOTATION_HOSTNAME_SPREAD_SHARE: &str = "karpenter.sh/hostname-spread-share";
/// Share of the price of the NodePool that moving all its pods has to save.
pub const ANNOTATION_CONSOLIDATION_SAVING_RATIO: &str = "karpenter.sh/consolidation-saving-ratio";
/// The minimum saving of a consolidation command, in percent of the price of its candidates.
pub const ANNOTATION_CONSOLIDATION_MIN_SAVING_PERCENT: &str = "karpenter.sh/consolidation-min-saving-percent";
/// The minimum saving of a consolidation command, in dollars per hour.
pub const ANNOTATION_CONSOLIDATION_MIN_SAVING_PER_HOUR: &str =
    "karpenter.sh/consolidation-min-saving-per-hour";
/// How long consolidation does not disrupt nodes and pods after it moved pods.
pub const ANNOTATION_CONSOLIDATION_COOL_DOWN: &str = "karpenter.sh/consolidation-cool-down";
/// The parameter k of the consolidation policy Balanced.
pub const ANNOTATION_CONSOLIDATION_BALANCED_K: &str = "karpenter.sh/consolidation-balanced-k";
/// The maximum number of pods that consolidation moves within an hour.
pub const ANNOTATION_CONSOLIDATION_MAX_MOVES_PER_HOUR: &str = "karpenter.sh/consolidation-max-moves-per-hour";
/// The value `disabled` prevents consolidation from replacing nodes by more than one node.
pub const ANNOTATION_CONSOLIDATION_MANY_TO_MANY: &str = "karpenter.sh/consolidation-many-to-many";
/// Another name of the annotation `ANNOTATION_CONSOLIDATION_MANY_TO_MANY`.
pub const ANNOTATION_CONSOLIDATION_M_TO_N: &str = "karpenter.sh/consolidation-m-to-n";
/// With the value `true`, consolidation commands are reported, but not executed.
pub const ANNOTATION_CONSOLIDATION_DRY_RUN: &str = "karpenter.sh/consolidation-dry-run";

// Annotations that record moves of pods, so that a restarted controller knows them.
/// An annotation of a NodePool with a limit of moves: how many pods consolidation moved within the last hour, by time.
pub const ANNOTATION_PODS_MOVED: &str = "karpenter.sh/pods-moved";
/// An annotation of a NodeClaim in a NodePool with a cool-down: when pods were last moved to its node.
pub const ANNOTATION_PODS_MOVED_AT: &str = "karpenter.sh/pods-moved-at";
/// An annotation of NodeClaims that a command launches: the names of the NodeClaims that they replace.
pub const ANNOTATION_REPLACES: &str = "karpenter.sh/replaces";

// Taints and finalizers.
/// A taint with effect NoSchedule on nodes that are being disrupted.
pub const TAINT_DISRUPTED: &str = "karpenter.sh/disrupted";
/// A taint with effect NoExecute on nodes that are not registered yet.
pub const TAINT_UNREGISTERED: &str = "karpenter.sh/unregistered";
/// A taint with effect NoSchedule on nodes that are being rebooted in place.
pub const TAINT_REBOOTING: &str = "karpenter.sh/rebooting";
pub const FINALIZER_TERMINATION: &str = "karpenter.sh/termination";

/// The taint of a cordoned Node. Karpenter before v1 cordoned the nodes that it drained.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const TAINT_NOT_READY: &str = "node.kubernetes.io/not-ready";
const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const TAINT_CLOUD_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const TAINT_READINESS_PREFIX: &str = "readiness.k8s.io/";

// Simulated provider.
pub const KWOK_GROUP: &str = "karpenter.kwok.sh";
pub const KWOK_NODE_CLASS: &str = "karpenter.kwok.sh/kwoknodeclass";
pub const KWOK_INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
pub const KWOK_INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
pub const KWOK_INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
pub const KWOK_INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
const KWOK_WELL_KNOWN: [&str; 4] =
    [KWOK_INSTANCE_SIZE, KWOK_INSTANCE_FAMILY, KWOK_INSTANCE_CPU, KWOK_INSTANCE_MEMORY];

/// Whether the taint is removed during the start of a new node by the component that set it, so that pods need not
/// tolerate it.
pub fn is_ephemeral_taint(key: &str, effect: &str) -> bool {
    matches!(
        (key, effect),
        (TAINT_NOT_READY, "NoSchedule" | "NoExecute")
            | (TAINT_UNREACHABLE | TAINT_CLOUD_UNINITIALIZED, "NoSchedule")
            | (TAINT_UNREGISTERED, "NoExecute")
    ) || key.starts_with(TAINT_READINESS_PREFIX)
}

/// The key of the label that names the node class, on NodeClaims and managed Nodes.
pub fn node_class_label(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_ascii_lowercase())
}

/// The part of a label key before the slash; empty for keys without a slash.
pub fn label_domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// A cloud provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    Aws,
    Kwok,
}

impl Provider {
    pub const ALL: [Provider; 2] = [Provider::Aws, Provider::Kwok];

    /// The provider whose node classes are in this API group; `None` if there is none.
    pub fn from_group(group: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.group() == group)
    }

    pub const fn group(self) -> &'static str {
        match self {
            Self::Aws => AWS_GROUP,
            Self::Kwok => KWOK_GROUP,
        }
    }

    const fn well_known(self) -> &'static [&'static str] {
        match self {
            Self::Aws => &AWS_WELL_KNOWN,
            Self::Kwok => &KWOK_WELL_KNOWN,
        }
    }

    const fn known_values(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Aws => &[(AWS_INSTANCE_TENANCY, &["default", "dedicated"])],
            Self::Kwok => &[],
        }
    }
}

/// Why users may not set a label key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestrictedLabel {
    #[error("label {key:?} belongs to the restricted domain {domain:?}")]
    Domain { key: String, domain: &'static str },
    #[error("label {key:?} is set by the node itself and cannot be configured")]
    Reserved { key: String },
}

/// The label keys, and fixed values of keys, of one provider or of all providers.
#[derive(Clone, Debug)]
pub struct LabelRules {
    well_known: BTreeSet<&'static str>,
    restricted_domains: Vec<&'static str>,
    known_values: Vec<(&'static str, &'static [&'static str])>,
}

impl LabelRules {
    pub fn for_provider(provider: Provider) -> Self {
        Self::for_providers(&[provider])
    }

    /// The rules for objects that belong to no provider, such as a pod or a NodeOverlay: the union of all providers'
    /// rules.
    pub fn for_all_providers() -> Self {
        Self::for_providers(&Provider::ALL)
    }

    fn for_providers(providers: &[Provider]) -> Self {
        let mut rules = Self {
            well_known: karpenter_model::labels::WELL_KNOWN.into_iter().collect(),
            restricted_domains: vec![GROUP],
            known_values: vec![(
                CAPACITY_TYPE,
                &[CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT, CAPACITY_TYPE_RESERVED],
            )],
        };
        for provider in providers {
            rules.well_known.extend(provider.well_known());
            rules.restricted_domains.push(provider.group());
            rules.known_values.extend(provider.known_values());
        }
        rules
    }

    /// The well-known label keys, which instance types and nodes have, in a fixed order.
    pub fn well_known(&self) -> impl Iterator<Item = &'static str> {
        self.well_known.iter().copied()
    }

    pub fn is_well_known(&self, key: &str) -> bool {
        self.well_known.contains(key)
    }

    /// All values that a label key can have; `None` if its values are not fixed.
    pub fn known_values(&self, key: &str) -> Option<&'static [&'static str]> {
        self.known_values.iter().find(|(known_key, _)| *known_key == key).map(|(_, values)| *values)
    }

    /// The stable key that replaces a deprecated key; any other key is returned unchanged.
    pub fn normalize<'a>(&self, key: &'a str) -> &'a str {
        karpenter_model::labels::normalize(key)
    }

    /// Returns an error for a label key that users may not set. Well-known keys are always accepted.
    pub fn check_unrestricted(&self, key: &str) -> Result<(), RestrictedLabel> {
        if self.is_well_known(key) {
            return Ok(());
        }
        let domain = label_domain(key);
        let owner = self.restricted_domains.iter().find(|restricted| is_within_domain(domain, restricted));
        match owner {
            Some(owner) => Err(RestrictedLabel::Domain { key: key.to_owned(), domain: owner }),
            None if key == HOSTNAME => Err(RestrictedLabel::Reserved { key: key.to_owned() }),
            None => Ok(()),
        }
    }
}

fn is_within_domain(domain: &str, owner: &str) -> bool {
    domain.strip_suffix(owner).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The name of the Provisioner that a NodePool is derived from, which equals the NodePool's name; `None` for other
/// NodePools.
pub fn provisioner_of(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<&str> {
    let origin = metadata.labels.as_ref()?.get(DERIVED_FROM)?;
    (origin == DERIVED_FROM_PROVISIONER).then(|| metadata.name.as_deref().unwrap_or_default())
}
