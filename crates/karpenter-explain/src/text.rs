//! Renders documents as text for a terminal of 100 columns: the object with its state, the reasons, the fixes as
//! commands to paste, and the simulated result. Colour never carries information of its own.

use std::fmt::Write as _;

use karpenter_view::{
    BudgetView, Chain, Decision, Fix, Launch, Meta, NodeClaimDocument, NodeDocument, NodePoolDocument,
    NodeSummary, Outcome, PodDocument, Reason, Resolution, ResolutionKind, Scope,
};

use crate::format::{clock, counted, dollars, dollars_per_month};

const WIDTH: usize = 100;
const GAP: &str = "  ";

/// The text of a pod's document.
pub fn pod(document: &PodDocument) -> String {
    let others = match document.replicas {
        0 | 1 => String::new(),
        count => format!(" and {}", counted(count - 1, "replica")),
    };
    let pod = &document.pod;
    let name = format!("{}/{}{others}", pod.namespace.as_deref().unwrap_or("default"), pod.name);
    let mut text = headline(&name, &document.summary, &document.resolution);
    if !document.scopes.is_empty() {
        text.push('\n');
        write_scopes(&document.scopes, &mut text);
    }
    if document.chain.blockers.is_empty() {
        // If no blocker can be removed in a simulation, the text of the first reason's fix is shown.
        let reasons = document.scopes.iter().flat_map(|scope| &scope.reasons);
        write_fixes(reasons.filter_map(|reason| reason.fix.as_ref()).take(1), &mut text);
    }
    write_chain(&document.chain, &mut text);
    if let Some(remaining) = &document.chain.remaining {
        let result = format!("still pending without these blockers: {} (simulated)", remaining.message);
        labelled(&mut text, "Result", &result);
    }
    if let Some(plan) = &document.plan {
        section(&mut text, "Plan", &outcome(plan));
    }
    if let Some(claim) = &document.node_claim {
        text.push('\n');
        write_phases(claim, &mut text);
    }
    footer(&document.meta, &mut text);
    text
}

/// The text of a node's document.
pub fn node(document: &NodeDocument) -> String {
    let mut text = headline(&document.node.name, &document.summary, &document.resolution);
    let _ = writeln!(text, "{}", node_facts(&document.facts, document.meta.at.as_deref()));
    let is_one_verdict = document.chain.blockers.is_empty();
    if is_one_verdict && document.rejected.is_none() && document.command.is_none() {
        section(&mut text, "Verdict", &document.verdict.message);
    }
    if let Some(command) = &document.command {
        let others = command.candidates.len().saturating_sub(1);
        let with = match others {
            0 => String::new(),
            count => format!(" (with {})", counted(count as u64, "other node")),
        };
        section(&mut text, "Command", &format!("{}{with}: {}", command.reason, outcome(&command.outcome)));
    }
    if let Some(rejected) = &document.rejected {
        section(&mut text, "Best", &outcome(rejected));
    }
    write_budgets(&document.budgets, &document.facts, &mut text);
    if !document.chain.blockers.is_empty() {
        text.push_str("\nBLOCKERS (each appears when the previous one is removed)\n");
        let width = document.chain.blockers.iter().map(|one| one.code.chars().count()).max().unwrap_or(0);
        for (number, blocker) in document.chain.blockers.iter().enumerate() {
            let _ = writeln!(text, "{}  {:width$}  {}", number + 1, blocker.code, blocker.message);
        }
    }
    write_chain(&document.chain, &mut text);
    if let Some(remaining) = &document.chain.remaining {
        let result = format!("no saving without these blockers: {} (simulated)", remaining.message);
        labelled(&mut text, "Result", &result);
    }
    footer(&document.meta, &mut text);
    text
}

