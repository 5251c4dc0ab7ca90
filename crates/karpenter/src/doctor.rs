//! `karpenter doctor`: prints findings about Karpenter in a cluster and sets the exit code. `karpenter-install` has
//! the checks.

use std::io::{self, IsTerminal, Read, Write};

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use karpenter_api::error::one_line;
use karpenter_install::doctor::{self, DoctorOptions, Facts, Finding, Level};
use karpenter_runtime::clock::Clock;
use serde_json::json;

use crate::cli::{DoctorArguments, FailOn, ReportFormat};
use crate::{Outcome, connect, diagnostics, install};

/// The maximum size of an error message that `--explain` reads; a longer input is not an error message.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

pub(crate) fn run(arguments: &DoctorArguments) -> Result<Outcome> {
    let findings = match &arguments.explain {
        Some(text) => vec![explain(text)?],
        None => install::runtime()?.block_on(examine(arguments))?,
    };
    print(&findings, arguments.output)?;
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    let is_bad = match arguments.fail_on {
        FailOn::Error => worst >= Level::Fail,
        FailOn::Warning => worst >= Level::Warn,
        FailOn::Never => false,
    };
    Ok(if is_bad && arguments.explain.is_none() { Outcome::InputRefused } else { Outcome::Done })
}

fn explain(text: &str) -> Result<Finding> {
    let text = match text {
        "-" => {
            let mut read = String::new();
            io::stdin()
                .take(MESSAGE_BYTES_MAX)
                .read_to_string(&mut read)
                .context("cannot read standard input")?;
            read
        }
        text => text.to_owned(),
    };
    Ok(doctor::explain(&text).unwrap_or_else(|| {
        Finding::warn("message", "this message is not known", "look at the cluster: karpenter doctor")
    }))
}

async fn examine(arguments: &DoctorArguments) -> Result<Vec<Finding>> {
    let options = DoctorOptions {
        provider: arguments.provider.map(Into::into),
        account: arguments.service_account.clone(),
    };
    let client = connect::client(arguments.kubeconfig.as_deref()).await?;
    let facts = doctor::gather(&client, Clock::system(), &options).await;
    let mut findings = doctor::findings(&facts);
    findings.extend(of_cloud(arguments, &facts).await);
    Ok(findings)
}

#[cfg(feature = "aws")]
async fn of_cloud(arguments: &DoctorArguments, facts: &Facts) -> Vec<Finding> {
    use karpenter_api::labels::Provider;
    use karpenter_install::doctor::aws::{self, AwsOptions};

    if facts.provider != Some(Provider::Aws) || facts.server.is_err() {
        return Vec::new();
    }
    let setting = |variable: &str| {
        let mut controllers = facts.controllers.iter().flatten();
        controllers.find_map(|each| each.variables.get(variable).cloned()).unwrap_or_default()
    };
    let settings = karpenter_aws_sdk::Settings {
        region: arguments.region.clone().unwrap_or_else(|| setting("AWS_REGION")),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let connected = match karpenter_aws_sdk::connect(&settings).await {
        Ok(connected) => connected,
        Err(error) => {
            let fix = "set --region or AWS_REGION; credentials are taken from AWS_PROFILE, the environment or a role";
            return vec![Finding::fail("aws-credentials", format!("{error:#}"), fix)];
        }
    };
    let options = AwsOptions {
        region: connected.region.clone(),
        cluster_name: arguments.cluster_name.clone().unwrap_or_else(|| setting("CLUSTER_NAME")),
        queue: arguments.interruption_queue.clone().unwrap_or_else(|| setting("INTERRUPTION_QUEUE")),
    };
    let of =
        |observed: &doctor::facts::Observed<Vec<serde_json::Value>>| observed.clone().unwrap_or_default();
    let is_class = |class: &serde_json::Value| class["kind"] == "EC2NodeClass";
    let classes: Vec<serde_json::Value> = of(&facts.classes).into_iter().filter(is_class).collect();
    aws::findings(&aws::gather(&connected.apis, &options, &classes, &of(&facts.pools)).await)
}

#[cfg(not(feature = "aws"))]
async fn of_cloud(arguments: &DoctorArguments, facts: &Facts) -> Vec<Finding> {
    let _ = (&arguments.cluster_name, &arguments.interruption_queue, &arguments.region);
    match facts.provider {
        Some(karpenter_api::labels::Provider::Aws) => vec![Finding::warn(
            "aws-credentials",
            "not checked: this build does not include the feature aws",
            "use the controller's image, or build with --features aws",
        )],
        _ => Vec::new(),
    }
}

fn print(findings: &[Finding], format: ReportFormat) -> Result<()> {
    let mut out = io::stdout().lock();
    if format == ReportFormat::Json {
        let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
        let report = json!({
            "findings": findings,
            "summary": {"ok": count(Level::Ok), "warn": count(Level::Warn), "fail": count(Level::Fail)},
        });
        writeln!(out, "{report:#}")?;
        return Ok(());
    }
    let has_colour = out.is_terminal() && !diagnostics::no_colour();
    for finding in findings {
        let (word, colour) = match finding.level {
            Level::Ok => ("ok  ", AnsiColor::Green),
            Level::Warn => ("warn", AnsiColor::Yellow),
            Level::Fail => ("fail", AnsiColor::Red),
        };
        let style = if has_colour { Style::new().bold().fg_color(Some(colour.into())) } else { Style::new() };
        writeln!(out, "{style}{word}{style:#}  {:<20} {}", finding.check, one_line(&finding.message))?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "      {:<20} → {}", "", one_line(fix))?;
        }
    }
    out.flush()?;
    Ok(())
}
