//! Tests with manifests from the documentation of the v1alpha5 API. Valid manifests are applied unchanged and must
//! launch nodes; invalid ones must be rejected with a reason.

use std::path::Path;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::world::World;

pub(super) fn read(path: &Path) -> Vec<Value> {
    // Placeholders are valid values, except for this one, which is replaced.
    let text = std::fs::read_to_string(path).expect("the manifest is there");
    let text = text.replace("<<Name of your Instance Profile>>", "nodes");
    let read = karpenter_api::manifest::read("manifest", &text);
    assert_eq!(read.errors, []);
    read.documents.into_iter().map(|document| document.value).collect()
}

fn fixture(name: &str) -> Vec<Value> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../karpenter-legacy/tests/fixtures");
    read(&fixtures.join(name).join("input.yaml"))
}

/// A workload and the Provisioner whose nodes it must run on.
struct Workload {
    provisioner: &'static str,
    spec: Value,
    requests: Value,
    replicas: u32,
}

fn plain(provisioner: &'static str) -> Workload {
    Workload { provisioner, spec: json!({}), requests: json!({"cpu": "1"}), replicas: 1 }
}

fn tolerating(provisioner: &'static str, key: &str) -> Workload {
    let spec = json!({"tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]});
    Workload { spec, ..plain(provisioner) }
}

impl Workload {
    fn manifest(&self, name: &str) -> Value {
        let mut spec = self.spec.clone();
        let of_devices =
            self.requests.as_object().into_iter().flatten().filter(|(name, _)| name.contains('/'));
        let limits: Value = of_devices
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        spec["containers"] = json!([{"name": "c", "image": "pause", "resources": {"requests": self.requests, "limits": limits}}]);
        spec["terminationGracePeriodSeconds"] = json!(0);
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "replicas": self.replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
    }
}

/// Applies all manifests, runs the workloads and deletes them again.
async fn put_to_work(region: &str, manifests: &[Value], workloads: &[Workload]) {
    let world = World::start_in(region).await;
    for manifest in manifests {
        world.apply(manifest).await.unwrap_or_else(|error| panic!("{manifest}: {error}"));
    }
    world.sleep(10).await;
    for manifest in manifests.iter().filter(|manifest| manifest["kind"] == "Provisioner") {
        let name = manifest["metadata"]["name"].as_str().expect("a name");
        let (status, reason, message) = world.active(name).await;
        assert_eq!(status, "True", "{name}: {reason}: {message}");
    }
    let mut count = 0;
    for (index, workload) in workloads.iter().enumerate() {
        world.apply(&workload.manifest(&format!("w{index}"))).await.expect("a workload");
        count += workload.replicas as usize;
    }
    world.until_running(count).await;
    for (index, workload) in workloads.iter().enumerate() {
        let nodes = match workload.provisioner {
            "" => continue,
            provisioner => world.nodes_of(provisioner).await,
        };
        for pod in world.running().await.iter().filter(|pod| pod.labels()["app"] == format!("w{index}")) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            assert!(
                nodes.contains_key(&node),
                "{} runs on {node}, not of {}",
                pod.name_any(),
                workload.provisioner
            );
        }
    }
    for index in 0..workloads.len() {
        world.scale(&format!("w{index}"), 0).await;
    }
    let nodes = async || world.list::<k8s_openapi::api::core::v1::Node>().await.len();
    world.until("unneeded nodes are deleted", nodes, |count| *count == 0).await;
}

#[tokio::test(start_paused = true)]
async fn provisioner_with_ids_from_a_terraform_module() {
    let mut workload = tolerating("ops-provisioner", "role");
    workload.spec["nodeSelector"] = json!({"role": "ops"});
    put_to_work("ap-northeast-2", &fixture("inline-ids"), &[workload]).await;
}

#[tokio::test(start_paused = true)]
async fn provisioner_with_tags_and_the_sample_deployment_scaled_to_ten() {
    let workload = Workload { replicas: 10, ..plain("default") };
    put_to_work("us-east-1", &fixture("inline-tags"), &[workload]).await;
}

#[tokio::test(start_paused = true)]
async fn manifests_rendered_by_an_add_on() {
    put_to_work("us-east-1", &fixture("add-on-with-nulls"), &[tolerating("default", "workload")]).await;
}

#[tokio::test(start_paused = true)]
async fn four_provisioners_of_a_configuration_chart() {
    let mut gpu = tolerating("gpu-provisioner", "nvidia.com/gpu");
    gpu.requests["nvidia.com/gpu"] = json!("1");
    let mut inferentia = tolerating("inferentia-provisioner", "aws.amazon.com/neuron");
    inferentia.requests["aws.amazon.com/neuron"] = json!("1");
    let mut control_plane = tolerating("control-plane-provisioner", "class.truefoundry.io/control-plane");
    control_plane.spec["nodeSelector"] = json!({"class.truefoundry.io/component": "control-plane"});
    let workloads = [plain("default"), gpu, inferentia, control_plane];
    put_to_work("eu-west-1", &fixture("configuration-chart"), &workloads).await;
}

#[tokio::test(start_paused = true)]
async fn v1_pool_and_class_beside_v1alpha5_objects() {
    put_to_work("us-east-1", &fixture("current"), &[plain("")]).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_manifests_are_refused_with_a_helpful_message() {
    let world = World::start().await;
    // The chart's default is an empty list of zones.
    let mut manifests = fixture("configuration-chart");
    let gpu = manifests.iter_mut().find(|one| one["metadata"]["name"] == "gpu-provisioner").expect("there");
    for zones in [json!(null), json!([])] {
        gpu["spec"]["requirements"][1]["values"] = zones;
        let error = world.apply(gpu).await.expect_err("refused");
        assert!(
            error.contains("spec.requirements[1]") && error.contains("must have a value defined"),
            "{error}"
        );
    }
    // The Deployment mounts a volume that it does not declare.
    let mut deployment = plain("gpu").manifest("dep-test");
    deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "workdir", "mountPath": "/usr/share/nginx/html"}]);
    let error = world.apply(&deployment).await.expect_err("refused");
    assert!(error.contains("volumeMounts[0].name") && error.contains("workdir"), "{error}");
    // The Provisioner has both settings for empty nodes at once.
    let mut both = fixture("inline-tags").remove(0);
    both["spec"]["consolidation"] = json!({"enabled": true});
    let error = world.apply(&both).await.expect_err("refused");
    assert!(error.contains("ttlSecondsAfterEmpty") && error.contains("consolidation"), "{error}");
    // The template has no instance profile, and there is no default profile. The template is admitted, and its
    // condition reports the error.
    let unmanaged = json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "unmanaged"},
        "spec": {"provider": {"launchTemplate": "mine", "subnetSelector": {"a": "b"}}}});
    world.apply(&unmanaged).await.expect("admitted");
    world.sleep(10).await;
    let (status, reason, message) = world.active("unmanaged").await;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Unsupported"), "{message}");
    assert!(message.contains("launchTemplate") && message.contains("fix:"), "{message}");
}
