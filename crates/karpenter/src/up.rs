//! `karpenter up`: runs a Kubernetes cluster in this process, for kubectl on the same host.
//!
//! The command starts an API server, the control plane, Karpenter with the kwok provider, and nodes; installs the
//! CustomResourceDefinitions; writes a kubeconfig; and prints commands to try. These parts are implemented in
//! `karpenter-apiserver`, `karpenter-embedded` and `karpenter-controllers`.

mod files;
pub(crate) mod install;
mod nodes;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::serve::{Credentials, Security, Serving};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::operator::Operator;
use karpenter_controllers::operator::legacy_api;
use karpenter_embedded::control_plane::{Cluster, Options};
use karpenter_kwok::{Ec2Classes, Kwok};
use karpenter_runtime::clock::Clock;
use kube::Client;

use crate::Outcome;
use crate::cli::UpArguments;
use crate::simulated_ec2;

pub(crate) fn run(arguments: &UpArguments) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(arguments))?;
    // The runtime does not wait for its tasks, because open watches of clients would keep the process running.
    runtime.shutdown_background();
    Ok(Outcome::Done)
}

/// The API server uses the clock of the control plane for timestamps.
pub(crate) struct SharedClock(pub(crate) Clock);

impl ServerClock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

async fn serve(arguments: &UpArguments) -> Result<()> {
    if !arguments.address.is_loopback() && !arguments.allow_remote {
        bail!(
            "--address {} can be reached from other hosts; add --allow-remote to allow that (clients still need \
             the kubeconfig's credentials)",
            arguments.address
        );
    }
    let clock = Clock::system().with_speed(arguments.speed);
    let server = open(arguments, &clock)?;
    let security = Security::Tls(Arc::new(credentials(arguments)?));
    let address = SocketAddr::new(arguments.address, arguments.port);
    let serving = server.serve(address, security).await.with_context(|| {
        format!("cannot listen on {address}: choose another --port, or 0 for any free one")
    })?;
    let client = Client::new(server.clone(), "default");
    install::definitions(&client, arguments.legacy).await?;
    let cluster = Cluster::start(client.clone(), Options { clock, ..Options::default() }).await;
    nodes::create(&client, arguments.nodes).await?;
    let operator = match arguments.without_karpenter {
        true => None,
        false => Some(start_karpenter(&client, clock, arguments).await?),
    };
    let kubeconfig = kubeconfig_path(arguments, &serving);
    files::write_private(&kubeconfig, &serving.kubeconfig())?;
    greet(&serving, &kubeconfig, arguments)?;
    wait_for_signal().await?;
    // Writes in progress are finished first, because acknowledged writes must be on disk.
    if let Some(operator) = operator {
        operator.stop().await;
    }
    cluster.stop().await;
    serving.shutdown().await;
    if arguments.kubeconfig.is_none() && arguments.data.is_none() {
        // The temporary kubeconfig is not valid any more after the cluster has stopped.
        let _ = std::fs::remove_file(&kubeconfig);
    }
    Ok(())
}

/// Starts Karpenter with the kwok provider, in this process and with the clock of the cluster.
async fn start_karpenter(client: &Client, clock: Clock, arguments: &UpArguments) -> Result<Operator> {
    let kwok = match arguments.legacy {
        // v1alpha5 objects refer to EC2, so kwok simulates EC2 instance types.
        true => Kwok::with_simulated_ec2(
            client.clone(),
            clock,
            simulated_ec2::types(&arguments.region).context("--region")?,
        ),
        false => Kwok::generic(client.clone(), clock),
    };
    kwok.resume().await;
    let options = karpenter_controllers::operator::Options::default();
    let mut operator = Operator::watch(client.clone(), Arc::new(kwok), clock, options);
    operator.start().await;
    if arguments.legacy {
        let classes = Ec2Classes::start(client.clone(), clock).await;
        operator.spawn("kwok.ec2nodeclass", classes, Ec2Classes::watch, 1);
        legacy_api::serve(&mut operator, karpenter_legacy::Options::default()).await;
    }
    Ok(operator)
}

fn open(arguments: &UpArguments, clock: &Clock) -> Result<ApiServer> {
    let config = Config {
        clock: Arc::new(SharedClock(*clock)),
        // The seed of generated names is the start time, so that the names differ from those of an earlier run with the
        // same `--data`.
        seed: u64::try_from(clock.now().as_nanosecond()).unwrap_or(0),
        ..Config::default()
    };
    match &arguments.data {
        None => Ok(ApiServer::new(config)),
        Some(directory) => ApiServer::open(config, directory)
            .with_context(|| format!("cannot use --data {}", directory.display())),
    }
}

/// With `--data`, the credentials are stored, so that a kubeconfig is still valid after a restart.
fn credentials(arguments: &UpArguments) -> Result<Credentials> {
    let names = [arguments.address.to_string()];
    match &arguments.data {
        None => Credentials::generate(&names).context("cannot generate credentials"),
        Some(directory) => {
            let file = directory.join("credentials.json");
            Credentials::load_or_generate(&file, &names)
                .with_context(|| format!("cannot use credentials in {}", file.display()))
        }
    }
}

fn kubeconfig_path(arguments: &UpArguments, serving: &Serving) -> PathBuf {
    match (&arguments.kubeconfig, &arguments.data) {
        (Some(file), _) => file.clone(),
        (None, Some(directory)) => directory.join("kubeconfig"),
        (None, None) => {
            std::env::temp_dir().join(format!("karpenter-up-{}.kubeconfig", serving.address().port()))
        }
    }
}

fn greet(serving: &Serving, kubeconfig: &Path, arguments: &UpArguments) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Kubernetes v1.35 is running at {}", serving.url())?;
    if arguments.speed != 1.0 {
        writeln!(out, "Its clock runs {} times as fast as real time.", arguments.speed)?;
    }
    writeln!(out, "\nTry in another terminal:\n")?;
    writeln!(out, "  export KUBECONFIG={}", files::shell_quoted(kubeconfig))?;
    writeln!(out, "  kubectl get nodes")?;
    if arguments.without_karpenter {
        writeln!(out, "  kubectl create deployment web --image=nginx --replicas=3")?;
        writeln!(out, "  kubectl get pods -o wide --watch")?;
    } else {
        writeln!(out, "  kubectl apply -f examples/kwok.yaml")?;
        writeln!(out, "  kubectl scale deployment inflate --replicas=20")?;
        writeln!(out, "  kubectl get nodeclaims,nodes,pods -o wide")?;
        writeln!(
            out,
            "\nKarpenter launches kwok nodes for unschedulable pods; kwok nodes exist only as objects."
        )?;
    }
    writeln!(
        out,
        "\nPress Ctrl-C to stop it{}.",
        if arguments.data.is_some() { "; its state is kept" } else { "" }
    )?;
    out.flush()?;
    Ok(())
}

async fn wait_for_signal() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot listen for Ctrl-C")?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
