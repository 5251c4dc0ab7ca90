//! Tests of the binary: processes of `karpenter controller` on a cluster of `karpenter up`.

mod bare;
#[cfg(target_os = "linux")]
mod profiles;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};

/// The maximum duration of a step. It is so long that only a process that hangs exceeds it.
const PATIENCE: Duration = Duration::from_secs(90);

/// A process that is killed at the end of its test.
struct Running {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Running {
    fn start(arguments: &[&str], kubeconfig: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig).env("HOSTNAME", "karpenter-0");
        Self::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = command.spawn().expect("the binary starts");
        let out = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, out }
    }

    /// Reads lines of the process's output until one contains the text.
    fn line_with(&mut self, part: &str) -> String {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let read = self.out.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended before it said {part:?}: {said}");
            if line.contains(part) {
                return line;
            }
            said.push_str(&line);
        }
    }

    /// Sends SIGTERM and returns the exit code.
    fn terminate(mut self) -> Option<i32> {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
        let mut rest = String::new();
        let _ = self.out.read_to_string(&mut rest);
        self.process.wait().expect("it ends").code()
    }
}

fn controller(kubeconfig: &Path) -> (Running, Value) {
    let mut running = Running::start(
        &[
            "controller",
            "--provider",
            "kwok",
            "--metrics-port=0",
            "--health-probe-port=0",
            "--enable-decision-journal",
        ],
        kubeconfig,
    );
    let started = running.line_with("starting karpenter");
    (running, serde_json::from_str(&started).expect("a line of JSON"))
}

fn get(port: &Value, path: &str) -> (u16, String) {
    let port = u16::try_from(port.as_u64().expect("a port")).expect("a port");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("complete")).expect("usable")
}

fn pool() -> NodePool {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s"},
        },
    });
    serde_json::from_value(pool).expect("a pool")
}

fn deployment() -> Deployment {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "inflate"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "inflate"}}, "template": {
            "metadata": {"labels": {"app": "inflate"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [
                {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        }},
    });
    serde_json::from_value(deployment).expect("a deployment")
}

async fn apply_workload(client: &Client) {
    let create = PostParams::default();
    let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default"}, "spec": {}});
    let class: KWOKNodeClass = serde_json::from_value(class).expect("a class");
    Api::all(client.clone()).create(&create, &class).await.expect("a class");
    Api::all(client.clone()).create(&create, &pool()).await.expect("a pool");
    Api::default_namespaced(client.clone()).create(&create, &deployment()).await.expect("a deployment");
}

