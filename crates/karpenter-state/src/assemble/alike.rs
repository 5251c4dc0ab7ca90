//! Whether two pods are the same to the planner, told without converting either.
//!
//! Replicas of one workload nearly always are, and comparing is several times cheaper than converting. A `false` only
//! costs time: the pods are then converted and compared in full.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

type Amounts = BTreeMap<String, Quantity>;

/// `true` only if both convert to the same spec.
pub(super) fn are_alike(one: &Pod, other: &Pod) -> bool {
    let (Some(one_spec), Some(other_spec)) = (&one.spec, &other.spec) else { return false };
    one.metadata.namespace == other.metadata.namespace
        && one.metadata.labels == other.metadata.labels
        && statuses_are_alike(one, other)
        && !has_claims(one_spec)
        && !has_claims(other_spec)
        && specs_are_alike(one_spec, other_spec)
}

fn specs_are_alike(one: &PodSpec, other: &PodSpec) -> bool {
    one.node_selector == other.node_selector
        && one.affinity == other.affinity
        && one.tolerations == other.tolerations
        && one.topology_spread_constraints == other.topology_spread_constraints
        && one.host_network == other.host_network
        && one.overhead == other.overhead
        && one.resources == other.resources
        && one.priority == other.priority
        && one.priority_class_name == other.priority_class_name
        && one.resource_claims == other.resource_claims
        && containers_are_alike(Some(&one.containers), Some(&other.containers))
        && containers_are_alike(one.init_containers.as_ref(), other.init_containers.as_ref())
}

fn containers_are_alike(one: Option<&Vec<Container>>, other: Option<&Vec<Container>>) -> bool {
    let (one, other) = (one.map_or(&[][..], Vec::as_slice), other.map_or(&[][..], Vec::as_slice));
    let is_alike = |(one, other): (&Container, &Container)| {
        one.resources == other.resources
            && one.ports == other.ports
            && one.restart_policy == other.restart_policy
    };
    one.len() == other.len() && one.iter().zip(other).all(is_alike)
}

/// What a resize has reached so far is in the status, and may differ from pod to pod.
fn statuses_are_alike(one: &Pod, other: &Pod) -> bool {
    let is_resizing = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|conditions| conditions.iter().any(|one| one.type_ == "PodResizePending"))
    };
    !is_resizing(one) && !is_resizing(other) && sized_statuses(one).eq(sized_statuses(other))
}

fn sized_statuses(pod: &Pod) -> impl Iterator<Item = (&str, &ResourceRequirements, Option<&Amounts>)> {
    let statuses = pod.status.iter().flat_map(|status| {
        let lists = [&status.container_statuses, &status.init_container_statuses];
        lists.into_iter().flatten().flatten()
    });
    statuses.filter_map(|status| {
        Some((status.name.as_str(), status.resources.as_ref()?, status.allocated_resources.as_ref()))
    })
}

/// Claims have to be looked up.
fn has_claims(spec: &PodSpec) -> bool {
    spec.volumes
        .iter()
        .flatten()
        .any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
}

#[cfg(test)]
mod tests {
    use super::are_alike;
    use crate::testing::{objects, pod_yaml};

    fn alike(one: &str, other: &str) -> bool {
        let pods = objects(&format!("{}---\n{}", pod_yaml("a", one), pod_yaml("b", other))).pods;
        are_alike(&pods[0], &pods[1])
    }

    #[test]
    fn anything_that_decides_placement_tells_pods_apart() {
        assert!(alike("", ""));
        assert!(alike("nodeName: n1", "terminationGracePeriodSeconds: 3"));
        assert!(alike("volumes: [{name: a, emptyDir: {}}]", "volumes: [{name: b, emptyDir: {}}]"));
        for different in [
            "nodeSelector: {a: b}",
            "tolerations: [{operator: Exists}]",
            "affinity: {nodeAffinity: {}}",
            "hostNetwork: true",
            "overhead: {cpu: 1}",
            "resources: {requests: {cpu: 1}}",
            "priority: 3",
            "priorityClassName: high",
            "initContainers: [{name: i}]",
            "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
            "resourceClaims: [{name: gpu, resourceClaimName: g}]",
            "volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]",
        ] {
            assert!(!alike("", different), "{different}");
        }
        let with_status = |cpu: &str| {
            let status = format!(
                "status: {{containerStatuses: [{{name: c, image: i, imageID: i, ready: true, restartCount: 0, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}
"
            );
            objects(&format!("{}{status}", pod_yaml("p", ""))).pods.remove(0)
        };
        assert!(are_alike(&with_status("1"), &with_status("1")));
        assert!(!are_alike(&with_status("1"), &with_status("2")));
        let claims = "volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {}}}}]";
        assert!(!alike(claims, claims));
    }
}
