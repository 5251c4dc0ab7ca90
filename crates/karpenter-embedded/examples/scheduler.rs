//! Runs the scheduler against the cluster of the current kubeconfig until it is interrupted.
//!
//! `cargo run -p karpenter-embedded --example scheduler -- [name]` schedules the pods with this `spec.schedulerName`, by
//! default `default-scheduler`.

use karpenter_embedded::scheduler::{Settings, Sources, run};
use karpenter_runtime::clock::Clock;
use karpenter_runtime::worker::Shutdown;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    if let Some(name) = std::env::args().nth(1) {
        settings.name = name;
    }
    let client = kube::Client::try_default().await?;
    let (sources, watches) = Sources::watch(&client);
    let shutdown = Shutdown::default();
    let interrupted = shutdown.clone();
    tokio::spawn(async move {
        // Without a signal handler the process exits on interrupt.
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.request();
        }
    });
    eprintln!("scheduling pods with schedulerName {}", settings.name);
    run(client, sources, Clock::system(), settings, shutdown).await;
    watches.iter().for_each(|watch| watch.abort());
    Ok(())
}
