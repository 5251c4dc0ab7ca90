//! Tests of the v1alpha5 CRDs on an API server: documented manifests are accepted, and those that never worked are
//! rejected with a reason.

use std::path::Path;

use karpenter_api::crds;
use karpenter_apiserver::{ApiServer, Config};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::legacy::{documents, fixture, karpenter, text};

async fn server() -> Client {
    let client = Client::new(ApiServer::new(Config::default()), "default");
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for arguments in [&["crds"][..], &["crds", "--legacy"]] {
        let printed = karpenter(arguments, "");
        for definition in documents(text(&printed.stdout)) {
            let name = definition["metadata"]["name"].as_str().expect("a name").to_owned();
            api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&definition))
                .await
                .expect("defined");
        }
    }
    client
}

/// Creates an object as kubectl does, with strict fields.
async fn create(client: &Client, object: &Value) -> Result<DynamicObject, String> {
    let (version, kind) =
        (object["apiVersion"].as_str().expect("text"), object["kind"].as_str().expect("text"));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let is_namespaced = kind == "Deployment";
    let api: Api<DynamicObject> = match is_namespaced {
        true => Api::default_namespaced_with(client.clone(), &resource),
        false => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
    api.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())
}

fn manifest(file: &Path) -> Vec<Value> {
    documents(&std::fs::read_to_string(file).expect("the fixture is there"))
}

#[tokio::test]
async fn published_manifests_are_accepted() {
    let client = server().await;
    for case in ["inline-ids", "inline-tags", "configuration-chart"] {
        for object in manifest(&fixture(case).join("input.yaml")) {
            let mut object = object;
            // Two documents have a Provisioner "default".
            object["metadata"]["name"] =
                json!(format!("{case}-{}", object["metadata"]["name"].as_str().unwrap()));
            // The kinds are cluster-scoped: kubectl sends no namespace in the path, and the server removes the
            // namespace in the object.
            let created = create(&client, &object).await.unwrap_or_else(|error| panic!("{object}: {error}"));
            assert_eq!(created.metadata.namespace, None, "{case}");
            assert_eq!(created.data["spec"], object["spec"], "{case}: nothing is pruned");
        }
    }
    for object in manifest(&fixture("current").join("input.yaml")) {
        create(&client, &object).await.expect("v1 as printed");
    }
}

#[tokio::test]
async fn nulls_are_dropped() {
    let client = server().await;
    let object = &manifest(&fixture("add-on-with-nulls").join("input.yaml"))[0];
    assert!(object["spec"]["limits"].is_null());
    let created = create(&client, object).await.expect("accepted");
    assert_eq!(created.data["spec"].get("limits"), None);
    assert_eq!(created.data["spec"]["weight"], 20);
}

#[tokio::test]
async fn objects_that_never_worked_are_rejected_with_reason() {
    let client = server().await;
    let requirement =
        |requirement: Value| json!({"providerRef": {"name": "t"}, "requirements": [requirement]});
    for (spec, part) in [
        (json!({"providerRef": {"name": "t"}, "provider": {}}), "got both: spec.provider, spec.providerRef"),
        (json!({"weight": 1}), "got neither: spec.provider, spec.providerRef"),
        (
            json!({"providerRef": {"name": "t"}, "ttlSecondsAfterEmpty": 30, "consolidation": {"enabled": true}}),
            "got both: spec.ttlSecondsAfterEmpty",
        ),
        (json!({"providerRef": {"name": "t"}, "ttlSecondsAfterEmpty": -1}), "spec.ttlSecondsAfterEmpty"),
        (json!({"providerRef": {"name": "t"}, "ttlSecondsUntilExpired": -1}), "spec.ttlSecondsUntilExpired"),
        (json!({"providerRef": {"name": "t"}, "weight": 101}), "spec.weight"),
        (json!({"providerRef": {}}), "spec.providerRef.name"),
        (
            json!({"providerRef": {"name": "t"}, "labels": {"karpenter.sh/provisioner-name": "x"}}),
            "set by the controller",
        ),
        (
            json!({"providerRef": {"name": "t"}, "taints": [{"key": "a", "effect": "Sometimes"}]}),
            "spec.taints[0].effect",
        ),
        (
            json!({"providerRef": {"name": "t"}, "kubeletConfiguration": {"evictionSoft": {"memory.available": "5%"}}}),
            "must name the same signals",
        ),
        // The object is as a chart renders it with an empty list of zones.
        (
            requirement(json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": null})),
            "operator In must have a value defined",
        ),
        (
            requirement(json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": []})),
            "operator In must have a value defined",
        ),
        (requirement(json!({"key": "a", "operator": "Gt", "values": ["x"]})), "single positive integer"),
        (
            requirement(json!({"key": "a", "operator": "Around", "values": ["1"]})),
            "spec.requirements[0].operator",
        ),
        (
            requirement(json!({"key": "karpenter.sh/provisioner-name", "operator": "Exists"})),
            "cannot be required",
        ),
    ] {
        let object = json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "p"}, "spec": spec});
        let error = create(&client, &object).await.expect_err(part);
        assert!(error.contains(part), "{part:?} in {error}");
    }
    let selectors = json!({"subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}});
    for (more, part) in [
        (json!({"securityGroupSelector": null}), "securityGroupSelector is needed"),
        (json!({"subnetSelector": null}), "spec.subnetSelector"),
        (json!({"amiFamily": "Custom"}), "needs an amiSelector"),
        (json!({"amiFamily": "Debian"}), "spec.amiFamily"),
        (json!({"launchTemplate": "mine"}), "launchTemplate excludes"),
        (json!({"blockDeviceMappings": [{"deviceName": "a", "ebs": {}}]}), "snapshotID or volumeSize"),
        (json!({"metadataOptions": {"httpPutResponseHopLimit": 65}}), "httpPutResponseHopLimit"),
    ] {
        let mut spec = selectors.clone();
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let object = json!({"apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": "t"}, "spec": spec});
        let error = create(&client, &object).await.expect_err(part);
        assert!(error.contains(part), "{part:?} in {error}");
    }
}

#[test]
fn v1alpha5_crds_are_printed_only_on_request() {
    let names = |arguments: &[&str]| -> Vec<String> {
        let output = karpenter(arguments, "");
        let all = documents(text(&output.stdout));
        all.iter().map(|crd| crd["metadata"]["name"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(
        names(&["crds", "--legacy-api"]),
        ["provisioners.karpenter.sh", "awsnodetemplates.karpenter.k8s.aws"]
    );
    assert_eq!(names(&["crds", "--legacy-api", "Provisioner"]), ["provisioners.karpenter.sh"]);
    assert_eq!(names(&["crds"]).len(), crds::all().len());
    let hint = karpenter(&["crds", "Provisioner"], "");
    assert!(text(&hint.stderr).contains("--legacy-api"), "{}", text(&hint.stderr));
}
