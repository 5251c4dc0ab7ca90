//! `karpenter crds`: prints the CustomResourceDefinitions of this build.

use std::io::{self, Write};

use anyhow::Result;
use karpenter_api::crds::{self, Crd};

use crate::cli::CrdsArguments;
use crate::{Outcome, diagnostics};

pub(crate) fn run(arguments: &CrdsArguments) -> Result<Outcome> {
    let served = if arguments.legacy { crds::legacy() } else { crds::all() };
    let chosen: Vec<&Crd> = match &arguments.name {
        None => served.iter().collect(),
        Some(name) => served.iter().filter(|crd| is_named(crd, name)).collect(),
    };
    if chosen.is_empty() {
        let valid: Vec<&str> = served.iter().map(|crd| crd.kind).collect();
        let name = arguments.name.as_deref().unwrap_or_default();
        let is_legacy = !arguments.legacy && crds::legacy().iter().any(|crd| is_named(crd, name));
        diagnostics::print_error(&format!(
            "no CustomResourceDefinition named {name:?}; valid: {}{}",
            valid.join(", "),
            if is_legacy { ", or --legacy-api for the v1alpha5 API" } else { "" }
        ));
        return Ok(Outcome::InputRefused);
    }
    let mut stdout = io::stdout().lock();
    for crd in chosen {
        if !crd.yaml.starts_with("---") {
            stdout.write_all(b"---\n")?;
        }
        stdout.write_all(crd.yaml.as_bytes())?;
    }
    stdout.flush()?;
    Ok(Outcome::Done)
}

fn is_named(crd: &Crd, name: &str) -> bool {
    let plural = crd.name.split('.').next().unwrap_or(crd.name);
    [crd.name, crd.kind, plural].iter().any(|known| known.eq_ignore_ascii_case(name))
}
