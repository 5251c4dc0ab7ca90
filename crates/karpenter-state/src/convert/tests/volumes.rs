use crate::testing::{POOL, pod, pod_yaml, problem};

const CLASS: &str = "---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: kubernetes.io/aws-ebs
volumeBindingMode: WaitForFirstConsumer
allowedTopologies:
- matchLabelExpressions: [{key: topology.ebs.csi.aws.com/zone, values: [b, a]}]
- matchLabelExpressions: [{key: rack, values: [r1]}]
";
const LIMITED_NODE: &str = "---
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {node.kubernetes.io/instance-type: t}}, spec: {}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n1}, spec: {drivers: [{name: ebs.csi.aws.com, nodeID: n1, allocatable: {count: 3}}, {name: other, nodeID: n1}]}}
";

fn claim(name: &str, spec: &str, extra: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}{extra}}}, spec: {{{spec}}}}}\n"
    )
}

fn volume(name: &str, spec: &str) -> String {
    format!("---\n{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n")
}

const BOUND: &str = ", annotations: {pv.kubernetes.io/bind-completed: 'yes'}";
const USES_DATA: &str = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]";

fn alternatives(text: &str) -> Vec<String> {
    let spec = pod(&format!("{}{text}", pod_yaml("p", USES_DATA)));
    assert_eq!(spec.refusal, None, "{text}");
    spec.volumes.alternatives.iter().map(ToString::to_string).collect()
}

fn refusal(text: &str) -> String {
    pod(&format!("{}{text}", pod_yaml("p", USES_DATA)))
        .refusal
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[test]
fn unusable_claims_refuse_the_pod() {
    let immediate = CLASS.replace("volumeBindingMode: WaitForFirstConsumer\n", "");
    let bound = claim("data", "volumeName: pv", BOUND);
    let cases = [
        (String::new(), "persistentvolumeclaim data not found"),
        (
            claim("data", "storageClassName: fast", ", deletionTimestamp: 2026-01-01T00:00:00Z") + CLASS,
            "is being deleted",
        ),
        (
            claim("data", "storageClassName: fast", "").replace("}}\n", "}, status: {phase: Lost}}\n")
                + CLASS,
            "lost its volume",
        ),
        (
            claim("data", "storageClassName: fast", ""),
            "storageclass fast of persistentvolumeclaim data not found",
        ),
        (claim("data", "storageClassName: ''", "") + CLASS, "has no storage class"),
        (claim("data", "accessModes: []", "") + CLASS, "has no storage class"),
        (claim("data", "storageClassName: fast", "") + &immediate, "volumeBindingMode Immediate"),
        (bound.clone(), "persistentvolume pv of persistentvolumeclaim data not found"),
        (claim("data", "volumeName: pv", "") + &volume("pv", ""), "still being bound"),
        (
            bound
                + &volume("pv", "").replace("name: pv", "name: pv, deletionTimestamp: 2026-01-01T00:00:00Z"),
            "persistentvolume pv is being deleted",
        ),
    ];
    for (text, expected) in cases {
        let found = refusal(&text);
        assert!(found.contains(expected), "{text}: {found:?}");
    }
}

#[test]
fn unbound_claims_follow_their_storage_class() {
    let places = ["topology.kubernetes.io/zone In [a b]", "rack In [r1]"];
    assert_eq!(alternatives(&(claim("data", "storageClassName: fast", "") + CLASS)), places);
    let default = CLASS.replace(
        "name: fast",
        "name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}",
    );
    assert_eq!(alternatives(&(claim("data", "accessModes: []", "") + &default)), places);
}

#[test]
fn bound_claims_follow_their_volume() {
    let affinity = |terms: &str, kind: &str| {
        let affinity = format!("{kind}, nodeAffinity: {{required: {{nodeSelectorTerms: [{terms}]}}}}");
        claim("data", "volumeName: pv, storageClassName: gone", BOUND) + &volume("pv", &affinity)
    };
    let zone = "{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}";
    let host = "{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}";
    let csi = "csi: {driver: ebs.csi.aws.com, volumeHandle: v}";
    assert_eq!(alternatives(&affinity(zone, csi)), ["topology.kubernetes.io/zone In [a]"]);
    assert_eq!(alternatives(&affinity(host, csi)), ["kubernetes.io/hostname In [n1]"]);
    // A local volume is not moved with its pod to another node, so the hostname in its node affinity is ignored.
    assert_eq!(alternatives(&affinity(host, "local: {path: /x}")), [""]);
    assert_eq!(alternatives(&(claim("data", "volumeName: pv", BOUND) + &volume("pv", csi))), [""; 0]);
}

#[test]
fn topologies_of_several_volumes_are_combined() {
    let spec = |places: [&str; 2]| {
        let volumes = "volumes: [{name: v, persistentVolumeClaim: {claimName: c0}}, {name: w, persistentVolumeClaim: {claimName: c1}}]";
        let mut text = pod_yaml("p", volumes);
        for (index, zones) in places.iter().enumerate() {
            let terms: Vec<String> = zones
                .split(' ')
                .map(|zone| format!("{{matchExpressions: [{{key: zone, operator: In, values: [{zone}]}}]}}"))
                .collect();
            let affinity =
                format!("nodeAffinity: {{required: {{nodeSelectorTerms: [{}]}}}}", terms.join(", "));
            text += &claim(&format!("c{index}"), &format!("volumeName: pv{index}"), BOUND);
            text += &volume(&format!("pv{index}"), &affinity);
        }
        let found = pod(&text);
        found.volumes.alternatives.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(spec(["a b", "b c"]), ["zone In [b]"]);
    assert_eq!(spec(["a", "b"]), ["zone DoesNotExist"]);
}

#[test]
fn attachments_are_counted_for_drivers_that_have_a_limit() {
    let text = format!("{}{}{CLASS}", pod_yaml("p", USES_DATA), claim("data", "storageClassName: fast", ""));
    assert_eq!(pod(&text).volumes.attachments.len(), 0);
    let spec = pod(&format!("{text}{LIMITED_NODE}"));
    let found: Vec<_> =
        spec.volumes.attachments.iter().map(|(driver, claim)| (&**driver, &**claim)).collect();
    assert_eq!(found, [("ebs.csi.aws.com", "default/data")]);
}

#[test]
fn volumes_per_pod_follow_the_class_and_split_groups_only_if_limited() {
    let set = "---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  selector: {}
  serviceName: db
  template: {spec: {containers: [{name: c}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]
";
    let (plain, _) = problem(&format!("{POOL}{set}"));
    assert_eq!(plain.pods.len(), 1);
    assert_eq!((plain.pods[0].count(), &plain.pods[0].spec.refusal), (3, &None));
    let (with_class, _) = problem(&format!("{POOL}{set}{CLASS}"));
    assert_eq!(with_class.pods.len(), 1);
    assert_eq!(with_class.pods[0].spec.volumes.alternatives.len(), 2);
    let (limited, _) = problem(&format!("{POOL}{set}{CLASS}{LIMITED_NODE}"));
    let names: Vec<String> = limited.pods.iter().map(|group| group.names.name(0)).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    // One of the claims already exists and is bound to a volume in a zone.
    let made = claim("data-db-1", "volumeName: pv", BOUND)
        + &volume(
            "pv",
            "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}",
        );
    let (made, _) = problem(&format!("{POOL}{set}{CLASS}{made}"));
    let counts: Vec<u32> = made.pods.iter().map(|group| group.count()).collect();
    assert_eq!(counts, [2, 1]);
    assert_eq!(made.pods[1].names.name(0), "db-1");
}
