//! Prints the first lines of a table: the number of planned pods, and the price compared with the lower bound and with
//! compat mode.

use std::io::{self, Write};

use karpenter_model::problem::Mode;

use super::terminal::Terminal;
use super::view::{HOURS_PER_MONTH, View, counted};

pub(crate) fn write(view: &View<'_>, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
    let bold = terminal.bold();
    let plan = view.plan;
    let mut parts = vec![format!(
        "{} on {}",
        counted(view.placed_on_new(), "pod"),
        counted(plan.new_nodes.len() as u64, "new node")
    )];
    if view.placed_on_existing() > 0 {
        parts.push(format!(
            "{} on {}",
            grouped(view.placed_on_existing()),
            counted(plan.existing.len() as u64, "existing node")
        ));
    }
    if view.unplaced() > 0 {
        let verb = if view.unplaced() == 1 { "does not fit" } else { "do not fit" };
        parts.push(format!("{} {verb}", grouped(view.unplaced())));
    }
    writeln!(out, "{bold}{}{bold:#}", parts.join(", "))?;
    let price = plan.price_per_hour;
    writeln!(out, "cost         {}/h  {}/month", dollars(price), dollars_rounded(price * HOURS_PER_MONTH))?;
    if view.has_attachments() {
        let instances = dollars(view.instance_price());
        writeln!(out, "instances    {instances}/h  the rest is for volumes and public addresses")?;
    }
    if plan.lower_bound_per_hour > 0.0 {
        let verdict = match view.lower_bound_gap_percent().unwrap_or(0.0) {
            gap if gap < 1e-4 => "nothing can be cheaper".to_owned(),
            gap if gap < 0.05 => "the plan is less than 0.1% above the cheapest possible".to_owned(),
            gap => format!("the plan is at most {gap:.1}% above the cheapest possible"),
        };
        writeln!(out, "lower bound  {}/h  {verdict}", dollars(plan.lower_bound_per_hour))?;
    }
    if plan.compat_price_per_hour > 0.0 && view.problem.options.mode == Mode::Cost {
        let saved = (1.0 - price / plan.compat_price_per_hour) * 100.0;
        let text = if saved >= 0.05 {
            format!("{saved:.1}% saved")
        } else if saved <= -0.05 {
            format!("{:.1}% more expensive", -saved)
        } else {
            "the same".to_owned()
        };
        writeln!(out, "compat mode  {}/h  {text}", dollars(plan.compat_price_per_hour))?;
    }
    Ok(())
}

fn grouped(number: u64) -> String {
    super::view::grouped_digits(number)
}

/// Formats an amount in dollars, with four decimals for small amounts and two for large ones.
pub(crate) fn dollars(amount: f64) -> String {
    if amount < 10.0 { format!("${amount:.4}") } else { format!("${}", with_thousands(amount, 2)) }
}

pub(crate) fn dollars_rounded(amount: f64) -> String {
    if amount < 1000.0 { format!("${amount:.2}") } else { format!("${}", with_thousands(amount, 0)) }
}

fn with_thousands(amount: f64, decimals: usize) -> String {
    let text = format!("{amount:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map(grouped).unwrap_or_else(|_| whole.to_owned());
    if fraction.is_empty() { whole } else { format!("{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_have_four_decimals() {
        assert_eq!(dollars(0.0416), "$0.0416");
        assert_eq!(dollars(1234.5), "$1,234.50");
        assert_eq!(dollars_rounded(30.368), "$30.37");
        assert_eq!(dollars_rounded(901_185.4), "$901,185");
    }
}
