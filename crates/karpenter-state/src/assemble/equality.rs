//! Whether two pods have equal specs after conversion, decided without converting them.
//!
//! Replicas of one workload nearly always have equal specs: they share metadata and spec, so it is enough to compare
//! two addresses. If the result is `false`, the pods are converted and compared, which only takes longer.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::pod::Pod;

/// `true` only if both pods have equal specs after conversion.
pub(super) fn convert_to_equal_specs(one: &Pod, other: &Pod) -> bool {
    (Arc::ptr_eq(&one.shared_meta, &other.shared_meta)
        || (one.namespace() == other.namespace() && one.labels() == other.labels()))
        && one.status.actual_resources == other.status.actual_resources
        && !has_claims(&one.spec)
        && (Arc::ptr_eq(&one.spec, &other.spec)
            || (!has_claims(&other.spec) && specs_are_equal(&one.spec, &other.spec)))
}

fn specs_are_equal(one: &PodSpec, other: &PodSpec) -> bool {
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
        && containers_are_equal(Some(&one.containers), Some(&other.containers))
        && containers_are_equal(one.init_containers.as_ref(), other.init_containers.as_ref())
}

fn containers_are_equal(one: Option<&Vec<Container>>, other: Option<&Vec<Container>>) -> bool {
    let (one, other) = (one.map_or(&[][..], Vec::as_slice), other.map_or(&[][..], Vec::as_slice));
    let is_equal = |(one, other): (&Container, &Container)| {
        one.resources == other.resources
            && one.ports == other.ports
            && one.restart_policy == other.restart_policy
    };
    one.len() == other.len() && one.iter().zip(other).all(is_equal)
}

/// Whether the pod has volume claims, which would have to be looked up.
fn has_claims(spec: &PodSpec) -> bool {
    spec.volumes
        .iter()
        .flatten()
        .any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
}

#[cfg(test)]
mod tests {
    use super::convert_to_equal_specs;
    use crate::testing::{objects, pod_yaml};

    fn equality(one: &str, other: &str) -> bool {
        let pods = objects(&format!("{}---\n{}", pod_yaml("a", one), pod_yaml("b", other))).pods;
        convert_to_equal_specs(&pods[0], &pods[1])
    }

    #[test]
    fn fields_that_decide_placement_make_pods_different() {
        assert!(equality("", ""));
        assert!(equality("nodeName: n1", "terminationGracePeriodSeconds: 3"));
        assert!(equality("volumes: [{name: a, emptyDir: {}}]", "volumes: [{name: b, emptyDir: {}}]"));
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
            assert!(!equality("", different), "{different}");
        }
        let with_status = |cpu: &str| {
            let status = format!(
                "status: {{containerStatuses: [{{name: c, image: i, imageID: i, ready: true, restartCount: 0, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}
"
            );
            objects(&format!("{}{status}", pod_yaml("p", ""))).pods.remove(0)
        };
        assert!(convert_to_equal_specs(&with_status("1"), &with_status("1")));
        assert!(!convert_to_equal_specs(&with_status("1"), &with_status("2")));
        let claims = "volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {}}}}]";
        assert!(!equality(claims, claims));
    }
}
