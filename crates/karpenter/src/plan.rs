//! placeholder until the assembly exists
use crate::Outcome;
use crate::cli::PlanArguments;
use anyhow::Result;
pub fn run(_: &PlanArguments) -> Result<Outcome> {
    Ok(Outcome::InputRefused)
}
