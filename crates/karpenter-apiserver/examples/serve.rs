//! Runs only the embedded API server, on a free loopback port. `serve KUBECONFIG` writes a kubeconfig, prints the
//! address, and runs until it is interrupted.

use std::io;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;

use karpenter_apiserver::serve::{Credentials, Security};
use karpenter_apiserver::{ApiServer, Config};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("Usage: serve KUBECONFIG");
        return ExitCode::from(2);
    };
    match serve(&file).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(kubeconfig: &str) -> io::Result<()> {
    let credentials = Arc::new(Credentials::generate(&["127.0.0.1".to_owned(), "localhost".to_owned()])?);
    let mut terminated = signal(SignalKind::terminate())?;
    let server = ApiServer::new(Config::default());
    let serving = server.serve((Ipv4Addr::LOCALHOST, 0).into(), Security::Tls(credentials)).await?;
    tokio::fs::write(kubeconfig, serving.kubeconfig()).await?;
    println!("listening on {}", serving.url());
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
    serving.shutdown().await;
    Ok(())
}
