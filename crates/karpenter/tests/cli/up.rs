//! Tests of the binary with `karpenter up`, reached over TLS with the kubeconfig that it wrote.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, ResourceExt};
use serde_json::json;

/// The maximum duration of a step. It is so long that only a process that hangs exceeds it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `karpenter up` that is killed at the end of its test.
pub(crate) struct Up {
    process: Child,
    pub(crate) kubeconfig: PathBuf,
    said: String,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Up {
    /// Starts it on a free port and waits until it reports that it is running.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        let kubeconfig = folder.join("kubeconfig");
        let mut process = command(arguments)
            .args(["--port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("Ctrl-C") {
            let read = out.read_line(&mut said).expect("text");
            assert!(read > 0, "it ended before it was up: {said}");
        }
        Self { process, kubeconfig, said }
    }

    pub(crate) async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("complete")).expect("usable")
    }

    fn interrupt(&mut self) -> ExitStatus {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill is there");
        assert!(sent.success());
        self.process.wait().expect("ends")
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    command.arg("up").args(arguments);
    command
}

/// A directory that is removed at the end of the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("karpenter-up-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": name}})).expect("a config map")
}

#[tokio::test]
async fn deployment_runs_and_ctrl_c_stops_the_cluster() {
    let folder = Folder::new("story");
    let mut up = Up::start(&folder.0, &["--nodes", "2"]);
    assert!(up.said.contains("export KUBECONFIG="), "{}", up.said);
    let client = up.client().await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "pause"}]},
            },
        },
    }))
    .expect("a deployment");
    deployments.create(&PostParams::default(), &deployment).await.expect("created");
    let is_available = |object: Option<&Deployment>| {
        let available = object.and_then(|object| object.status.as_ref()?.available_replicas);
        available == Some(3)
    };
    let waited = tokio::time::timeout(PATIENCE, await_condition(deployments, "web", is_available)).await;
    waited.expect("in time").expect("watched");
    let nodes: Api<Node> = Api::all(client);
    let names: Vec<String> = nodes
        .list(&ListParams::default())
        .await
        .expect("listed")
        .items
        .iter()
        .map(|node| node.name_any())
        .filter(|name| name.starts_with("node-"))
        .collect();
    assert_eq!(names, ["node-1", "node-2"]);
    assert!(up.interrupt().success());
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let folder = Folder::new("killed");
    let data = folder.0.join("data");
    let data = data.to_str().expect("text");
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..3 {
        let mut up = Up::start(&folder.0, &["--data", data]);
        let maps: Api<ConfigMap> = Api::default_namespaced(up.client().await);
        let there: Vec<String> = maps
            .list(&ListParams::default())
            .await
            .expect("listed")
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        for name in &acknowledged {
            assert!(there.contains(name), "{name} is gone in round {round}");
        }
        // Several clients write concurrently, and the process is killed while they write.
        let written = Arc::new(AtomicU32::new(0));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (maps, written) = (maps.clone(), written.clone());
                tokio::spawn(async move {
                    let mut names = Vec::new();
                    for number in 0.. {
                        let name = format!("round-{round}-writer-{writer}-{number}");
                        if maps.create(&PostParams::default(), &config_map(&name)).await.is_err() {
                            break;
                        }
                        names.push(name);
                        written.fetch_add(1, Ordering::SeqCst);
                    }
                    names
                })
            })
            .collect();
        let enough = async {
            while written.load(Ordering::SeqCst) < 40 + 17 * round {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, enough).await.expect("writes are acknowledged");
        up.process.kill().expect("killed");
        up.process.wait().expect("gone");
        for writer in writers {
            acknowledged.extend(writer.await.expect("joined"));
        }
    }
    assert!(acknowledged.len() >= 40);
}

#[tokio::test]
async fn requests_without_credentials_are_rejected() {
    let folder = Folder::new("strangers");
    let up = Up::start(&folder.0, &[]);
    let mut file = Kubeconfig::read_from(&up.kubeconfig).expect("a kubeconfig");
    for user in &mut file.auth_infos {
        user.auth_info = Some(Default::default());
    }
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("complete");
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).expect("usable"));
    match maps.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 401, "{status:?}"),
        other => panic!("a stranger was answered: {other:?}"),
    }
}

#[test]
fn address_in_use_is_reported() {
    let folder = Folder::new("refused");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = busy.local_addr().expect("bound").port().to_string();
    let file = folder.0.join("kubeconfig");
    let kubeconfig = file.to_str().expect("text");
    let cases: [(&[&str], &str); 3] = [
        (&["--port", &port], "choose another --port"),
        (&["--address", "0.0.0.0"], "--allow-remote"),
        (&["--speed", "0"], "above 0"),
    ];
    for (arguments, wanted) in cases {
        let mut process = command(arguments)
            .args(["--kubeconfig", kubeconfig])
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let status = process.wait().expect("ends");
        let mut said = String::new();
        process.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(!status.success(), "{arguments:?}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
        assert!(!file.exists(), "{arguments:?}: nothing may be left behind");
    }
}
