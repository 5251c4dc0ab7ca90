//! `karpenter controller`: Karpenter on a cluster that is there already.
//!
//! Connects, waits for its turn, works until it is told to stop or loses the lease, and gives the lease back. What it
//! does while it works is in `karpenter-controllers`.

#[cfg(feature = "aws")]
mod aws;
mod connect;
mod logs;
mod old_settings;
mod profiling;
mod provider;

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use karpenter_cluster::clock::Clock;
use karpenter_controllers::legacy::{self, LegacyKinds};
use karpenter_controllers::operator::Operator;
use karpenter_controllers::operator::election::{Election, Settings};
use karpenter_controllers::operator::http::Port;
use karpenter_controllers::operator::options::IgnoredVariable;
use karpenter_legacy::GlobalSettings;
use tokio::signal::unix::{SignalKind, signal};

use self::provider::Provider;
use crate::Outcome;
use crate::cli::{ControllerArguments, ProviderChoice};

/// Passes that take longer than this to end are cut off.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// How often what is free goes back to the system.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(15);

pub(crate) fn run(arguments: &ControllerArguments, ignored: &[IgnoredVariable]) -> Result<Outcome> {
    let choice = provider::choice(arguments.provider)?;
    karpenter_memory::use_one_heap();
    if arguments.options.enable_profiling {
        // As early as possible: what was allocated before is in no profile.
        karpenter_memory::heap::start();
    }
    logs::start(&arguments.options)?;
    for IgnoredVariable { variable, value, default } in ignored {
        tracing::warn!(variable, value, default, "ignored environment variable with an invalid value");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the controllers")?;
    runtime.spawn(async {
        let mut ticks = tokio::time::interval(GIVE_BACK_EVERY);
        loop {
            ticks.tick().await;
            let _ = tokio::task::spawn_blocking(karpenter_memory::release_free_pages).await;
        }
    });
    let result = runtime.block_on(work(choice, arguments));
    // What is still under way belongs to a copy that has lost the lease, or did not end when it was asked to.
    runtime.shutdown_background();
    result.map(|()| Outcome::Done)
}

async fn work(choice: ProviderChoice, arguments: &ControllerArguments) -> Result<()> {
    // First of all: a signal that comes while we connect must not be lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut told_to_stop = std::pin::pin!(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });

    let connected = tokio::select! {
        connected = connect::connect(arguments.kubeconfig.as_deref(), &arguments.options) => connected?,
        () = &mut told_to_stop => return Ok(()),
    };
    let old_settings = match arguments.legacy.legacy_api {
        true => {
            let namespace = arguments.options.lease_namespace(connected.own_namespace.as_deref());
            tokio::select! {
                settings = old_settings::read(&connected.client, &namespace) => settings,
                () = &mut told_to_stop => return Ok(()),
            }
        }
        false => GlobalSettings::default(),
    };
    let arguments = &old_settings::complete(arguments, &old_settings);
    let options = &arguments.options;
    let clock = Clock::system();
    let provider = tokio::select! {
        provider = Provider::set_up(choice, arguments, &connected, clock) => provider?,
        () = &mut told_to_stop => return Ok(()),
    };
    let cloud = provider.cloud();
    Operator::check(&*cloud, options).context("feature gate NodeRepair")?;
    let mut operator = Operator::watch(connected.client.clone(), cloud, clock, options.clone());
    provider.attach(&operator);
    connected.metrics.register(operator.context().metrics.registry());
    // Before the lease: a copy that waits for it tells as well that definitions are missing.
    let old_kinds = arguments.legacy.legacy_api.then(|| LegacyKinds::watch(operator.context()));
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
            "pods without spread constraints are planned with these of the scheduler"
        );
    }

    if !options.ignore_dra_requests {
        tracing::error!("pods that use resource claims are not planned, whatever --ignore-dra-requests says");
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
            () = &mut told_to_stop => return Ok(()),
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
            let legacy_options = old_settings.complete(arguments.legacy_options());
            legacy::serve_kinds(&mut operator, old_kinds, legacy_options).await;
        }
        std::future::pending::<()>().await;
    };
    let is_lost = tokio::select! {
        () = keeping => true,
        () = starting => false,
        () = &mut told_to_stop => false,
    };
    let lost = || {
        anyhow!(
            "the lease {} was lost: it could not be renewed in time, or another copy has taken it; this copy ends so \
             that two never work at once",
            options.leader_election_name
        )
    };
    if is_lost {
        // At once: another copy may begin to work any moment.
        return Err(lost());
    }
    tracing::info!("stopping");
    let stopping = tokio::time::timeout(STOP_PATIENCE, operator.stop());
    let stopped = match &mut election {
        // This may take longer than a lease lasts, and until it is over nobody else may work.
        Some(election) => election.keep_during(stopping).await.ok_or_else(lost)?,
        None => stopping.await,
    };
    if stopped.is_err() {
        tracing::error!("some passes did not end in time");
    }
    if let Some(election) = &mut election
        && let Err(error) = election.release().await
    {
        tracing::error!(%error, "the lease could not be given back; it runs out by itself");
    }
    tracing::info!("stopped");
    Ok(())
}

async fn open(port: u16, flag: &str, pages: karpenter_controllers::operator::http::Pages) -> Result<Port> {
    Port::open(port, pages).await.with_context(|| {
        format!("cannot listen on port {port}: choose another {flag}, or 0 for any free one")
    })
}
