//! The fields of nodes that are read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_runtime::protobuf::field::{Kind, LIST_META, Message, field, many, one, text};

use super::KeptMessage;

pub(super) static NODE_LIST: Message = Message(&[one(1, "metadata", &LIST_META), many(2, "items", &NODE)]);

pub(super) static NODE: Message = Message(&[
    one(1, "metadata", &<ObjectMeta as KeptMessage>::MESSAGE),
    one(2, "spec", &NODE_SPEC),
    one(3, "status", &NODE_STATUS),
]);

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
