//! Rules for disruption settings of a NodePool that contradict each other.

use karpenter_model::cron::CronSchedule;
use karpenter_model::duration::parse_go_duration;
use serde_json::Value;

use crate::finding::{Code, Report};
use crate::pool::Pool;
use crate::{Context, list, text};

/// The time at which the search starts, an arbitrary Monday; for a schedule that is always active, the start does not
/// matter.
const SEARCH_START: i64 = 1_704_067_200;
/// How many times of a schedule are compared at most: more than a year has hours, or a month minutes.
const HITS_MAX: usize = 50_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

pub(crate) fn check(context: &Context<'_>, report: &mut Report) {
    for pool in &context.pools {
        check_schedules(pool, report);
        if pool.value.pointer("/spec/replicas").is_none() {
            check_times(pool, report);
            check_budgets(pool, report);
        }
    }
}

fn policy<'a>(pool: &Pool<'a>) -> &'a str {
    match text(pool.value, "/spec/disruption/consolidationPolicy") {
        "" => "WhenEmptyOrUnderutilized",
        policy => policy,
    }
}

/// The value of a duration field in seconds; `None` for `Never`.
fn seconds(pool: &Pool<'_>, pointer: &str, default: &str) -> Option<i64> {
    let written = text(pool.value, pointer);
    let written = if written.is_empty() { default } else { written };
    parse_go_duration(written).ok().map(|nanos| nanos / NANOS_PER_SECOND)
}

fn consolidate_after(pool: &Pool<'_>) -> Option<i64> {
    seconds(pool, "/spec/disruption/consolidateAfter", "0s")
}

fn check_times(pool: &Pool<'_>, report: &mut Report) {
    let field = "spec.disruption.consolidateAfter";
    let expire_after = seconds(pool, "/spec/template/spec/expireAfter", "720h");
    match (consolidate_after(pool), expire_after) {
        (None, _) if policy(pool) != "WhenEmpty" => report.add(
            Code::ConsolidateAfterConflict,
            pool.subject(),
            field,
            format!("Never disables what consolidationPolicy {} enables", policy(pool)),
            "set a duration, or consolidationPolicy WhenEmpty to disable consolidation",
        ),
        (Some(after), Some(expire)) if after >= expire => report.add(
            Code::ConsolidateAfterConflict,
            pool.subject(),
            field,
            "is not shorter than expireAfter; nodes expire before they can be consolidated",
            "make it shorter than spec.template.spec.expireAfter",
        ),
        _ => {}
    }
}

/// Reports invalid schedules, because the CRD's pattern accepts minutes and months that are out of range. Static
/// NodePools are checked as well, as budgets apply to them.
fn check_schedules(pool: &Pool<'_>, report: &mut Report) {
    for (index, budget) in list(pool.value, "/spec/disruption/budgets").iter().enumerate() {
        let Some(schedule) = budget.get("schedule").and_then(Value::as_str) else { continue };
        if let Err(error) = schedule.parse::<CronSchedule>() {
            report.add(
                Code::BudgetUnreadable,
                pool.subject(),
                format!("spec.disruption.budgets[{index}].schedule"),
                format!(
                    "{error}; with an invalid schedule, no node of the NodePool is disrupted for any reason"
                ),
                "five cron fields in UTC, such as 0 9 * * 1-5, or a descriptor such as @daily",
            );
        }
    }
}

fn check_budgets(pool: &Pool<'_>, report: &mut Report) {
    let mut closed: Vec<&str> = Vec::new();
    let mut closes_all = None;
    for (index, budget) in list(pool.value, "/spec/disruption/budgets").iter().enumerate() {
        let schedule = text(budget, "/schedule");
        if let Ok(parsed) = schedule.parse::<CronSchedule>()
            && parsed.next_after(SEARCH_START).is_none()
        {
            report.add(
                Code::BudgetNeverApplies,
                pool.subject(),
                format!("spec.disruption.budgets[{index}].schedule"),
                format!("{schedule:?} matches no date; the budget has no effect"),
                "set a date that exists",
            );
            continue;
        }
        if !["0", "0%"].contains(&text(budget, "/nodes")) || !is_always_active(budget) {
            continue;
        }
        let reasons = list(budget, "/reasons");
        if reasons.is_empty() {
            closes_all.get_or_insert(index);
        }
        closed.extend(reasons.iter().filter_map(Value::as_str));
    }
    let is_on = consolidate_after(pool).is_some();
    let wanted: &[&str] = if policy(pool) == "WhenEmpty" { &["Empty"] } else { &["Empty", "Underutilized"] };
    if let Some(index) = closes_all {
        report.add(
            Code::BudgetNeverOpens,
            pool.subject(),
            format!("spec.disruption.budgets[{index}].nodes"),
            "is 0 at all times and for every reason: nodes are never consolidated and never replaced for drift",
            "set a schedule with a duration, reasons, or a number above 0",
        );
    } else if is_on && wanted.iter().all(|reason| closed.contains(reason)) {
        report.add(
            Code::BudgetNeverOpens,
            pool.subject(),
            "spec.disruption.budgets",
            format!(
                "never allow a disruption for {}, which the consolidation policy enables",
                wanted.join(" and ")
            ),
            "set a schedule with a duration, or consolidateAfter Never if that is intended",
        );
    }
}

/// Whether the budget has no schedule, or its active periods follow each other without a gap.
fn is_always_active(budget: &Value) -> bool {
    let Ok(schedule) = text(budget, "/schedule").parse::<CronSchedule>() else {
        return budget.get("schedule").is_none();
    };
    let Ok(nanos) = parse_go_duration(text(budget, "/duration")) else { return false };
    let duration = nanos / NANOS_PER_SECOND;
    let mut hit = schedule.next_after(SEARCH_START);
    for _ in 0..HITS_MAX {
        let Some(at) = hit else { return false };
        let Some(next) = schedule.next_after(at) else { return false };
        if next - at > duration {
            return false;
        }
        if next - SEARCH_START > 366 * 86_400 {
            break;
        }
        hit = Some(next);
    }
    true
}
