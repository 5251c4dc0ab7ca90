//! `karpenter install` and `karpenter uninstall`: convert arguments into settings, and print progress.
//! `karpenter-install` decides what is written to the cluster.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use karpenter_install::settings::{Scope, Settings};
use karpenter_install::uninstall::{self, Nodes};
use karpenter_install::{Error, Progress, install as steps, manifests};
use karpenter_runtime::clock::Clock;
use serde_json::{Value, json};

use crate::cli::{InstallArguments, InstallProvider, ManifestFormat, NodesChoice, UninstallArguments};
use crate::{Outcome, connect, diagnostics};

pub(crate) fn run(arguments: &InstallArguments) -> Result<Outcome> {
    let settings = settings(arguments);
    // All invalid settings are reported before any call to the cluster.
    let objects = match manifests::build(&settings) {
        Ok(objects) => objects,
        Err(error) => return refused(error),
    };
    if let Some(format) = arguments.output {
        print_objects(&objects, format)?;
        return Ok(Outcome::Done);
    }
    let choices = steps::Choices {
        takes_over: arguments.take_over,
        is_dry_run: arguments.dry_run,
        wait: arguments.wait.then_some(arguments.timeout),
    };
    let answer = runtime()?.block_on(async {
        let client = connect::client(arguments.kubeconfig.as_deref()).await?;
        Ok::<_, anyhow::Error>(steps::install(&client, Clock::system(), &settings, &choices, PROGRESS).await)
    })?;
    if let Err(error) = answer {
        return refused(error);
    }
    if !arguments.dry_run {
        PROGRESS(next(&settings));
    }
    Ok(Outcome::Done)
}

fn next(settings: &Settings) -> &'static str {
    match settings.scope {
        Scope::Everything => {
            "installed; next: apply a NodePool and its node class (examples/), then run karpenter doctor"
        }
        Scope::WithoutController => {
            "installed; next: run karpenter controller --provider …, then karpenter doctor"
        }
        Scope::OnlyDefinitions => "installed the CustomResourceDefinitions",
    }
}

fn settings(arguments: &InstallArguments) -> Settings {
    let provider = arguments.provider.unwrap_or(InstallProvider::Kwok).into();
    let mut settings = Settings {
        scope: match (arguments.crds_only, arguments.without_controller) {
            (true, _) => Scope::OnlyDefinitions,
            (_, true) => Scope::WithoutController,
            _ => Scope::Everything,
        },
        with_definitions: !arguments.skip_crds,
        name: arguments.name.clone(),
        namespace: arguments.namespace.clone(),
        image: arguments.image.clone(),
        replicas: arguments.replicas,
        cpu: arguments.cpu.clone(),
        memory: arguments.memory.clone(),
        serves_legacy: arguments.legacy_api,
        ..Settings::new(provider)
    };
    settings.variables.extend(arguments.env.iter().cloned());
    for (variable, value) in [
        ("CLUSTER_NAME", &arguments.cluster_name),
        ("CLUSTER_ENDPOINT", &arguments.cluster_endpoint),
        ("INTERRUPTION_QUEUE", &arguments.interruption_queue),
        ("AWS_REGION", &arguments.region),
        ("FEATURE_GATES", &arguments.feature_gates),
        ("LOG_LEVEL", &arguments.log_level),
    ] {
        if let Some(value) = value {
            settings.variables.insert(variable.to_owned(), value.clone());
        }
    }
    settings.account_annotations.extend(arguments.service_account_annotation.iter().cloned());
    if let Some(arn) = &arguments.role_arn {
        settings.account_annotations.insert("eks.amazonaws.com/role-arn".to_owned(), arn.clone());
    }
    settings
}

fn print_objects(objects: &[Value], format: ManifestFormat) -> Result<()> {
    let mut out = io::stdout().lock();
    match format {
        ManifestFormat::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            writeln!(out, "{list:#}")?;
        }
        ManifestFormat::Yaml => write_yaml(&mut out, objects)?,
    }
    out.flush()?;
    Ok(())
}

fn write_yaml(out: &mut impl Write, objects: &[Value]) -> Result<()> {
    for object in objects {
        let text = serde_saphyr::to_string(object).context("an object cannot be written as YAML")?;
        write!(out, "---\n{text}")?;
    }
    Ok(())
}

pub(crate) fn run_uninstall(arguments: &UninstallArguments) -> Result<Outcome> {
    let choices = uninstall::Choices {
        name: arguments.name.clone(),
        nodes: match arguments.nodes {
            NodesChoice::Drain => Nodes::Drain,
            NodesChoice::HandOver => Nodes::HandOver,
            NodesChoice::Keep => Nodes::Keep,
        },
        with_definitions: arguments.crds,
        timeout: arguments.timeout,
        is_forced: arguments.force,
        is_dry_run: arguments.dry_run,
    };
    let answer = runtime()?.block_on(async {
        let client = connect::client(arguments.kubeconfig.as_deref()).await?;
        if let Some(file) = arguments.save.as_deref().filter(|_| !arguments.dry_run) {
            match uninstall::kept_objects(&client).await {
                Ok(objects) => save(file, &objects)?,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok::<_, anyhow::Error>(uninstall::uninstall(&client, Clock::system(), &choices, PROGRESS).await)
    })?;
    match answer {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => refused(error),
    }
}

/// Writes the objects to a new file. An existing file is not overwritten, because an earlier run may have saved it.
fn save(file: &Path, objects: &[Value]) -> Result<()> {
    let mut open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .with_context(|| format!("cannot write --save {}", file.display()))?;
    write_yaml(&mut open, objects)?;
    PROGRESS(&format!("saved {} objects to {}", objects.len(), file.display()));
    Ok(())
}

/// Prints each line as a separate error.
fn refused(error: Error) -> Result<Outcome> {
    match error {
        Error::Wrong(lines) | Error::Refused(lines) => {
            lines.iter().for_each(|line| diagnostics::print_error(line));
            Ok(Outcome::InputRefused)
        }
        error => Err(error.into()),
    }
}

/// Prints progress; a closed output does not stop the operation.
const PROGRESS: Progress<'static> = &|line| {
    let _ = writeln!(io::stdout(), "{line}");
};

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}
