//! Tests of kube-rs clients, watchers and reflectors on the embedded server, without a socket.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use karpenter_apiserver::{ApiServer, Config};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

fn client() -> Client {
    Client::new(ApiServer::new(Config::default()), "default")
}

fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data: BTreeMap<&str, &str> = data.iter().copied().collect();
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

#[tokio::test]
async fn object_lifecycle_from_create_to_delete() {
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client());
    let created = config_maps.create(&PostParams::default(), &config_map("a", &[("x", "1")])).await.unwrap();
    assert!(created.uid().is_some());
    assert!(created.creation_timestamp().is_some());

    let again = config_maps.create(&PostParams::default(), &config_map("a", &[])).await.unwrap_err();
    let kube::Error::Api(status) = again else { panic!("{again}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(status.message, "configmaps \"a\" already exists");

    let mut changed = created.clone();
    changed.data.as_mut().unwrap().insert("y".into(), "2".into());
    let replaced = config_maps.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(replaced.resource_version(), created.resource_version());
    let stale = config_maps.replace("a", &PostParams::default(), &changed).await.unwrap_err();
    let kube::Error::Api(status) = stale else { panic!("{stale}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));

    let patch = Patch::Merge(json!({"data": {"x": null, "z": "3"}}));
    let patched = config_maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let keys: Vec<&String> = patched.data.as_ref().unwrap().keys().collect();
    assert_eq!(keys, ["y", "z"]);
    let unchanged = config_maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(unchanged.resource_version(), patched.resource_version());

    config_maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(config_maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn default_namespaces_exist() {
    let namespaces: Api<Namespace> = Api::all(client());
    let names: Vec<String> =
        namespaces.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[tokio::test]
async fn watch_reports_objects_entering_and_leaving_selector() {
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client());
    let start = config_maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    config_maps.create(&PostParams::default(), &config_map("a", &[])).await.unwrap();
    for color in ["red", "red2", "blue", "red"] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"color": color}}}));
        config_maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    config_maps.delete("a", &DeleteParams::default()).await.unwrap();
    let params = WatchParams::default().labels("color in (red,red2)");
    let events: Vec<String> = config_maps
        .watch(&params, &start)
        .await
        .unwrap()
        .take(5)
        .map_ok(|event| match event {
            WatchEvent::Added(map) => format!("+{}", map.labels()["color"]),
            WatchEvent::Modified(map) => format!("~{}", map.labels()["color"]),
            WatchEvent::Deleted(map) => format!("-{}", map.labels()["color"]),
            other => format!("{other:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(events, ["+red", "~red2", "-red2", "+red", "-red"]);
}

async fn reflect(config: watcher::Config) {
    let client = client();
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for index in 0..20 {
        config_maps.create(&PostParams::default(), &config_map(&format!("m{index}"), &[])).await.unwrap();
    }
    let (reader, writer) = reflector::store();
    let mut stream = reflector(writer, watcher(config_maps.clone(), config)).applied_objects().boxed();
    for _ in 0..20 {
        stream.try_next().await.unwrap().unwrap();
    }
    config_maps.create(&PostParams::default(), &config_map("late", &[])).await.unwrap();
    assert_eq!(stream.try_next().await.unwrap().unwrap().name_any(), "late");
    let names: BTreeSet<String> = reader.state().iter().map(|map| map.name_any()).collect();
    assert_eq!(names.len(), 21);
}

#[tokio::test]
async fn reflector_works_with_list_and_watch() {
    reflect(watcher::Config::default()).await;
}

#[tokio::test]
async fn reflector_works_with_paged_list() {
    reflect(watcher::Config::default().page_size(7)).await;
}

#[tokio::test]
async fn reflector_works_with_watch_list() {
    reflect(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn controller_reconciles_every_object() {
    use std::sync::Arc;

    use kube::runtime::Controller;
    use kube::runtime::controller::Action;

    let config_maps: Api<ConfigMap> = Api::default_namespaced(client());
    for index in 0..10 {
        config_maps.create(&PostParams::default(), &config_map(&format!("m{index}"), &[])).await.unwrap();
    }
    let controller = Controller::new(config_maps.clone(), watcher::Config::default())
        .run(
            |map: Arc<ConfigMap>, config_maps: Arc<Api<ConfigMap>>| async move {
                // The write causes one more event and one more reconciliation, which changes nothing.
                let patch = Patch::Merge(json!({"data": {"done": "yes"}}));
                config_maps.patch(&map.name_any(), &PatchParams::default(), &patch).await?;
                Ok::<_, kube::Error>(Action::await_change())
            },
            |_, _, _| Action::await_change(),
            Arc::new(config_maps.clone()),
        )
        .boxed();
    let watching = watcher(config_maps.clone(), watcher::Config::default()).applied_objects().boxed();
    let mut done = BTreeSet::new();
    let mut both = futures::stream::select(
        controller.map(|_| None),
        watching.map(|map| map.ok().filter(|map| map.data.is_some()).map(|map| map.name_any())),
    );
    while done.len() < 10 {
        done.extend(both.next().await.unwrap());
    }
}
