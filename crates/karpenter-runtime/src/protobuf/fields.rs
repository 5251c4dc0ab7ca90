//! The fields of pods and nodes that are read, by their numbers in the API's protobuf definitions (k8s.io/api v0.35,
//! `core/v1` and `meta/v1`; numbers are never reused). Other fields are not read.

/// The fields of a message that are read.
pub(super) struct Message(pub(super) &'static [Field]);

pub(super) struct Field {
    pub(super) number: u32,
    /// The name in JSON.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// An optional field: zero differs from absent.
    pub(super) is_optional: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
    Time,
    Texts,
    Labels,
    Amounts,
    One(&'static Message),
    Many(&'static Message),
    /// A message whose fields are inlined into the outer object in JSON.
    Within(&'static Message),
}

const fn field(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_optional: false }
}

/// An optional field.
const fn optional(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_optional: true }
}

const fn text(number: u32, name: &'static str) -> Field {
    field(number, name, Kind::Text)
}

/// A message field that is written even if it is empty.
const fn one(number: u32, name: &'static str, message: &'static Message) -> Field {
    optional(number, name, Kind::One(message))
}

const fn many(number: u32, name: &'static str, message: &'static Message) -> Field {
    field(number, name, Kind::Many(message))
}

/// The message of a kind, of its list, or of an error status.
pub(super) fn message_of(kind: &str) -> Option<&'static Message> {
    match kind {
        "Pod" => Some(&POD),
        "PodList" => Some(&POD_LIST),
        "Node" => Some(&NODE),
        "NodeList" => Some(&NODE_LIST),
        "Status" => Some(&STATUS),
        _ => None,
    }
}

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

static LIST_META: Message = Message(&[
    text(2, "resourceVersion"),
    text(3, "continue"),
    optional(4, "remainingItemCount", Kind::Number),
]);

static STATUS: Message = Message(&[
    one(1, "metadata", &LIST_META),
    text(2, "status"),
    text(3, "message"),
    text(4, "reason"),
    one(5, "details", &STATUS_DETAILS),
    field(6, "code", Kind::Number),
]);

static STATUS_DETAILS: Message = Message(&[
    text(1, "name"),
    text(2, "group"),
    text(3, "kind"),
    many(4, "causes", &STATUS_CAUSE),
    field(5, "retryAfterSeconds", Kind::Number),
    text(6, "uid"),
]);

static STATUS_CAUSE: Message = Message(&[text(1, "reason"), text(2, "message"), text(3, "field")]);

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

static NODE_LIST: Message = Message(&[one(1, "metadata", &LIST_META), many(2, "items", &NODE)]);

static NODE: Message =
    Message(&[one(1, "metadata", &OBJECT_META), one(2, "spec", &NODE_SPEC), one(3, "status", &NODE_STATUS)]);

static NODE_SPEC: Message =
    Message(&[text(3, "providerID"), field(4, "unschedulable", Kind::Flag), many(5, "taints", &TAINT)]);

static TAINT: Message =
    Message(&[text(1, "key"), text(2, "value"), text(3, "effect"), field(4, "timeAdded", Kind::Time)]);

static NODE_STATUS: Message = Message(&[
    field(1, "capacity", Kind::Amounts),
    field(2, "allocatable", Kind::Amounts),
    text(3, "phase"),
    many(4, "conditions", &NODE_CONDITION),
    many(5, "addresses", &ADDRESS),
    one(7, "nodeInfo", &NODE_INFO),
]);

static NODE_CONDITION: Message = Message(&[
    text(1, "type"),
    text(2, "status"),
    field(4, "lastTransitionTime", Kind::Time),
    text(5, "reason"),
    text(6, "message"),
]);

static ADDRESS: Message = Message(&[text(1, "type"), text(2, "address")]);

static NODE_INFO: Message = Message(&[
    text(1, "machineID"),
    text(2, "systemUUID"),
    text(3, "bootID"),
    text(4, "kernelVersion"),
    text(5, "osImage"),
    text(6, "containerRuntimeVersion"),
    text(7, "kubeletVersion"),
    text(8, "kubeProxyVersion"),
    text(9, "operatingSystem"),
    text(10, "architecture"),
]);