async fn all_available(client: &Client) {
    let is_available = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.is_some_and(|status| status.available_replicas == Some(5))
    };
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let waiting = await_condition(deployments, "inflate", is_available);
    tokio::time::timeout(PATIENCE, waiting).await.expect("in time").expect("watched");
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("karpenter-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("created");
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_replica_takes_over_the_lease() {
    let folder = folder("controller");
    let kubeconfig = folder.join("kubeconfig");
    let mut up = Running::start(&["up", "--port", "0", "--without-karpenter"], &kubeconfig);
    up.line_with("Ctrl-C");
    let client = client(&kubeconfig).await;

    let (mut first, said) = controller(&kubeconfig);
    first.line_with("acquired leader lease");
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let holder = |lease: Lease| lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    let held = holder(leases.get("karpenter-leader-election").await.expect("there"));
    assert!(held.starts_with("karpenter-0_"), "{held}");
    let (mut second, waiting) = controller(&kubeconfig);
    second.line_with("attempting to acquire leader lease");
    let (_, metrics) = get(&waiting["metrics-port"], "/metrics");
    let series = "leader_election_master_status{name=\"karpenter-leader-election\"} 0";
    assert!(metrics.contains(series), "a replica without the lease reports it:\n{metrics}");

    apply_workload(&client).await;
    first.line_with("initialized nodeclaim");
    all_available(&client).await;
    assert_eq!(get(&said["health-probe-port"], "/healthz"), (200, "ok".to_owned()));
    assert_eq!(get(&said["health-probe-port"], "/readyz").0, 200);
    let (status, metrics) = get(&said["metrics-port"], "/metrics");
    assert_eq!(status, 200);
    for series in [
        "karpenter_nodeclaims_created_total{",
        "karpenter_nodes_created_total{",
        "karpenter_cloudprovider_duration_seconds_bucket{controller=\"nodeclaim.lifecycle\",method=\"Create\"",
        "leader_election_master_status{name=\"karpenter-leader-election\"} 1",
        "karpenter_cluster_state_synced 1",
        "karpenter_nodepools_usage{nodepool=\"default\",resource_type=\"cpu\"}",
    ] {
        assert!(metrics.contains(series), "{series} is missing in\n{metrics}");
    }
    let (_, journal) = get(&said["metrics-port"], "/debug/decisions");
    let journal: Vec<Value> = serde_json::from_str(&journal).expect("JSON");
    assert!(journal.iter().any(|entry| entry["by"] == "provisioning"), "{journal:?}");

    assert_eq!(first.terminate(), Some(0));
    second.line_with("acquired leader lease");
    let now_held = holder(leases.get("karpenter-leader-election").await.expect("there"));
    assert!(now_held != held && now_held.starts_with("karpenter-0_"), "{now_held}");

    // The second replica, now the leader, continues the work of the first one: a deleted NodeClaim is drained and its
    // node deleted.
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.delete("inflate", &DeleteParams::background()).await.expect("deleted");
    let (claims, nodes): (Api<NodeClaim>, Api<Node>) = (Api::all(client.clone()), Api::all(client.clone()));
    let present = nodes.list(&ListParams::default()).await.expect("listed");
    assert!(!present.items.is_empty());
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    for node in present {
        let (name, uid) = (node.name_any(), node.uid().expect("has one"));
        let gone = await_condition(nodes.clone(), &name, conditions::is_deleted(&uid));
        tokio::time::timeout(PATIENCE, gone).await.expect("in time").expect("watched");
    }
    second.line_with("\"deleted node\"");
    second.line_with("deleted nodeclaim");
    assert_eq!(second.terminate(), Some(0));
    drop(up);
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_exits_with_error_when_lease_is_lost() {
    let folder = folder("lost-lease");
    let kubeconfig = folder.join("kubeconfig");
    let mut up = Running::start(&["up", "--port", "0", "--without-karpenter"], &kubeconfig);
    up.line_with("Ctrl-C");
    let (mut running, _) = controller(&kubeconfig);
    running.line_with("acquired leader lease");
    let leases: Api<Lease> = Api::namespaced(client(&kubeconfig).await, "kube-system");
    let thief = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    leases.patch("karpenter-leader-election", &PatchParams::default(), &thief).await.expect("patched");
    let mut said = String::new();
    running.process.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("lost leader lease karpenter-leader-election"), "{said}");
    assert_eq!(running.process.wait().expect("it ends").code(), Some(1));
    let lease = leases.get("karpenter-leader-election").await.expect("there");
    assert_eq!(
        lease.spec.and_then(|spec| spec.holder_identity).as_deref(),
        Some("thief"),
        "not ours to give back"
    );
    drop(up);
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn up_runs_karpenter() {
    let folder = folder("up-with");
    let kubeconfig = folder.join("kubeconfig");
    let mut up = Running::start(&["up", "--port", "0"], &kubeconfig);
    up.line_with("Ctrl-C");
    let client = client(&kubeconfig).await;
    apply_workload(&client).await;
    all_available(&client).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pods = pods.list(&ListParams::default()).await.expect("listed");
    assert!(pods.iter().all(|pod| {
        pod.spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .is_some_and(|node| node.starts_with("kwok-default-"))
    }));
    assert_eq!(up.terminate(), Some(0));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn missing_prerequisites_are_reported() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_karpenter")).arg("controller").args(arguments).output();
        let output = output.expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--provider", "kwok", "--kubeconfig", "/nowhere/kubeconfig"]);
    assert!(code == Some(1) && said.contains("/nowhere/kubeconfig"), "{said}");
    let (code, said) = run(&["--provider", "kwok", "--log-level", "loud"]);
    assert!(
        code == Some(2) && said.contains("--log-level") && said.contains("debug, info, warn, error"),
        "{said}"
    );
    let (code, said) = run(&["--provider", "moon"]);
    assert!(code == Some(2) && said.contains("kwok"), "{said}");
}