/// The text of a NodeClaim's document.
pub fn node_claim(document: &NodeClaimDocument) -> String {
    let mut text = headline(&document.name, &document.summary, &document.resolution);
    let nominated = (document.nominated_pods > 0)
        .then(|| format!("{} nominated", counted(document.nominated_pods, "pod")));
    let price = document.price_per_hour.map(dollars);
    let parts = [&document.node_pool, &document.instance_type, &document.capacity_type, &document.zone];
    let parts = parts.into_iter().flatten().cloned().chain(price).chain(nominated);
    let _ = writeln!(text, "{}", parts.collect::<Vec<_>>().join(" · "));
    text.push('\n');
    write_phases(document, &mut text);
    if document.others.all > 0 {
        let _ = writeln!(
            text,
            "Other NodeClaims of the NodePool: {} of {} registered",
            document.others.registered, document.others.all
        );
    }
    if let Some(fix) = &document.fix {
        write_fixes(std::slice::from_ref(fix).iter(), &mut text);
    }
    footer(&document.meta, &mut text);
    text
}

/// The text of a NodePool's document.
pub fn node_pool(document: &NodePoolDocument) -> String {
    let mut text = headline(&document.name, &document.summary, &document.resolution);
    write_fixes(document.reasons.iter().filter_map(|reason| reason.fix.as_ref()), &mut text);
    if document.affected_pods > 0 {
        let first = document.affected_pod.as_deref().unwrap_or_default();
        let what = match document.affected_pods {
            1 => format!("1 pending pod: {first}"),
            count => format!("{count} pending pods, for example {first}"),
        };
        section(&mut text, "Affects", &what);
    }
    if !document.blockers.is_empty() {
        let rows = document
            .blockers
            .iter()
            .map(|one| vec![one.reason.code.clone(), one.nodes.to_string(), one.reason.message.clone()]);
        text.push('\n');
        table(&["BLOCKER", "NODES", "REASON"], rows.collect(), &mut text);
    }
    if !document.limits.is_empty() {
        let rows =
            document.limits.iter().map(|one| vec![one.resource.clone(), one.used.clone(), one.limit.clone()]);
        text.push('\n');
        table(&["LIMIT", "USED", "MAXIMUM"], rows.collect(), &mut text);
    }
    let _ = writeln!(
        text,
        "\nInstance types: {} allowed of {}",
        document.instance_types_allowed, document.instance_types
    );
    footer(&document.meta, &mut text);
    text
}

fn headline(name: &str, summary: &str, resolution: &Resolution) -> String {
    let state = match resolution.is {
        ResolutionKind::Ok => "OK",
        ResolutionKind::InProgress => "IN PROGRESS",
        ResolutionKind::Blocked => "BLOCKED",
    };
    let left = format!("{name}: {summary}");
    let used = left.chars().count() + state.len();
    let padding = WIDTH.saturating_sub(used).max(GAP.len());
    format!("{left}{:padding$}{state}\n", "")
}

fn write_scopes(scopes: &[Scope], text: &mut String) {
    let rows = scopes.iter().map(|scope| {
        let name = match (&scope.node_pool, scope.existing_nodes) {
            (Some(pool), _) => pool.clone(),
            (None, Some(count)) => counted(count, "node"),
            (None, None) => "pod".to_owned(),
        };
        let reasons: Vec<&str> = scope.reasons.iter().map(|reason| reason.message.as_str()).collect();
        let closest = if scope.closest { " (closest)" } else { "" };
        vec![name, format!("{}{closest}", reasons.join("; "))]
    });
    table(&["NODEPOOL", "REASON"], rows.collect(), text);
}

/// A table with aligned columns. Text in the last column is wrapped.
fn table(header: &[&str], rows: Vec<Vec<String>>, text: &mut String) {
    let last = header.len() - 1;
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..last).map(width).collect();
    let indent: usize = widths.iter().map(|width| width + GAP.len()).sum();
    let head: Vec<String> = header.iter().map(|one| (*one).to_owned()).collect();
    for row in std::iter::once(&head).chain(&rows) {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{cell:width$}{GAP}");
        }
        for (number, line) in wrapped(&row[last], WIDTH.saturating_sub(indent).max(20)).iter().enumerate() {
            if number > 0 {
                let _ = write!(text, "{:indent$}", "");
            }
            let _ = writeln!(text, "{line}");
        }
    }
}

