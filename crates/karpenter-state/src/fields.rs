//! The fields of pods and nodes that are read, by their numbers in the API's protobuf definitions (k8s.io/api v0.35,
//! `core/v1` and `meta/v1`). Other fields are not read.

mod node;
#[cfg(test)]
mod tests;

use karpenter_runtime::protobuf::field::{
    Kind, KindFields, Kinds, LIST_META, Message, field, many, one, optional, text,
};

/// The kinds that are read as protobuf.
pub const PODS_AND_NODES: Kinds = &[
    KindFields { kind: "Pod", object: &POD, list: &POD_LIST },
    KindFields { kind: "Node", object: &node::NODE, list: &node::NODE_LIST },
];

static OBJECT_META: Message = Message(&[
    text(1, "name"),
    text(3, "namespace"),
    text(5, "uid"),
    text(6, "resourceVersion"),
    field(7, "generation", Kind::Number),
    field(8, "creationTimestamp", Kind::Time),
    field(9, "deletionTimestamp", Kind::Time),
    optional(10, "deletionGracePeriodSeconds", Kind::Number),
    field(11, "labels", Kind::Labels),
    field(12, "annotations", Kind::Labels),
    many(13, "ownerReferences", &OWNER_REFERENCE),
    field(14, "finalizers", Kind::Texts),
]);

static OWNER_REFERENCE: Message = Message(&[
    text(1, "kind"),
    text(3, "name"),
    text(4, "uid"),
    text(5, "apiVersion"),
    optional(6, "controller", Kind::Flag),
    optional(7, "blockOwnerDeletion", Kind::Flag),
]);

static POD_LIST: Message = Message(&[one(1, "metadata", &LIST_META), many(2, "items", &POD)]);

static POD: Message =
    Message(&[one(1, "metadata", &OBJECT_META), one(2, "spec", &POD_SPEC), one(3, "status", &POD_STATUS)]);

static POD_SPEC: Message = Message(&[
    many(1, "volumes", &VOLUME),
    many(2, "containers", &CONTAINER),
    text(3, "restartPolicy"),
    optional(4, "terminationGracePeriodSeconds", Kind::Number),
    optional(5, "activeDeadlineSeconds", Kind::Number),
    field(7, "nodeSelector", Kind::Labels),
    text(10, "nodeName"),
    field(11, "hostNetwork", Kind::Flag),
    one(18, "affinity", &AFFINITY),
    text(19, "schedulerName"),
    many(20, "initContainers", &CONTAINER),
    many(22, "tolerations", &TOLERATION),
    text(24, "priorityClassName"),
    optional(25, "priority", Kind::Number),
    optional(29, "runtimeClassName", Kind::Text),
    optional(31, "preemptionPolicy", Kind::Text),
    field(32, "overhead", Kind::Amounts),
    many(33, "topologySpreadConstraints", &SPREAD),
    one(36, "os", &NAMED),
    many(38, "schedulingGates", &NAMED),
    many(39, "resourceClaims", &POD_RESOURCE_CLAIM),
    one(40, "resources", &RESOURCES),
]);

static NAMED: Message = Message(&[text(1, "name")]);

static POD_RESOURCE_CLAIM: Message = Message(&[
    text(1, "name"),
    optional(3, "resourceClaimName", Kind::Text),
    optional(4, "resourceClaimTemplateName", Kind::Text),
]);

static VOLUME: Message = Message(&[text(1, "name"), field(2, "", Kind::Within(&VOLUME_SOURCE))]);

static VOLUME_SOURCE: Message =
    Message(&[one(10, "persistentVolumeClaim", &CLAIM_SOURCE), one(29, "ephemeral", &EPHEMERAL_SOURCE)]);

static CLAIM_SOURCE: Message = Message(&[text(1, "claimName"), field(2, "readOnly", Kind::Flag)]);

static EPHEMERAL_SOURCE: Message = Message(&[one(1, "volumeClaimTemplate", &CLAIM_TEMPLATE)]);

static CLAIM_TEMPLATE: Message = Message(&[one(1, "metadata", &OBJECT_META), one(2, "spec", &CLAIM_SPEC)]);

static CLAIM_SPEC: Message = Message(&[
    field(1, "accessModes", Kind::Texts),
    one(2, "resources", &RESOURCES),
    text(3, "volumeName"),
    one(4, "selector", &LABEL_SELECTOR),
    optional(5, "storageClassName", Kind::Text),
    optional(6, "volumeMode", Kind::Text),
    optional(9, "volumeAttributesClassName", Kind::Text),
]);

