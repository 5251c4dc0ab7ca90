//! `karpenter controller`: runs the controllers on an existing cluster.
//!
//! The command connects to the cluster, acquires the leader lease, runs until it is stopped or loses the lease, and
//! releases the lease. The controllers are in `karpenter-controllers`.
//!
//! Upstream: `cmd/controller/main.go`, `pkg/operator/operator.go`

#[cfg(feature = "aws")]
mod aws;
mod connect;
mod logs;
mod profiling;
mod provider;
mod v1alpha5_settings;

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use karpenter_controllers::legacy::LegacyKinds;
use karpenter_controllers::operator::Operator;
use karpenter_controllers::operator::election::{Election, Settings};
use karpenter_controllers::operator::http::Port;
use karpenter_controllers::operator::legacy_api;
use karpenter_controllers::operator::options::IgnoredVariable;
use karpenter_legacy::GlobalSettings;
use karpenter_runtime::clock::Clock;
use tokio::signal::unix::{SignalKind, signal};

use self::provider::Provider;
use crate::Outcome;
use crate::cli::{ControllerArguments, ProviderChoice};

/// Passes that are still running after this time are cancelled.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// How often free memory is returned to the system.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(15);

pub(crate) fn run(arguments: &ControllerArguments, ignored: &[IgnoredVariable]) -> Result<Outcome> {
    let choice = provider::choice(arguments.provider)?;
    karpenter_memory::use_one_heap();
    if arguments.options.enable_profiling {
        // Heap sampling starts as early as possible, because profiles do not include earlier allocations.
        karpenter_memory::heap::start();
    }
    logs::start(&arguments.options)?;
    for IgnoredVariable { variable, value, default } in ignored {
        tracing::warn!(variable, value, default, "ignored environment variable with an invalid value");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.spawn(async {
        let mut ticks = tokio::time::interval(GIVE_BACK_EVERY);
        loop {
            ticks.tick().await;
            let _ = tokio::task::spawn_blocking(karpenter_memory::release_free_pages).await;
        }
    });
    let result = runtime.block_on(work(choice, arguments));
    // Cancels the passes that did not end in time, or that must not continue because the lease was lost.
    runtime.shutdown_background();
    result.map(|()| Outcome::Done)
}

async fn work(choice: ProviderChoice, arguments: &ControllerArguments) -> Result<()> {
    // The signal handler is installed first, so that a signal during the connection is not lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut termination_signal = std::pin::pin!(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });

    let connected = tokio::select! {
        connected = connect::connect(arguments.kubeconfig.as_deref(), &arguments.options) => connected?,
        () = &mut termination_signal => return Ok(()),
    };
    let v1alpha5_settings = match arguments.legacy.legacy_api {
        true => {
            let namespace = arguments.options.lease_namespace(connected.own_namespace.as_deref());
            tokio::select! {
                settings = v1alpha5_settings::read(&connected.client, &namespace) => settings,
                () = &mut termination_signal => return Ok(()),
            }
        }
        false => GlobalSettings::default(),
    };
    let arguments = &v1alpha5_settings::complete(arguments, &v1alpha5_settings);
    let options = &arguments.options;
    let clock = Clock::system();
    let provider = tokio::select! {
        provider = Provider::set_up(choice, arguments, &connected, clock) => provider?,
        () = &mut termination_signal => return Ok(()),
    };
    let cloud = provider.cloud();
    Operator::check(&*cloud, options).context("feature gate NodeRepair")?;
    let mut operator = Operator::watch(connected.client.clone(), cloud, clock, options.clone());
    provider.attach(&operator);
    connected.metrics.register(operator.context().metrics.registry());
    // The watches start before the lease is acquired, so that a replica that is not the leader also reports missing
    // CustomResourceDefinitions.
    let old_kinds = arguments.legacy.legacy_api.then(|| {
        let context = operator.context();
        LegacyKinds::watch(&context.client, &context.stores)
    });
    let health = open(options.health_probe_port, "--health-probe-port", operator.health_pages()).await?;
    let metrics_pages = match options.enable_profiling {
        true => profiling::pages(operator.metrics_pages()),
        false => operator.metrics_pages(),
    };
    let metrics = open(options.metrics_port, "--metrics-port", metrics_pages).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = connected.server,
        metrics_port = metrics.number(),
        health_probe_port = health.number(),
        "starting karpenter"
    );
    if !options.scheduler_config.is_empty() {
        let constraints = serde_json::to_string(&options.scheduler_config.default_constraints);
        tracing::info!(
            constraints = constraints.unwrap_or_default(),
            "using default spread constraints of the scheduler"
        );
    }

    if !options.ignore_dra_requests {
        tracing::error!("pods with resource claims are not planned, --ignore-dra-requests is ignored");
    }

    let mut election = (!options.disable_leader_election).then(|| {
        let namespace = options.lease_namespace(connected.own_namespace.as_deref());
        let settings = Settings::new(&namespace, &options.leader_election_name, &connect::identity());
        let failed_renewals = &operator.context().metrics.leader_election_slow_path;
        let failed_renewals = failed_renewals.with_label_values(&[&options.leader_election_name]);
        Election::new(connected.client.clone(), clock, settings).counting(failed_renewals)
    });
    let is_leader =
        operator.context().metrics.leader_election_status.with_label_values(&[&options.leader_election_name]);
    if let Some(election) = &mut election {
        is_leader.set(0);
        let lease = election.lease();
        tracing::info!(lease, "attempting to acquire leader lease");
        tokio::select! {
            () = election.acquire() => tracing::info!(lease, "acquired leader lease"),
            () = &mut termination_signal => return Ok(()),
        }
    }
    is_leader.set(1);

    let keeping = async {
        match &mut election {
            Some(election) => election.keep().await,
            None => std::future::pending().await,
        }
    };
    let starting = async {
        provider.resume().await;
        operator.start().await;
        provider.start(&mut operator).await;
        if let Some(old_kinds) = old_kinds {
            let legacy_options = v1alpha5_settings.complete(arguments.legacy_options());
            legacy_api::serve_kinds(&mut operator, old_kinds, legacy_options).await;
        }
        std::future::pending::<()>().await;
    };
    let is_lost = tokio::select! {
        () = keeping => true,
        () = starting => false,
        () = &mut termination_signal => false,
    };
    let lost = || {
        anyhow!(
            "lost leader lease {}: it was not renewed in time, or another replica acquired it; this replica exits, so \
             that only one replica runs the controllers",
            options.leader_election_name
        )
    };
    if is_lost {
        // The process ends immediately, because another replica may acquire the lease.
        return Err(lost());
    }
    tracing::info!("stopping");
    let stopping = tokio::time::timeout(STOP_PATIENCE, operator.stop());
    let stopped = match &mut election {
        // Stopping the controllers may take longer than the lease duration. The lease is kept until they have stopped,
        // so that no other replica runs the controllers in the meantime.
        Some(election) => election.keep_during(stopping).await.ok_or_else(lost)?,
        None => stopping.await,
    };
    if stopped.is_err() {
        tracing::error!("some reconciles did not finish before the shutdown timeout and were cancelled");
    }
    if let Some(election) = &mut election
        && let Err(error) = election.release().await
    {
        tracing::error!(%error, "failed to release leader lease; it will expire");
    }
    tracing::info!("stopped");
    Ok(())
}

async fn open(port: u16, flag: &str, pages: karpenter_controllers::operator::http::Pages) -> Result<Port> {
    Port::open(port, pages).await.with_context(|| {
        format!("cannot listen on port {port}: choose another {flag}, or 0 for any free one")
    })
}
