//! Tests of StatefulSets and their volumes.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn volumes_of_stateful_set_are_provisioned_in_the_zone_of_the_pod() {
    let world = World::start().await;
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        world.node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})).await;
    }
    let class: StorageClass = serde_json::from_value(json!({"metadata": {"name": "disk"},
        "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete"}))
    .expect("a class");
    world.all::<StorageClass>().create(&PostParams::default(), &class).await.expect("created");
    world
        .create::<StatefulSet>(json!({"metadata": {"name": "db"}, "spec": {"replicas": 2, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "db"}}}],
                "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": "disk", "resources": {"requests": {"storage": "10Gi"}}}}]}}))
        .await;
    let look =
        async || world.api::<StatefulSet>().get("db").await.expect("the set").status.unwrap_or_default();
    world.until("both pods run", look, |status| status.ready_replicas == Some(2)).await;
    let status = look().await;
    assert_eq!(status.current_revision, status.update_revision);
    let volumes = world.all::<PersistentVolume>().list(&ListParams::default()).await.expect("volumes").items;
    let mut zones: Vec<String> = volumes
        .iter()
        .filter_map(|volume| {
            let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
            affinity.node_selector_terms.first()?.match_expressions.as_ref()?.first()?.values.clone()?.pop()
        })
        .collect();
    zones.sort();
    assert_eq!(zones, ["a", "b"]);
    let attachments = async || {
        let all =
            world.all::<VolumeAttachment>().list(&ListParams::default()).await.expect("attachments").items;
        let attached = all.iter().filter(|one| one.status.as_ref().is_some_and(|status| status.attached));
        let mut nodes: Vec<String> = attached.map(|one| one.spec.node_name.clone()).collect();
        nodes.sort();
        nodes
    };
    world.until("both volumes are attached", attachments, |nodes| *nodes == ["n1", "n2"]).await;

    // A recreated pod is scheduled to the node of its volume.
    let last = async || world.api::<Pod>().get_opt("db-1").await.expect("an answer");
    let before = last().await.expect("the pod");
    world.api::<Pod>().delete("db-1", &DeleteParams::default()).await.expect("deleted");
    let again = |pod: &Option<Pod>| {
        pod.as_ref().is_some_and(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            pod.metadata.uid != before.metadata.uid && phase == Some("Running")
        })
    };
    let after = world.until("the recreated pod runs", last, again).await;
    let node = |pod: Option<Pod>| pod.and_then(|pod| pod.spec?.node_name);
    assert_eq!(node(after), node(Some(before.clone())));

    world.merge::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    world.until("one volume is detached", attachments, |nodes| nodes.len() == 1).await;
    let claims = async || {
        let claims =
            world.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.expect("claims").items;
        claims.iter().filter_map(|claim| claim.metadata.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(claims().await, ["data-db-0", "data-db-1"]);
    world
        .api::<PersistentVolumeClaim>()
        .delete("data-db-1", &DeleteParams::default())
        .await
        .expect("deleted");
    let left = async || {
        let volumes =
            world.all::<PersistentVolume>().list(&ListParams::default()).await.expect("volumes").items;
        (claims().await.len(), volumes.len())
    };
    world.until("the volume is deleted with its claim", left, |left| *left == (1, 1)).await;
    world.stop().await;
}
