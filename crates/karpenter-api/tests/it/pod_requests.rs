//! Compares requests and limits of pods with the values recorded in `tests/data/pod_requests.json`.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use karpenter_api::pod_requests::{daemonset_pod, limits_for_pods, requests_for_pods, spec_requests};
use karpenter_model::quantity::Quantity;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    #[serde(default)]
    pods: Vec<Pod>,
    daemon_set: Option<DaemonSet>,
    requests: BTreeMap<String, Quantity>,
    limits: BTreeMap<String, Quantity>,
    requests_for_spec: Option<BTreeMap<String, Quantity>>,
}

#[test]
fn requests_equal_recordings() {
    let recorded: Recorded =
        serde_json::from_str(include_str!("../data/pod_requests.json")).expect("data file");
    assert_eq!(recorded.cases.len(), 37);
    let (mut spec_cases, mut daemonset_cases) = (0, 0);
    for case in recorded.cases {
        let mut pods = case.pods;
        if let Some(daemonset) = &case.daemon_set {
            daemonset_cases += 1;
            pods.push(daemonset_pod(daemonset));
        }
        assert_eq!(requests_for_pods(&pods), Ok(case.requests), "requests of {}", case.name);
        assert_eq!(limits_for_pods(&pods), Ok(case.limits), "limits of {}", case.name);
        if let Some(expected) = case.requests_for_spec {
            spec_cases += 1;
            let spec = pods[0].spec.as_ref().expect("spec");
            assert_eq!(spec_requests(spec), Ok(expected), "spec requests of {}", case.name);
        }
    }
    assert_eq!((spec_cases, daemonset_cases), (33, 2));
}
