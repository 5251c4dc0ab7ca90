//! Decides whether instances can be launched with a node class at present, and returns the error if not.

use std::sync::Arc;

use karpenter_api::types::{ConditionStatus, EC2NodeClass};
use karpenter_cloud::CloudError;
use karpenter_runtime::object::is_deleting;

use super::Lookup;
use super::conditions::READY;

/// The message of the event for NodeClaims and NodePools whose node class does not exist.
pub const FAILED_RESOLVING: &str = "Failed resolving NodeClass";
pub const READINESS_UNKNOWN: &str = "NodeClassReadinessUnknown";

/// Returns the node class if it is ready. A missing or terminating node class is reported as an insufficient capacity
/// error, so that the NodeClaim is deleted and its pods are planned again.
pub fn launchable(lookup: Lookup, name: &str) -> Result<Arc<EC2NodeClass>, CloudError> {
    let gone = |what: &str| CloudError::InsufficientCapacity {
        message: format!("resolving nodeclass, ec2nodeclasses.karpenter.k8s.aws {name:?} {what}"),
    };
    match lookup {
        Lookup::Missing => Err(gone("not found")),
        Lookup::Unreadable { problem } => {
            Err(CloudError::NodeClassNotReady { message: format!("spec cannot be parsed: {problem}") })
        }
        Lookup::Found(class) if is_deleting(&*class) => Err(gone("is terminating, treating as not found")),
        Lookup::Found(class) => check(&class).map(|()| class),
    }
}

fn check(class: &EC2NodeClass) -> Result<(), CloudError> {
    let mut conditions = class.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|condition| condition.type_ == READY);
    let not_ready = |message: &str| Err(CloudError::NodeClassNotReady { message: message.to_owned() });
    match ready.map(|ready| (ready.status, ready)) {
        Some((ConditionStatus::True, ready)) if ready.observed_generation == class.metadata.generation => {
            Ok(())
        }
        Some((ConditionStatus::True, _)) => {
            not_ready("nodeclass status has not been reconciled against the latest spec")
        }
        Some((ConditionStatus::False, ready)) => not_ready(&ready.message),
        Some((ConditionStatus::Unknown, _)) | None => Err(CloudError::CreateRefused {
            reason: READINESS_UNKNOWN.to_owned(),
            message: "NodeClass is in Ready=Unknown".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn class(generation: i64, conditions: Value, deleted: Value) -> Lookup {
        let class = json!({
            "metadata": {"name": "default", "generation": generation, "deletionTimestamp": deleted},
            "status": {"conditions": conditions},
        });
        Lookup::Found(Arc::new(serde_json::from_value(class).expect("a class")))
    }

    fn ready(status: &str, observed: i64) -> Value {
        json!([{"type": "Ready", "status": status, "message": "SubnetsReady=False", "observedGeneration": observed}])
    }

    #[test]
    fn class_is_launchable_only_if_ready_for_its_generation() {
        let unknown = "create NodeClassReadinessUnknown: NodeClass is in Ready=Unknown";
        let table = [
            ("ready", class(2, ready("True", 2), json!(null)), "ok"),
            ("not ready", class(2, ready("False", 2), json!(null)), "not ready: SubnetsReady=False"),
            (
                "not ready for an older spec",
                class(2, ready("False", 1), json!(null)),
                "not ready: SubnetsReady=False",
            ),
            ("unknown", class(2, ready("Unknown", 2), json!(null)), unknown),
            ("never reconciled", class(1, json!([]), json!(null)), unknown),
            (
                "ready for an older spec",
                class(3, ready("True", 2), json!(null)),
                "not ready: nodeclass status has not been reconciled against the latest spec",
            ),
            (
                "terminating",
                class(2, ready("True", 2), json!("2026-01-01T00:00:00Z")),
                "no capacity: resolving nodeclass, ec2nodeclasses.karpenter.k8s.aws \"default\" is terminating, \
                 treating as not found",
            ),
            (
                "gone",
                Lookup::Missing,
                "no capacity: resolving nodeclass, ec2nodeclasses.karpenter.k8s.aws \"default\" not found",
            ),
            (
                "unreadable",
                Lookup::Unreadable { problem: "x".to_owned() },
                "not ready: spec cannot be parsed: x",
            ),
        ];
        for (case, lookup, expected) in table {
            let found = match launchable(lookup, "default") {
                Ok(_) => "ok".to_owned(),
                Err(CloudError::InsufficientCapacity { message }) => format!("no capacity: {message}"),
                Err(CloudError::NodeClassNotReady { message }) => format!("not ready: {message}"),
                Err(CloudError::CreateRefused { reason, message }) => format!("create {reason}: {message}"),
                Err(other) => panic!("{case}: {other}"),
            };
            assert_eq!(found, expected, "{case}");
        }
    }
}
