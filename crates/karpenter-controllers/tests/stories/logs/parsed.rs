//! Tests that a program can reconstruct the lifecycle of nodes from the log alone.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_controllers::logs::LogFormat;
use serde_json::{Value, json};

use super::kept::KeptLog;
use super::patterns::{Found, Patterns};
use crate::disruption::support::{anti_affinity, consolidate_soon};
use crate::disruption::world::World;
use crate::embedded::clock;

/// What a program that parses the log finds out about one node.
#[derive(Debug, Default)]
struct Record {
    /// The messages with their times, in the order of the log.
    times: Vec<(String, String)>,
    instances: BTreeSet<String>,
    nodes: BTreeSet<String>,
    types: BTreeSet<String>,
    allowed_types: String,
    reason: String,
}

/// The messages that the log contains about every node, in this order.
const WAY: [&str; 8] = [
    "created nodeclaim",
    "launched nodeclaim",
    "registered nodeclaim",
    "initialized nodeclaim",
    "disrupting node(s)",
    "annotated nodeclaim",
    "tainted node",
    "deleted nodeclaim",
];

fn records(lines: &[Found]) -> BTreeMap<String, Record> {
    let mut records: BTreeMap<String, Record> = BTreeMap::new();
    for line in lines {
        let Found { time, message, values, line } = line;
        let claims: Vec<String> = match message.as_str() {
            "disrupting node(s)" => {
                let nodes = line["disrupted-nodes"].as_array().expect("a list");
                assert_eq!(line["disrupted-node-count"], nodes.len(), "{line}");
                nodes
                    .iter()
                    .map(|node| node["NodeClaim"]["name"].as_str().expect("a name").to_owned())
                    .collect()
            }
            _ => values.get("claim").cloned().into_iter().collect(),
        };
        for claim in claims {
            let record = records.entry(claim).or_default();
            record.times.push((message.clone(), time.clone()));
            record.instances.extend(values.get("instance").cloned());
            if message != "disrupting node(s)" {
                record.nodes.extend(values.get("node").cloned());
                record.types.extend(values.get("type").cloned());
            }
            record.allowed_types.extend(values.get("types").map(String::as_str));
            record
                .reason
                .extend(values.get("command").and_then(|command| command.split_once('/')).map(|one| one.0));
        }
    }
    records
}

/// Values of resource lists are strings, as in Kubernetes.
fn is_resource_list(value: &Value) -> bool {
    value.as_object().is_some_and(|list| {
        !list.is_empty() && list.values().all(Value::is_string) && list.contains_key("cpu")
    })
}

#[tokio::test(start_paused = true)]
async fn lifecycle_of_every_node_can_be_parsed_from_the_log() {
    let clock = clock();
    let log = KeptLog::start(LogFormat::Json, move || clock.now());
    let world = World::start().await;
    world.pool(consolidate_soon(), json!({"spec": {"terminationGracePeriod": "30m"}})).await;
    world.deploy("web", 3, 900, anti_affinity()).await;
    world.deploy("huge", 1, 1_000_000, json!({})).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    world.scale("web", 0).await;
    world.until_settled(0).await;
    world.stop().await;

    let (patterns, text) = (Patterns::of_upstream(), log.text());
    let found: Vec<Found> = text.lines().filter_map(|line| patterns.find(line)).collect();
    for message in patterns.messages() {
        assert!(found.iter().any(|line| line.message == message), "{message:?} is missing in\n{text}");
    }
    for line in &found {
        let Found { message, line, .. } = line;
        let list = match message.as_str() {
            "created nodeclaim" => "requests",
            "launched nodeclaim" | "initialized nodeclaim" => "allocatable",
            _ => continue,
        };
        assert!(is_resource_list(&line[list]), "{line}");
    }
    let of_pod = found.iter().find(|line| line.message == "could not schedule pod").expect("a line");
    assert_eq!(of_pod.line["Pod"]["namespace"], "default");
    assert!(of_pod.line["Pod"]["name"].as_str().is_some_and(|name| name.starts_with("huge-")));

    let records = records(&found);
    assert_eq!(records.len(), 3, "{records:#?}");
    for (claim, record) in &records {
        let way: Vec<&str> = record.times.iter().map(|(message, _)| message.as_str()).collect();
        let way: Vec<&str> = way.into_iter().filter(|message| *message != "deleted node").collect();
        assert_eq!(way, WAY, "{claim}");
        let times: Vec<&String> = record.times.iter().map(|(_, time)| time).collect();
        assert!(times.is_sorted() && times.first() < times.last(), "{claim}: {times:?}");
        assert_eq!((record.instances.len(), record.nodes.len(), record.types.len()), (1, 1, 1), "{record:?}");
        let chosen = record.types.first().expect("a type");
        assert!(record.allowed_types.contains(chosen.as_str()), "{record:?}");
        assert_eq!(record.reason, "Empty", "{record:?}");
    }
}
