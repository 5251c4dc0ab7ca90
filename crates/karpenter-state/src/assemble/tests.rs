use std::sync::Arc;

use karpenter_catalog::aws::AwsNodeClass;
use karpenter_model::problem::PodNames;

use super::{CatalogChoice, assemble};
use crate::convert::pool::PoolLeftOut;
use crate::notes::Note;
use crate::testing::{POOL, objects, pod_yaml, problem};

const RICH_POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: rich}
spec:
  weight: 7
  limits: {cpu: 1500m, memory: 1Ki, nodes: 3}
  template:
    metadata: {labels: {team: a, beta.kubernetes.io/os: linux}}
    spec:
      taints: [{key: t, value: v, effect: NoSchedule}]
      startupTaints: [{key: s, effect: NoExecute}]
      requirements:
      - {key: beta.kubernetes.io/arch, operator: In, values: [arm64, amd64], minValues: 2}
      - {key: team, operator: Exists}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
";

#[test]
fn a_pool_is_converted_field_by_field() {
    let node = "---\n{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {karpenter.sh/nodepool: rich}}, status: {capacity: {cpu: 2, memory: 3}}}\n";
    let (problem, notes) = problem(&format!("{RICH_POOL}{node}"));
    let pool = &problem.pools[0];
    assert_eq!((&*pool.name, pool.weight, pool.catalog), ("rich", 7, 0));
    assert_eq!(pool.requirements.to_string(), "kubernetes.io/arch In [amd64 arm64] minValues 2, team Exists");
    let labels: Vec<_> = pool.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        labels,
        [
            "karpenter.k8s.aws/ec2nodeclass=default",
            "karpenter.sh/nodepool=rich",
            "kubernetes.io/os=linux",
            "team=a"
        ]
    );
    assert_eq!(pool.taints[0].to_string(), "t=v:NoSchedule");
    assert_eq!(pool.startup_taints[0].to_string(), "s:NoExecute");
    assert_eq!(
        (pool.limits.get("cpu"), pool.limits.get("memory"), pool.limits.get("nodes")),
        (1500, 1024, 3)
    );
    assert_eq!((pool.usage.get("cpu"), pool.usage.get("memory"), pool.usage.get("nodes")), (2000, 3, 1));
    assert_eq!(notes, []);
}

#[test]
fn pools_that_cannot_launch_are_left_out_with_a_note() {
    for (text, why) in [
        (POOL.replace("spec:\n  template", "spec:\n  replicas: 3\n  template"), PoolLeftOut::Static),
        (
            POOL.replace("name: general", "name: general, deletionTimestamp: 2026-01-01T00:00:00Z"),
            PoolLeftOut::Deleting,
        ),
        (
            format!(
                "{POOL}status: {{conditions: [{{type: Ready, status: 'False', reason: R, message: m, lastTransitionTime: 2026-01-01T00:00:00Z}}]}}\n"
            ),
            PoolLeftOut::NotReady,
        ),
    ] {
        let (problem, notes) = problem(&text);
        assert_eq!(problem.pools.len(), 0, "{text}");
        assert_eq!(notes, [Note::PoolLeftOut { pool: "general".to_owned(), why }]);
    }
    assert_eq!(problem(&pod_yaml("p", "")).1, [Note::NoNodePools]);
}

#[test]
fn catalogs_follow_the_choice_and_are_shared() {
    let class = "---\n{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {amiSelectorTerms: [{alias: bottlerocket@latest}], role: r, subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}], kubelet: {maxPods: 42, kubeReserved: {cpu: 500m}, evictionHard: {memory.available: 5%}}}}\n";
    let text = format!("{RICH_POOL}{class}---{}---{POOL}", RICH_POOL.replace("name: rich", "name: second"));
    let objects = objects(&text);
    let aws = CatalogChoice::ByNodeClass(Box::<AwsNodeClass>::default());
    let (problem, notes) = assemble(&objects, &aws);
    assert_eq!(notes, []);
    assert_eq!(problem.catalogs.len(), 2);
    let catalog_of: Vec<_> = problem.pools.iter().map(|pool| (&*pool.name, pool.catalog)).collect();
    assert_eq!(catalog_of, [("rich", 0), ("second", 0), ("general", 1)]);
    let m5 = problem.catalogs[0].iter().find(|one| &*one.name == "m5.large").unwrap();
    assert_eq!(m5.capacity.get("pods"), 42);
    assert_eq!(m5.overhead.get("cpu"), 500);
    for key in [
        "topology.kubernetes.io/zone",
        "karpenter.k8s.aws/instance-family",
        "karpenter.kwok.sh/instance-family",
    ] {
        assert!(problem.well_known.contains(key), "{key}");
    }

    let given = Arc::new(karpenter_catalog::kwok::generic()[..2].to_vec());
    let (problem, _) = assemble(&objects, &CatalogChoice::InstanceTypes(given));
    assert_eq!((problem.catalogs.len(), problem.catalogs[0].len()), (1, 2));
    assert!(!problem.well_known.contains("karpenter.k8s.aws/instance-family"));
}