static CONTAINER: Message = Message(&[
    text(1, "name"),
    many(6, "ports", &PORT),
    one(8, "resources", &RESOURCES),
    optional(24, "restartPolicy", Kind::Text),
]);

static PORT: Message = Message(&[
    text(1, "name"),
    field(2, "hostPort", Kind::Number),
    field(3, "containerPort", Kind::Number),
    text(4, "protocol"),
    text(5, "hostIP"),
]);

static RESOURCES: Message = Message(&[
    field(1, "limits", Kind::Amounts),
    field(2, "requests", Kind::Amounts),
    many(3, "claims", &RESOURCE_CLAIM),
]);

static RESOURCE_CLAIM: Message = Message(&[text(1, "name"), text(2, "request")]);

static TOLERATION: Message = Message(&[
    text(1, "key"),
    text(2, "operator"),
    text(3, "value"),
    text(4, "effect"),
    optional(5, "tolerationSeconds", Kind::Number),
]);

static SPREAD: Message = Message(&[
    field(1, "maxSkew", Kind::Number),
    text(2, "topologyKey"),
    text(3, "whenUnsatisfiable"),
    one(4, "labelSelector", &LABEL_SELECTOR),
    optional(5, "minDomains", Kind::Number),
    optional(6, "nodeAffinityPolicy", Kind::Text),
    optional(7, "nodeTaintsPolicy", Kind::Text),
    field(8, "matchLabelKeys", Kind::Texts),
]);

static LABEL_SELECTOR: Message =
    Message(&[field(1, "matchLabels", Kind::Labels), many(2, "matchExpressions", &EXPRESSION)]);

/// Both label selectors and node selectors have this message.
static EXPRESSION: Message = Message(&[text(1, "key"), text(2, "operator"), field(3, "values", Kind::Texts)]);

static AFFINITY: Message = Message(&[
    one(1, "nodeAffinity", &NODE_AFFINITY),
    one(2, "podAffinity", &POD_AFFINITY),
    one(3, "podAntiAffinity", &POD_AFFINITY),
]);

static NODE_AFFINITY: Message = Message(&[
    one(1, "requiredDuringSchedulingIgnoredDuringExecution", &NODE_SELECTOR),
    many(2, "preferredDuringSchedulingIgnoredDuringExecution", &PREFERRED_NODES),
]);

static NODE_SELECTOR: Message = Message(&[many(1, "nodeSelectorTerms", &NODE_TERM)]);

static NODE_TERM: Message =
    Message(&[many(1, "matchExpressions", &EXPRESSION), many(2, "matchFields", &EXPRESSION)]);

static PREFERRED_NODES: Message =
    Message(&[field(1, "weight", Kind::Number), one(2, "preference", &NODE_TERM)]);

static POD_AFFINITY: Message = Message(&[
    many(1, "requiredDuringSchedulingIgnoredDuringExecution", &POD_TERM),
    many(2, "preferredDuringSchedulingIgnoredDuringExecution", &PREFERRED_PODS),
]);

static POD_TERM: Message = Message(&[
    one(1, "labelSelector", &LABEL_SELECTOR),
    field(2, "namespaces", Kind::Texts),
    text(3, "topologyKey"),
    one(4, "namespaceSelector", &LABEL_SELECTOR),
    field(5, "matchLabelKeys", Kind::Texts),
    field(6, "mismatchLabelKeys", Kind::Texts),
]);

static PREFERRED_PODS: Message =
    Message(&[field(1, "weight", Kind::Number), one(2, "podAffinityTerm", &POD_TERM)]);

static POD_STATUS: Message = Message(&[
    text(1, "phase"),
    many(2, "conditions", &POD_CONDITION),
    field(7, "startTime", Kind::Time),
    many(8, "containerStatuses", &CONTAINER_STATUS),
    many(10, "initContainerStatuses", &CONTAINER_STATUS),
    text(11, "nominatedNodeName"),
]);

static POD_CONDITION: Message = Message(&[
    text(1, "type"),
    text(2, "status"),
    field(4, "lastTransitionTime", Kind::Time),
    text(5, "reason"),
]);

static CONTAINER_STATUS: Message = Message(&[
    text(1, "name"),
    field(10, "allocatedResources", Kind::Amounts),
    one(11, "resources", &RESOURCES),
]);
