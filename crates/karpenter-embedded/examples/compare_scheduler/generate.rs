//! Generates random clusters and pods from a seed. Each cluster has few nodes, pods and labels, so that scheduling
//! rules often affect each other.

use serde_json::{Map, Value, json};

type Labels = fn() -> Value;

pub(crate) const NAMESPACES: [(&str, Labels); 2] =
    [("one", || json!({"team": "a"})), ("two", || json!({"team": "b", "shared": "yes"}))];

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const APPS: [&str; 3] = ["web", "db", "job"];

pub(crate) struct Generator {
    state: u64,
    nodes: u64,
    pods: u32,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        let mut generator = Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), nodes: 0, pods: 0 };
        generator.nodes = 2 + generator.below(9);
        generator.pods = 25 + generator.below(20) as u32;
        generator
    }

    pub(crate) fn pods(&self) -> u32 {
        self.pods
    }

    /// Splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    pub(crate) fn nodes(&mut self) -> Vec<Value> {
        (0..self.nodes).map(|index| self.node(index)).collect()
    }

    fn node(&mut self, index: u64) -> Value {
        let name = format!("node-{index}");
        let mut labels = Map::from_iter([(HOST.to_owned(), json!(name))]);
        if self.chance(90) {
            labels.insert(ZONE.to_owned(), json!(self.pick(&["a", "b", "c"])));
        }
        if self.chance(70) {
            labels.insert("disk".to_owned(), json!(self.pick(&["ssd", "hdd"])));
        }
        if self.chance(50) {
            labels.insert("size".to_owned(), json!(self.pick(&["1", "5", "9"])));
        }
        let mut taints = Vec::new();
        if self.chance(20) {
            let effect = self.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            taints.push(json!({"key": "dedicated", "value": self.pick(&["x", "y"]), "effect": effect}));
        }
        if self.chance(15) {
            taints.push(json!({"key": "flaky", "effect": "PreferNoSchedule"}));
        }
        let mut allocatable = Map::from_iter([
            ("cpu".to_owned(), json!(self.pick(&["1", "2", "3500m", "4", "8"]))),
            ("memory".to_owned(), json!(self.pick(&["2Gi", "4Gi", "7500Mi", "16Gi"]))),
            ("pods".to_owned(), json!(self.pick(&["3", "5", "8", "110"]))),
            ("ephemeral-storage".to_owned(), json!("10Gi")),
        ]);
        if self.chance(30) {
            allocatable.insert("example.com/gpu".to_owned(), json!(self.pick(&["1", "4"])));
        }
        json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"unschedulable": self.chance(10), "taints": taints},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        })
    }

    pub(crate) fn storage_classes(&mut self) -> Vec<Value> {
        let allowed = json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]);
        vec![
            json!({"metadata": {"name": "wait"}, "provisioner": "disk.example.com",
                "volumeBindingMode": "WaitForFirstConsumer"}),
            json!({"metadata": {"name": "wait-in-zones"}, "provisioner": "disk.example.com",
                "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": allowed}),
            json!({"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer"}),
            json!({"metadata": {"name": "now"}, "provisioner": "disk.example.com",
                "volumeBindingMode": "Immediate"}),
        ]
    }

    pub(crate) fn csi_nodes(&mut self) -> Vec<Value> {
        let nodes = (0..self.nodes).filter(|index| index % 2 == 0);
        nodes
            .map(|index| {
                json!({"metadata": {"name": format!("node-{index}")}, "spec": {"drivers": [
                    {"name": "disk.example.com", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 2}}]}})
            })
            .collect()
    }

    /// The PersistentVolumeClaims `c0` to `c5` of each namespace: bound claims with their volumes, and pending claims.
    pub(crate) fn storage(&mut self) -> Vec<(Value, Option<Value>)> {
        let mut storage = Vec::new();
        for (namespace, _) in NAMESPACES {
            for index in 0..6 {
                let name = format!("c{index}");
                let mode = if index == 0 { "ReadWriteOncePod" } else { "ReadWriteOnce" };
                let class = match index {
                    0..3 => "wait",
                    3 => "wait-in-zones",
                    4 => "static",
                    _ => "now",
                };
                let mut claim = json!({"metadata": {"name": name, "namespace": namespace},
                    "spec": {"storageClassName": class, "accessModes": [mode],
                        "resources": {"requests": {"storage": "1Gi"}}}});
                let volume = (index < 3 || (index == 4 && self.chance(70))).then(|| {
                    let zone = self.pick(&["a", "b", "c"]);
                    let volume = format!("v-{namespace}-{name}");
                    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": [mode],
                        "storageClassName": class,
                        "csi": {"driver": "disk.example.com", "volumeHandle": volume}});
                    if self.chance(70) {
                        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
                            {"key": ZONE, "operator": "In", "values": [zone]}]}]}});
                    }
                    if index < 3 {
                        claim["spec"]["volumeName"] = json!(volume);
                        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
                        spec["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                            "namespace": namespace, "name": name});
                    }
                    let labels = if self.chance(30) { json!({ZONE: zone}) } else { json!({}) };
                    json!({"metadata": {"name": volume, "labels": labels}, "spec": spec})
                });
                storage.push((claim, volume));
            }
        }
        storage
    }

    pub(crate) fn services(&mut self) -> Vec<Value> {
        if self.chance(50) {
            return Vec::new();
        }
        vec![
            json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        ]
    }

    pub(crate) fn replica_sets(&mut self) -> Vec<Value> {
        let template = |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": "none"}]}});
        APPS.iter()
            .map(|app| {
                json!({"metadata": {"name": app}, "spec": {"replicas": 0,
                    "selector": {"matchLabels": {"app": app}}, "template": template(app)}})
            })
            .collect()
    }

    pub(crate) fn budgets(&mut self) -> Vec<Value> {
        let mut budgets = Vec::new();
        for app in APPS {
            if self.chance(30) {
                let allowed = self.below(3);
                budgets.push(json!({"metadata": {"name": app},
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
                    "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
                        "expectedPods": 1}}));
            }
        }
        budgets
    }

    pub(crate) fn pod(&mut self, index: u32) -> Value {
        let app = self.pick(&APPS);
        let revision = self.pick(&["1", "2"]);
        let namespace = if self.chance(75) { "one" } else { "two" };
        let mut spec = Map::new();
        spec.insert("containers".to_owned(), json!([self.container()]));
        if self.chance(10) {
            let mut init = self.container();
            init["name"] = json!("init");
            init["ports"] = Value::Null;
            if self.chance(50) {
                init["restartPolicy"] = json!("Always");
            }
            spec.insert("initContainers".to_owned(), json!([init]));
        }
        if self.chance(35) {
            spec.insert("priorityClassName".to_owned(), json!(self.pick(&["low", "high", "meek"])));
        }
        if self.chance(30) {
            spec.insert("tolerations".to_owned(), json!([self.toleration()]));
        }
        if self.chance(15) {
            let selector = self.pick(&[json!({"disk": "ssd"}), json!({"disk": "hdd"}), json!({ZONE: "a"})]);
            spec.insert("nodeSelector".to_owned(), selector);
        }
        let affinity = self.affinity(app);
        if !affinity.is_empty() {
            spec.insert("affinity".to_owned(), Value::Object(affinity));
        }
        if self.chance(35) {
            let mut constraints = vec![self.spread(app)];
            if self.chance(30) {
                let other = self.spread(app);
                let pair = |it: &Value| (it["topologyKey"].clone(), it["whenUnsatisfiable"].clone());
                if pair(&other) != pair(&constraints[0]) {
                    constraints.push(other);
                }
            }
            spec.insert("topologySpreadConstraints".to_owned(), json!(constraints));
        }
        if self.chance(15) {
            let claim = format!("c{}", self.below(7));
            spec.insert(
                "volumes".to_owned(),
                json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]),
            );
        }
        let mut metadata = json!({"name": format!("p{index}"), "namespace": namespace,
            "labels": {"app": app, "revision": revision}});
        if self.chance(50) {
            metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app,
                "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]);
        }
        json!({"metadata": metadata, "spec": spec})
    }

    fn container(&mut self) -> Value {
        let mut requests = Map::new();
        if self.chance(80) {
            requests.insert("cpu".to_owned(), json!(self.pick(&["100m", "250m", "500m", "1", "1500m", "3"])));
        }
        if self.chance(70) {
            requests.insert("memory".to_owned(), json!(self.pick(&["64Mi", "500Mi", "1Gi", "3Gi"])));
        }
        if self.chance(10) {
            requests.insert("ephemeral-storage".to_owned(), json!(self.pick(&["1Gi", "6Gi"])));
        }
        let mut limits = Map::new();
        if self.chance(10) {
            requests.insert("example.com/gpu".to_owned(), json!("1"));
            limits.insert("example.com/gpu".to_owned(), json!("1"));
        }
        let mut container =
            json!({"name": "main", "image": "none", "resources": {"requests": requests, "limits": limits}});
        if self.chance(15) {
            let port = 8000 + self.below(3);
            container["ports"] = json!([{"containerPort": port, "hostPort": port}]);
            if self.chance(40) {
                container["ports"][0]["hostIP"] = json!(self.pick(&["10.0.0.1", "10.0.0.2"]));
            }
        }
        container
    }

    fn toleration(&mut self) -> Value {
        self.pick(&[
            json!({"key": "dedicated", "operator": "Exists"}),
            json!({"key": "dedicated", "value": "x", "effect": "NoSchedule"}),
            json!({"key": "dedicated", "value": "y"}),
            json!({"operator": "Exists"}),
            json!({"key": "flaky", "operator": "Exists", "effect": "PreferNoSchedule"}),
            json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}),
        ])
    }

    fn node_term(&mut self) -> Value {
        let name = format!("node-{}", self.below(self.nodes));
        self.pick(&[
            json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]}),
            json!({"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]}),
            json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]}),
            json!({"matchExpressions": [{"key": "size", "operator": "Lt", "values": ["6"]}]}),
            json!({"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}),
            json!({"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}),
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}),
            json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [name]}]}),
        ])
    }

    fn affinity(&mut self, app: &str) -> Map<String, Value> {
        let mut affinity = Map::new();
        if self.chance(20) {
            let mut node = Map::new();
            if self.chance(60) {
                let mut terms = vec![self.node_term()];
                if self.chance(30) {
                    terms.push(self.node_term());
                }
                node.insert(
                    "requiredDuringSchedulingIgnoredDuringExecution".to_owned(),
                    json!({"nodeSelectorTerms": terms}),
                );
            }
            if self.chance(60) {
                let weight = 1 + self.below(100);
                node.insert(
                    "preferredDuringSchedulingIgnoredDuringExecution".to_owned(),
                    json!([{"weight": weight, "preference": self.node_term()},
                        {"weight": 7, "preference": self.node_term()}]),
                );
            }
            affinity.insert("nodeAffinity".to_owned(), Value::Object(node));
        }
        for kind in ["podAffinity", "podAntiAffinity"] {
            if !self.chance(20) {
                continue;
            }
            let mut terms = Map::new();
            if self.chance(60) {
                terms.insert(
                    "requiredDuringSchedulingIgnoredDuringExecution".to_owned(),
                    json!([self.pod_term(app)]),
                );
            }
            if self.chance(50) {
                let weight = 1 + self.below(100);
                terms.insert(
                    "preferredDuringSchedulingIgnoredDuringExecution".to_owned(),
                    json!([{"weight": weight, "podAffinityTerm": self.pod_term(app)}]),
                );
            }
            affinity.insert(kind.to_owned(), Value::Object(terms));
        }
        affinity
    }

    fn pod_term(&mut self, app: &str) -> Value {
        let selected = if self.chance(60) { app } else { self.pick(&APPS) };
        let mut term = json!({"topologyKey": self.pick(&[ZONE, HOST, "disk"]),
            "labelSelector": {"matchLabels": {"app": selected}}});
        match self.below(8) {
            0 => term["namespaces"] = json!(["two"]),
            1 => term["namespaceSelector"] = json!({}),
            2 => term["namespaceSelector"] = json!({"matchLabels": {"shared": "yes"}}),
            3 => {
                term["namespaceSelector"] =
                    json!({"matchExpressions": [{"key": "shared", "operator": "DoesNotExist"}]})
            }
            4 => term["matchLabelKeys"] = json!(["revision"]),
            5 => term["mismatchLabelKeys"] = json!(["revision"]),
            _ => {}
        }
        term
    }

    fn spread(&mut self, app: &str) -> Value {
        let hard = self.chance(60);
        let mut constraint = json!({
            "maxSkew": 1 + self.below(2),
            "topologyKey": self.pick(&[ZONE, HOST, "disk"]),
            "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" },
            "labelSelector": {"matchLabels": {"app": app}},
        });
        if hard && self.chance(25) {
            constraint["minDomains"] = json!(1 + self.below(4));
        }
        if self.chance(25) {
            constraint["nodeAffinityPolicy"] = json!(self.pick(&["Honor", "Ignore"]));
        }
        if self.chance(25) {
            constraint["nodeTaintsPolicy"] = json!(self.pick(&["Honor", "Ignore"]));
        }
        if self.chance(25) {
            constraint["matchLabelKeys"] = json!(["revision"]);
        }
        if self.chance(10) {
            constraint["labelSelector"] = json!({});
        }
        constraint
    }
}