#[test]
fn missing_node_class_uses_defaults_and_adds_a_note() {
    let (problem, notes) = assemble(&objects(RICH_POOL), &CatalogChoice::Aws(Box::<AwsNodeClass>::default()));
    let kind = "EC2NodeClass".to_owned();
    assert_eq!(notes, [Note::NodeClassMissing { pool: "rich".to_owned(), kind, name: "default".to_owned() }]);
    assert!(problem.catalogs[0].len() > 100);
}

#[test]
fn existing_nodes_get_the_price_of_their_offering() {
    let types = karpenter_catalog::kwok::generic();
    let offering = &types[0].offerings[0];
    let node = format!(
        "---\n{{apiVersion: v1, kind: Node, metadata: {{name: n1, labels: {{karpenter.sh/nodepool: general, node.kubernetes.io/instance-type: {}, topology.kubernetes.io/zone: {}, karpenter.sh/capacity-type: {}}}}}}}\n",
        types[0].name,
        offering.zone().unwrap(),
        offering.capacity_type().unwrap()
    );
    let (problem, _) = problem(&format!("{POOL}{node}"));
    assert_eq!(problem.nodes[0].price_per_hour, Some(offering.price_per_hour));
}

#[test]
fn node_price_has_the_volumes_of_the_node_class() {
    let class = "---\n{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {amiSelectorTerms: [{alias: al2023@latest}], role: r, associatePublicIPAddress: true, subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}], blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 100Gi, volumeType: gp3, iops: 4000, throughput: 225}}]}}\n";
    let overlay = "---\n{apiVersion: karpenter.sh/v1alpha1, kind: NodeOverlay, metadata: {name: half}, spec: {priceAdjustment: -50%, requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]}}\n";
    let node = "---\n{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {karpenter.sh/nodepool: rich, node.kubernetes.io/instance-type: m5.large, topology.kubernetes.io/zone: us-east-1a, karpenter.sh/capacity-type: on-demand}}}\n";
    let attached = (8.0 + 5.0 + 4.0) / 730.0 + 0.005;
    let aws = CatalogChoice::Aws(Box::<AwsNodeClass>::default());
    for (more, expected) in [
        // If the node class does not exist, the price is that of the instance alone.
        (String::new(), 0.096),
        (class.to_owned(), 0.096 + attached),
        (format!("{class}{overlay}"), 0.048 + attached),
    ] {
        let (problem, _) = assemble(&objects(&format!("{RICH_POOL}{more}{node}")), &aws);
        let price = problem.nodes[0].price_per_hour.expect("a known type");
        assert!((price - expected).abs() < 1e-9, "{price}, expected {expected}: {more}");
    }
}

#[test]
fn pods_are_pending_bound_or_left_out() {
    let owned = |kind: &str, version: &str| {
        format!(
            "labels: {{app: web}}, ownerReferences: [{{apiVersion: {version}, kind: {kind}, name: o, uid: u}}]"
        )
    };
    let with_status = |name: &str, status: &str| format!("{}status: {{{status}}}\n", pod_yaml(name, ""));
    let pods = [
        pod_yaml("new", ""),
        with_status("pending", "phase: Pending"),
        with_status("done", "phase: Succeeded"),
        with_status("running-nowhere", "phase: Running"),
        with_status("nominated", "phase: Pending, nominatedNodeName: n1"),
        pod_yaml("gated", "schedulingGates: [{name: g}]"),
        pod_yaml("daemon", "").replace("labels: {app: web}", &owned("DaemonSet", "apps/v1")),
        pod_yaml("mirror", "").replace("labels: {app: web}", &owned("Node", "v1")),
        pod_yaml("leaving", "").replace("labels: {app: web}", "deletionTimestamp: 2026-01-01T00:00:00Z"),
        pod_yaml("elsewhere", "nodeName: unknown"),
        pod_yaml("bound", "nodeName: n1"),
        format!("{}status: {{phase: Failed}}\n", pod_yaml("bound-done", "nodeName: n1")),
    ];
    let text: String = pods.iter().map(|pod| format!("---\n{pod}")).collect();
    let node = "---\n{apiVersion: v1, kind: Node, metadata: {name: n1}}\n";
    let (problem, notes) = problem(&format!("{POOL}{text}{node}"));
    assert_eq!(problem.pods.len(), 1);
    assert_eq!(problem.pods[0].names, PodNames::Listed(vec!["new".into(), "pending".into()]));
    assert_eq!(problem.nodes[0].pods.len(), 1);
    // The bound pod equals the pending pods, so all share one spec.
    assert!(Arc::ptr_eq(&problem.nodes[0].pods[0].spec, &problem.pods[0].spec));
    assert_eq!(
        notes,
        [
            Note::GatedPods { count: 1 },
            Note::NominatedPods { count: 1 },
            Note::PodsOnUnknownNodes { count: 1 }
        ]
    );
}

#[test]
fn pods_of_a_group_are_listed_oldest_first() {
    let at = |name: &str, year: u32| {
        pod_yaml(name, "").replace("labels:", &format!("creationTimestamp: {year}-01-01T00:00:00Z, labels:"))
    };
    let text = format!("{POOL}---\n{}---\n{}---\n{}", at("young", 2026), at("old", 2020), at("b-old", 2020));
    let (problem, _) = problem(&text);
    assert_eq!(problem.pods[0].names, PodNames::Listed(vec!["b-old".into(), "old".into(), "young".into()]));
    assert_eq!(problem.pods[0].created_at_secs, 1_577_836_800);
}
