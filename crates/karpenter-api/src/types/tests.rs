use k8s_openapi::Resource;
use serde_json::{Value, json};

use super::*;

/// Deserializes an object and serializes it again; the JSON must not change.
fn round_trip<K>(object: Value) -> K
where
    K: Resource + serde::Serialize + serde::de::DeserializeOwned,
{
    let typed: K =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object:#}"));
    assert_eq!(serde_json::to_value(&typed).expect("serialises"), object);
    assert_eq!(object["apiVersion"], K::API_VERSION);
    assert_eq!(object["kind"], K::KIND);
    typed
}

#[test]
fn node_pool_survives_a_round_trip() {
    let pool: NodePool = round_trip(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "generation": 3},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "infra"}, "annotations": {}},
                "spec": {
                    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "startupTaints": [],
                    "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"], "minValues": 1}],
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "terminationGracePeriod": "1h0m0s", "expireAfter": "720h",
                }
            },
            "disruption": {
                "consolidateAfter": "Never", "consolidationPolicy": "Balanced",
                "budgets": [{"nodes": "10%", "reasons": ["Drifted", "SomethingNewer"], "schedule": "@daily", "duration": "8h0m0s"}],
            },
            "limits": {"cpu": "100", "memory": "1Ti", "nodes": "10"}, "weight": 10, "replicas": 0,
        },
        "status": {
            "resources": {"cpu": "2"}, "nodes": 1, "nodeClassObservedGeneration": 2,
            "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3,
                "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "Ready", "message": ""}],
        }
    }));
    let budget = &pool.spec.disruption.and_then(|disruption| disruption.budgets).expect("budgets")[0];
    let reasons = [DisruptionReason::Drifted, DisruptionReason::Other("SomethingNewer".to_owned())];
    assert_eq!(budget.reasons.as_deref(), Some(&reasons[..]));
}

#[test]
fn node_claim_survives_a_round_trip() {
    round_trip::<NodeClaim>(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "default-abc12"},
        "spec": {
            "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]}],
            "resources": {"requests": {"cpu": "1500m", "pods": "3"}},
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "expireAfter": "Never",
        },
        "status": {
            "nodeName": "ip-10-0-0-1", "providerID": "aws:///us-west-2a/i-1", "imageID": "ami-1",
            "capacity": {"cpu": "2"}, "allocatable": {"cpu": "1930m"}, "lastPodEventTime": "2026-01-02T03:04:05Z",
        }
    }));
}

#[test]
fn node_overlay_kwok_node_class_and_capacity_buffer_survive_a_round_trip() {
    round_trip::<NodeOverlay>(json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "cheaper"},
        "spec": {"requirements": [{"key": "a", "operator": "Exists"}], "priceAdjustment": "-10%",
            "capacity": {"smarter-devices/fuse": "1"}, "weight": 5},
    }));
    round_trip::<KWOKNodeClass>(json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": "10s"},
    }));
    round_trip::<CapacityBuffer>(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "web"},
        "spec": {"provisioningStrategy": "buffer.x-k8s.io/active-capacity",
            "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "percentage": 20, "limits": {"cpu": "8"}},
        "status": {"podTemplateRef": {"name": "spare"}, "replicas": 2, "podTemplateGeneration": 1},
    }));
}

#[test]
fn ec2_node_class_survives_a_round_trip() {
    round_trip::<EC2NodeClass>(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "c"}}, {"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"name": "nodes"}],
            "capacityReservationSelectorTerms": [{"ownerID": "111122223333", "instanceMatchCriteria": "open"}],
            "placementGroupSelector": {"name": "pg"}, "associatePublicIPAddress": false, "ipPrefixCount": 2,
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "amiFamily": "AL2023", "userData": "x", "role": "r",
            "tags": {}, "kubelet": {"maxPods": 58, "somethingElse": {"b": [1]}},
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": true, "ebs": {
                "deleteOnTermination": true, "encrypted": false, "iops": 3000, "kmsKeyID": "k", "snapshotID": "snap-1",
                "throughput": 125, "volumeInitializationRate": 100, "volumeSize": "100Gi", "volumeType": "gp3"}}],
            "instanceStorePolicy": "RAID0",
            "networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}],
            "detailedMonitoring": true,
            "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1,
                "httpTokens": "required"},
            "connectionTracking": {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 60, "udpTimeout": 30},
            "context": "c", "cpuOptions": {"nestedVirtualization": "enabled"},
        },
        "status": {
            "subnets": [{"id": "subnet-1", "zone": "us-west-2a", "zoneID": "usw2-az1"}],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "capacityReservations": [{"availabilityZone": "us-west-2a", "id": "cr-1", "instanceMatchCriteria": "open",
                "instanceType": "m5.large", "ownerID": "111122223333", "reservationType": "default", "interruptible": false,
                "state": "active"}],
            "amis": [{"id": "ami-1", "name": "n", "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}],
            "instanceProfile": "p",
        }
    }));
}

#[test]
fn unknown_fields_nulls_and_absent_fields_are_tolerated() {
    let pool: NodePool = serde_json::from_value(json!({
        "kind": "NodePool", "surprise": 1,
        "spec": {"template": {"spec": {"requirements": null, "nodeClassRef": {"name": "x", "also": []}, "taints": null}},
            "limits": {"cpu": 10, "memory": null}},
    }))
    .expect("lenient");
    assert_eq!(pool.api_version, "karpenter.sh/v1");
    assert_eq!(pool.spec.template.spec.taints, None);
    let limits = pool.spec.limits.expect("limits");
    assert_eq!((limits["cpu"].to_string(), limits["memory"].to_string()), ("10".to_owned(), "0".to_owned()));
    assert_eq!(serde_json::from_value::<NodePool>(json!({})).expect("empty"), NodePool::default());
}

#[test]
fn ami_family_comes_from_the_field_or_the_alias() {
    for (spec, family) in [
        (json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}), "AL2023"),
        (json!({"amiSelectorTerms": [{"alias": "bottlerocket@v1.2.3"}]}), "Bottlerocket"),
        (json!({"amiSelectorTerms": [{"alias": "windows2022@latest"}]}), "Windows2022"),
        (json!({"amiSelectorTerms": [{"alias": "al2@latest"}], "amiFamily": "Custom"}), "Custom"),
        (json!({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2"}), "AL2"),
        (json!({"amiSelectorTerms": [{"id": "ami-1"}]}), "Custom"),
    ] {
        let typed: EC2NodeClassSpec = serde_json::from_value(spec.clone()).expect("spec");
        assert_eq!(typed.resolved_ami_family(), family, "{spec}");
    }
}
