//! Runs the conformance scripts against a Kubernetes API server: records its responses, or compares them with the
//! recorded ones. The server should be new and should run no controllers (`e2e/up --only-api-server`).

#[path = "../tests/conformance/runner/runner.rs"]
mod runner;

use std::process::ExitCode;
use std::time::Duration;

use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use runner::{Error, compare, run, script, transcript};

const USAGE: &str = "\
Usage: conformance (--record | --check) (--kubeconfig FILE | --server URL --token TOKEN)
                   [--etcd URL] [--only SCRIPT] [--report FILE]

  --record       record the responses of the server
  --check        compare the responses of the server with the recorded ones
  --etcd URL     the etcd of the server; it is compacted to remove the history
  --only SCRIPT  run one script
  --report FILE  also write the differences to FILE
  --list         list the steps without sending requests
";

/// How long the caches of kube-apiserver may be behind its writes, unless the machine is overloaded.
const CACHE_LAG_MAX: Duration = Duration::from_millis(700);

#[derive(Default)]
struct Arguments {
    record: bool,
    check: bool,
    list: bool,
    kubeconfig: Option<String>,
    server: Option<String>,
    token: Option<String>,
    etcd: Option<String>,
    only: Option<String>,
    report: Option<String>,
}

fn arguments() -> Result<Arguments, Error> {
    let mut parsed = Arguments::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--record" => parsed.record = true,
            "--check" => parsed.check = true,
            "--list" => parsed.list = true,
            "--kubeconfig" => parsed.kubeconfig = Some(value()?),
            "--server" => parsed.server = Some(value()?),
            "--token" => parsed.token = Some(value()?),
            "--etcd" => parsed.etcd = Some(value()?),
            "--only" => parsed.only = Some(value()?),
            "--report" => parsed.report = Some(value()?),
            _ => return Err(format!("unknown argument {argument}\n{USAGE}").into()),
        }
    }
    if !parsed.list && parsed.record == parsed.check {
        return Err(USAGE.into());
    }
    Ok(parsed)
}

async fn client(arguments: &Arguments) -> Result<kube::Client, Error> {
    let mut config = match (&arguments.kubeconfig, &arguments.server) {
        (Some(file), _) => {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default())
                .await?
        }
        (None, Some(server)) => {
            let mut config = Config::new(server.parse()?);
            // If only address and token are given, there is no certificate authority to verify the server with.
            config.accept_invalid_certs = true;
            let token = arguments.token.clone().ok_or("--server needs --token")?;
            config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
            config
        }
        (None, None) => return Err(USAGE.into()),
    };
    // A proxy from the environment must not be used for loopback addresses.
    config.proxy_url = None;
    // Error responses are recorded as well, so the client must not retry them.
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

#[tokio::main]
async fn main() -> ExitCode {
    match compare_or_record().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

async fn compare_or_record() -> Result<bool, Error> {
    let arguments = arguments()?;
    let mut scripts = script::load_all()?;
    scripts.retain(|script| arguments.only.as_ref().is_none_or(|only| *only == script.name));
    if arguments.list {
        for script in &scripts {
            for step in &script.steps {
                println!("{} / {}: {}", script.name, step.name, step.action());
            }
        }
        return Ok(true);
    }
    let etcd = match &arguments.etcd {
        Some(url) => {
            let mut config = Config::new(url.parse()?);
            config.proxy_url = None;
            Some(kube::Client::try_from(config)?)
        }
        None => None,
    };
    let target = run::Target { client: client(&arguments).await?, cache_lag: CACHE_LAG_MAX, etcd };
    let mut all = Vec::new();
    let mut count = 0;
    for script in &scripts {
        let answered = run::run(script, &target).await?;
        count += answered.steps.len();
        eprintln!("{}: {} steps against {}", script.name, answered.steps.len(), answered.server);
        if arguments.record {
            transcript::save(&script.name, &answered)?;
        } else {
            all.extend(compare::differences(script, &transcript::load(&script.name)?, &answered)?);
        }
    }
    if arguments.record {
        eprintln!("{count} steps recorded");
        return Ok(true);
    }
    // The list of known differences applies to the embedded server; kube-apiserver must match the recordings exactly.
    let all: Vec<&compare::Difference> = all.iter().collect();
    let report = compare::report(&all);
    if let Some(file) = &arguments.report {
        std::fs::write(file, &report)?;
    }
    println!("{report}");
    eprintln!("{count} steps, {} differences", all.len());
    Ok(all.is_empty())
}
