//! Requests and limits of containers and pods: their sums and maxima, and the QoS class that follows from them.
//!
//! Upstream: k8s.io/component-helpers/resource/helpers.go

use std::collections::BTreeMap;

use serde_json::Value;

use super::json::{entries, items, text};
use super::quantity::Quantity;

pub(crate) type ResourceList = BTreeMap<String, Quantity>;

pub(crate) fn read_list(value: &Value) -> ResourceList {
    entries(value).filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value)?))).collect()
}

/// The requests and the limits of a container.
pub(crate) fn container_lists(container: &Value) -> (ResourceList, ResourceList) {
    (read_list(&container["resources"]["requests"]), read_list(&container["resources"]["limits"]))
}

pub(crate) fn add_list(sum: &mut ResourceList, more: &ResourceList) {
    for (name, quantity) in more {
        sum.entry(name.clone()).and_modify(|total| total.add(quantity)).or_insert_with(|| quantity.clone());
    }
}

pub(crate) fn max_list(peak: &mut ResourceList, other: &ResourceList) {
    for (name, quantity) in other {
        if peak.get(name).is_none_or(|current| quantity > current) {
            peak.insert(name.clone(), quantity.clone());
        }
    }
}

/// The most that containers of a pod request at the same time, without overhead: all containers and sidecars, or an
/// init container with the sidecars before it. Pod-level values replace the sums.
pub(crate) fn pod_lists(spec: &Value) -> (ResourceList, ResourceList) {
    let total = |pick: fn(&Value) -> ResourceList, own: &Value| {
        let (mut sum, mut sidecars, mut peak) =
            (ResourceList::new(), ResourceList::new(), ResourceList::new());
        for container in items(&spec["containers"]) {
            add_list(&mut sum, &pick(container));
        }
        for container in items(&spec["initContainers"]) {
            let list = pick(container);
            let mut running = sidecars.clone();
            add_list(&mut running, &list);
            if text(&container["restartPolicy"]) == "Always" {
                add_list(&mut sum, &list);
                sidecars = running.clone();
            }
            max_list(&mut peak, &running);
        }
        max_list(&mut sum, &peak);
        sum.extend(read_list(own).into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
        sum
    };
    (
        total(|container| container_lists(container).0, &spec["resources"]["requests"]),
        total(|container| container_lists(container).1, &spec["resources"]["limits"]),
    )
}

/// The QoS class of a pod: `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn quality_of_service(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (ResourceList::new(), ResourceList::new());
    let mut is_guaranteed = true;
    let relevant = |list: ResourceList| -> ResourceList {
        list.into_iter()
            .filter(|(name, quantity)| {
                matches!(name.as_str(), "cpu" | "memory") && *quantity > Quantity::zero()
            })
            .collect()
    };
    if spec["resources"].is_object() {
        requests = relevant(read_list(&spec["resources"]["requests"]));
        limits = relevant(read_list(&spec["resources"]["limits"]));
        if !limits.is_empty() || !read_list(&spec["resources"]["limits"]).is_empty() {
            is_guaranteed = limits.len() == 2;
        }
    } else {
        for container in items(&spec["containers"]).iter().chain(items(&spec["initContainers"])) {
            let (container_requests, container_limits) = container_lists(container);
            add_list(&mut requests, &relevant(container_requests));
            let container_limits = relevant(container_limits);
            is_guaranteed &= container_limits.len() == 2;
            add_list(&mut limits, &container_limits);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if is_guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quality_of_service_classes() {
        let container =
            |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let table = [
            (json!({"containers": [container(both.clone(), both.clone())]}), "Guaranteed"),
            (
                json!({"containers": [container(json!({"cpu": "1000m", "memory": "1024Mi"}), both.clone())]}),
                "Guaranteed",
            ),
            (
                json!({"containers": [container(json!({"cpu": "500m", "memory": "1Gi"}), both.clone())]}),
                "Burstable",
            ),
            (json!({"containers": [container(json!({"cpu": "1"}), json!({"cpu": "1"}))]}), "Burstable"),
            (
                json!({"containers": [container(both.clone(), both.clone()), container(json!({}), json!({}))]}),
                "Burstable",
            ),
            (json!({"containers": [container(json!({}), json!({}))]}), "BestEffort"),
            (
                json!({"containers": [container(json!({"nvidia.com/gpu": 1}), json!({"nvidia.com/gpu": 1}))]}),
                "BestEffort",
            ),
            (json!({"containers": [container(json!({"cpu": "0"}), json!({}))]}), "BestEffort"),
            (json!({"resources": {"requests": both, "limits": both}, "containers": [{}]}), "Guaranteed"),
        ];
        for (spec, expected) in table {
            assert_eq!(quality_of_service(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn init_containers_count_by_maximum() {
        let needs = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let spec = json!({
            "containers": [{"resources": needs("1")}, {"resources": needs("500m")}],
            "initContainers": [
                {"resources": needs("3")},
                {"resources": needs("1"), "restartPolicy": "Always"},
                {"resources": needs("1")},
            ],
        });
        assert_eq!(pod_lists(&spec).0["cpu"].to_string(), "3");
        let spec = json!({
            "containers": [{"resources": needs("1")}],
            "initContainers": [{"resources": needs("2"), "restartPolicy": "Always"}, {"resources": needs("2")}],
        });
        assert_eq!(pod_lists(&spec).0["cpu"].to_string(), "4");
    }
}
