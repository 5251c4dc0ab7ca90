//! Assembles the input of explanations from the objects of a dump or of manifests.
//!
//! The problem is that of `karpenter plan`, the cluster that of `karpenter plan --consolidate`. The input of an
//! explanation has further facts: owners, conditions, the texts of budgets, and NodePools that launch no nodes.

mod facts;
mod workloads;

use std::collections::BTreeSet;

use jiff::Timestamp;
use karpenter_disruption::settings::Settings;
use karpenter_explain::input::{Excluded, ExcludedPool, ExplainInput};
use karpenter_model::problem::{Options, ReservedMode};
use karpenter_view::Source;

use crate::assemble::{CatalogChoice, assemble, usage_by_pool};
use crate::convert::node::convert_nodes;
use crate::convert::pool::{PoolLeftOut, convert_pool, left_out};
use crate::disruption::assemble_disruption;
use crate::dump::{captured_at, read_dump};
use crate::intern::Interner;
use crate::notes::Note;
use crate::objects::Objects;
use crate::workloads::name_of;

/// Settings of the plan that an explanation is based on.
#[derive(Debug, Clone, Default)]
pub struct ExplainSettings {
    /// Where the objects are from.
    pub source: Source,
    /// The time of the dump; by default the newest time in it.
    pub now: Option<Timestamp>,
    pub options: Options,
    pub settings: Settings,
}

/// Assembles the input of explanations.
pub fn explain_input(objects: Objects, catalog: &CatalogChoice, settings: &ExplainSettings) -> ExplainInput {
    let now = settings.now.or_else(|| captured_at(&objects));
    let (mut problem, mut notes) = assemble(&objects, catalog);
    // An explanation is computed once: there is no later pass in which a reservation could have capacity again.
    problem.options = Options { reserved_mode: ReservedMode::Exhaust, ..settings.options.clone() };
    let mut interner = Interner::default();
    let drafts = convert_nodes(&objects.nodes, &objects.node_claims, &objects.csi_nodes, &mut interner);
    let usage = usage_by_pool(&drafts);
    let mut facts = facts::of(&objects);
    let dump = read_dump(objects, catalog, now.unwrap_or(Timestamp::UNIX_EPOCH));
    let assembled = assemble_disruption(&dump.live, &dump.input);
    let mut cluster = assembled.cluster;
    cluster.problem.options = Options { reserved_mode: ReservedMode::Fallback, ..settings.options.clone() };
    facts::add_cluster_facts(&mut facts, &cluster, now);
    for input in &dump.input.other_pools {
        let why = match left_out(&input.pool) {
            Some(PoolLeftOut::Static) => Excluded::Static,
            Some(PoolLeftOut::Deleting) => Excluded::Deleting,
            Some(PoolLeftOut::NotReady) | None => Excluded::NotReady,
        };
        let usage = usage.get(name_of(&input.pool.metadata)).cloned().unwrap_or_default();
        facts.excluded_pools.push(ExcludedPool {
            pool: convert_pool(&input.pool, 0, usage, &mut interner),
            instance_types: input.instance_types.clone(),
            why,
        });
    }
    notes.extend(dump.notes);
    ExplainInput {
        source: settings.source,
        now_secs: now.map(Timestamp::as_second),
        notes: texts(&notes),
        problem,
        cluster,
        settings: settings.settings.clone(),
        facts,
    }
}

/// The texts of the notes, without those notes that the reasons of NodePools repeat.
fn texts(notes: &[Note]) -> Vec<String> {
    let is_said = |note: &&Note| {
        !matches!(
            note,
            Note::PoolLeftOut { .. }
                | Note::PoolLaunchesNothing { .. }
                | Note::NoNodePools
                | Note::NominatedPods { .. }
        )
    };
    let texts: BTreeSet<String> = notes.iter().filter(is_said).map(ToString::to_string).collect();
    texts.into_iter().collect()
}
