//! Tests of the runtime of kube-rs on the embedded server with concurrent writers: reflectors converge to the stored
//! objects, finalizers run once and in order, events are counted, and exactly one of many candidates gets the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as StoredEvent;
use karpenter_apiserver::{ApiServer, Config};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::{WatchStreamExt, controller::Action, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

const WRITERS: usize = 8;
const ROUNDS: usize = 60;
const NAMES: usize = 12;

fn client(history_limit: usize) -> Client {
    Client::new(ApiServer::new(Config { history_limit, ..Config::default() }), "default")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"soak": "yes"}}, "data": {}}))
        .unwrap()
}

/// Creates, changes and deletes objects of its own, in turn.
async fn write(config_maps: Api<ConfigMap>, writer: usize) {
    for round in 0..ROUNDS {
        let name = format!("w{writer}-{}", round % NAMES);
        match config_maps.get_opt(&name).await.unwrap() {
            None => drop(config_maps.create(&PostParams::default(), &config_map(&name)).await.unwrap()),
            Some(_) if round % 5 == 4 => {
                drop(config_maps.delete(&name, &DeleteParams::default()).await.unwrap())
            }
            Some(_) => {
                let patch = Patch::Merge(json!({"data": {"round": round.to_string()}}));
                config_maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
        }
    }
}

fn versions<'a>(config_maps: impl Iterator<Item = &'a ConfigMap>) -> BTreeMap<String, Option<String>> {
    config_maps.map(|map| (map.name_any(), map.resource_version())).collect()
}

/// With a short history, watches expire and start again, but the result must be the same.
async fn reflectors_converge(history_limit: usize) {
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client(history_limit));
    let configs = [
        watcher::Config::default(),
        watcher::Config::default().page_size(5),
        watcher::Config::default().streaming_lists(),
        watcher::Config::default().labels("soak=yes"),
    ];
    let followers: Vec<_> = configs
        .into_iter()
        .map(|config| {
            let (reader, writer) = reflector::store();
            let events = watcher(config_maps.clone(), config).default_backoff();
            let mut stream = reflector(writer, events).boxed();
            tokio::spawn(async move {
                // The marker object is written last. It may be in a list or in a watch event.
                loop {
                    drop(stream.next().await.expect("a watcher never ends"));
                    if stream_has_marker(&reader) {
                        return versions(reader.state().iter().map(Arc::as_ref));
                    }
                }
            })
        })
        .collect();
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(config_maps.clone(), writer))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    config_maps.create(&PostParams::default(), &config_map("zz-marker")).await.unwrap();
    let stored = versions(config_maps.list(&ListParams::default()).await.unwrap().iter());
    assert!(stored.len() > WRITERS, "{stored:?}");
    for follower in followers {
        assert_eq!(follower.await.unwrap(), stored);
    }
}

fn stream_has_marker(reader: &reflector::Store<ConfigMap>) -> bool {
    reader.find(|map| map.name_any() == "zz-marker").is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reflectors_converge_with_eight_writers() {
    reflectors_converge(20_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reflectors_converge_with_short_history() {
    reflectors_converge(8).await;
}

#[tokio::test]
async fn finalizer_runs_apply_before_cleanup() {
    const FINALIZER: &str = "example.com/tidy";
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client(1_000));
    config_maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let seen: Arc<Mutex<Vec<&str>>> = Arc::default();
    let mut events = watcher(config_maps.clone(), watcher::Config::default()).touched_objects().boxed();
    loop {
        let map = Arc::new(events.try_next().await.unwrap().unwrap());
        let (seen_now, api) = (seen.clone(), config_maps.clone());
        let pass = finalizer(&config_maps, FINALIZER, map.clone(), |event| async move {
            match event {
                Finalizer::Apply(map) => {
                    seen_now.lock().unwrap().push("apply");
                    api.delete(&map.name_any(), &DeleteParams::default()).await?;
                }
                Finalizer::Cleanup(_) => seen_now.lock().unwrap().push("cleanup"),
            }
            Ok::<_, kube::Error>(Action::await_change())
        });
        // Reconciling an object that was deleted in the meantime fails, which is ignored.
        let _ = pass.await;
        if config_maps.get_opt("kept").await.unwrap().is_none() {
            break;
        }
    }
    let mut steps = seen.lock().unwrap().clone();
    steps.dedup();
    assert_eq!(steps, ["apply", "cleanup"]);
}

#[tokio::test]
async fn repeated_events_become_series() {
    let client = client(1_000);
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = config_maps.create(&PostParams::default(), &config_map("spoken-of")).await.unwrap();
    let recorder = Recorder::new(client.clone(), Reporter::from("soak"));
    let event = Event {
        type_: EventType::Normal,
        reason: "Tested".into(),
        note: Some("the same again".into()),
        action: "Tell".into(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder.publish(&event, &map.object_ref(&())).await.unwrap();
    }
    let events: Api<StoredEvent> = Api::default_namespaced(client);
    let recorded = events.list(&ListParams::default()).await.unwrap();
    let recorded: Vec<&StoredEvent> =
        recorded.iter().filter(|event| event.reason.as_deref() == Some("Tested")).collect();
    assert_eq!(recorded.len(), 1);
    assert_eq!(recorded[0].series.as_ref().map(|series| series.count), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_candidates_acquires_lease() {
    let client = client(1_000);
    let leases: Api<Lease> = Api::namespaced(client, "kube-system");
    let free: Lease = serde_json::from_value(json!({"metadata": {"name": "leader"}, "spec": {}})).unwrap();
    let free = leases.create(&PostParams::default(), &free).await.unwrap();
    let candidates: Vec<_> = (0..16)
        .map(|number| {
            let (leases, mut lease) = (leases.clone(), free.clone());
            tokio::spawn(async move {
                let name = format!("candidate-{number}");
                lease.spec.get_or_insert_default().holder_identity = Some(name.clone());
                leases.replace("leader", &PostParams::default(), &lease).await.ok().map(|_| name)
            })
        })
        .collect();
    let mut winners = BTreeSet::new();
    for candidate in candidates {
        winners.extend(candidate.await.unwrap());
    }
    let holder = leases.get("leader").await.unwrap().spec.unwrap().holder_identity.unwrap();
    assert_eq!(winners, BTreeSet::from([holder]));
}