/// Breaks text at spaces. A word that is longer than the width is not broken.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// A block of text with a label in the first 8 columns.
fn section(text: &mut String, label: &str, content: &str) {
    text.push('\n');
    labelled(text, label, content);
}

fn labelled(text: &mut String, label: &str, content: &str) {
    for (number, line) in wrapped(content, WIDTH - 9).iter().enumerate() {
        let label = if number == 0 { label } else { "" };
        let _ = writeln!(text, "{label:8} {line}");
    }
}

fn write_chain(chain: &Chain, text: &mut String) {
    write_fixes(chain.blockers.iter().filter_map(|blocker: &Reason| blocker.fix.as_ref()), text);
    if let Some(result) = &chain.result {
        labelled(text, "Result", &format!("{} (simulated)", outcome(result)));
    }
}

fn write_fixes<'a>(fixes: impl Iterator<Item = &'a Fix>, text: &mut String) {
    let fixes: Vec<&Fix> = fixes.collect();
    for (number, fix) in fixes.iter().enumerate() {
        let label = if number == 0 { "Fix" } else { "" };
        let count = if fixes.len() > 1 { format!("{}. ", number + 1) } else { String::new() };
        if number == 0 {
            text.push('\n');
        }
        labelled(text, label, &format!("{count}{}", fix.text));
        if let Some(command) = command(fix) {
            let _ = writeln!(text, "{:8}   {command}", "");
        }
    }
}

/// The command that applies the patch.
fn command(fix: &Fix) -> Option<String> {
    let (object, patch, kind) = (fix.object.as_ref()?, fix.patch.as_ref()?, fix.patch_type?);
    let namespace = object.namespace.as_ref().map(|name| format!(" -n {name}")).unwrap_or_default();
    // In a single-quoted argument of a shell, a quote ends the argument, so it is escaped.
    let patch = patch.to_string().replace('\'', r"'\''");
    let (resource, name) = (object.kind.to_lowercase(), &object.name);
    Some(format!("kubectl patch {resource} {name}{namespace} --type {} -p '{patch}'", kind.as_str()))
}

/// A simulated result as one sentence.
fn outcome(outcome: &Outcome) -> String {
    let saving = match outcome.saving_per_hour {
        saving if saving > 0.0 => format!(", saves {} ({})", dollars(saving), dollars_per_month(saving)),
        saving if saving < 0.0 => format!(", costs {} more", dollars(-saving)),
        _ => String::new(),
    };
    let pods = counted(outcome.pods, "pod");
    let launched = launches(&outcome.launches);
    match outcome.decision {
        Decision::Delete => format!("deleted{saving}, {pods} rescheduled"),
        Decision::Replace => format!("replaced by {launched}{saving}, {pods} rescheduled"),
        Decision::Place => {
            let existing = match outcome.existing_nodes.as_slice() {
                [] => None,
                [only] => Some(format!("uses node {only}")),
                several => Some(format!("uses {}", counted(several.len() as u64, "existing node"))),
            };
            let new = (!outcome.launches.is_empty()).then(|| format!("launches {launched}"));
            let parts: Vec<String> = new.into_iter().chain(existing).collect();
            format!("{} for {pods}", parts.join(" and "))
        }
    }
}

fn launches(launches: &[Launch]) -> String {
    let parts = launches.iter().map(|launch| {
        let count = if launch.count == 1 { String::new() } else { format!("{} × ", launch.count) };
        let zone = launch.zone.as_ref().map(|zone| format!(" in {zone}")).unwrap_or_default();
        let kind = launch.capacity_type.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
        format!("{count}{}{zone}{kind}, {}", launch.instance_type, dollars(launch.price_per_hour))
    });
    parts.collect::<Vec<_>>().join(" and ")
}

fn node_facts(facts: &NodeSummary, at: Option<&str>) -> String {
    let mut parts: Vec<String> = [&facts.node_pool, &facts.instance_type, &facts.capacity_type, &facts.zone]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    parts.push(facts.price_per_hour.map_or_else(|| "price unknown".to_owned(), dollars));
    parts.extend(facts.cpu_percent.map(|percent| format!("cpu {percent} %")));
    parts.extend(facts.memory_percent.map(|percent| format!("memory {percent} %")));
    parts.push(counted(facts.pods, "pod"));
    parts.extend(age(facts.created.as_deref(), at));
    parts.join(" · ")
}

fn age(created: Option<&str>, at: Option<&str>) -> Option<String> {
    let (created, at): (jiff::Timestamp, jiff::Timestamp) = (created?.parse().ok()?, at?.parse().ok()?);
    Some(crate::format::duration(at.as_second() - created.as_second()))
}

fn write_phases(claim: &NodeClaimDocument, text: &mut String) {
    let phases = claim.phases.iter().map(|phase| {
        let at = phase.at.as_deref().map_or("–", clock);
        format!("{} {at}", phase.name)
    });
    let _ = writeln!(text, "{}", phases.collect::<Vec<_>>().join("   "));
    if let Some(typical) = claim.typical {
        let _ = writeln!(text, "Usual time to registration: p50 {} s, p90 {} s", typical.p50, typical.p90);
    }
    if let Some(at) = &claim.timeout_at {
        let _ = writeln!(text, "Registration timeout at {}", clock(at));
    }
    if let Some(message) = &claim.message {
        let _ = writeln!(text, "{message}");
    }
}

fn write_budgets(budgets: &[BudgetView], facts: &NodeSummary, text: &mut String) {
    if budgets.is_empty() {
        return;
    }
    let pool = facts.node_pool.as_deref().unwrap_or("the NodePool");
    let rows = budgets.iter().map(|one| {
        let allowed = one.allowed.map_or_else(|| "not active".to_owned(), |allowed| allowed.to_string());
        let next = one.next_change.clone().unwrap_or_else(|| "–".to_owned());
        vec![one.entry.clone(), allowed, next]
    });
    text.push('\n');
    table(&[&format!("BUDGETS of {pool}"), "ALLOWED", "NEXT CHANGE"], rows.collect(), text);
}

fn footer(meta: &Meta, text: &mut String) {
    for note in &meta.notes {
        let _ = write!(text, "\nnote: {note}");
    }
    if !meta.notes.is_empty() {
        text.push('\n');
    }
    let at = meta.at.as_deref().map(|at| format!("{at}, ")).unwrap_or_default();
    let revision = if meta.revision > 0 { format!("revision {}, ", meta.revision) } else { String::new() };
    let _ = writeln!(text, "\n{at}{revision}{}", meta.source.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("abcdef g", 3), ["abcdef", "g"]);
        assert_eq!(wrapped("", 3), [""]);
    }

    #[test]
    fn state_is_at_the_right_edge() {
        let line = headline("ns/a", "pending", &Resolution::blocked());
        assert_eq!(line.trim_end().chars().count(), WIDTH);
        assert!(line.ends_with("BLOCKED\n"));
        let long = headline(&"x".repeat(120), "pending", &Resolution::ok());
        assert!(long.ends_with("pending  OK\n"), "{long}");
    }

    #[test]
    fn quotes_in_patches_are_escaped_for_the_shell() {
        let fix = Fix {
            text: String::new(),
            object: Some(karpenter_view::ObjectRef::cluster_scoped("NodePool", "a")),
            patch: Some(serde_json::json!({"k": "it's"})),
            patch_type: Some(karpenter_view::PatchType::Merge),
        };
        let expected = r#"kubectl patch nodepool a --type merge -p '{"k":"it'\''s"}'"#;
        assert_eq!(command(&fix).as_deref(), Some(expected));
    }
}
