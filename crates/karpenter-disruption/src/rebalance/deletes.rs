//! Nodes that can go without anything launched: their pods fit into room that others have.

use karpenter_model::problem::Mode;
use rayon::prelude::*;

use super::draft::{Draft, Found, Move};

/// Nodes tried together at first.
const BATCH_START: usize = 16;

/// Commits every deletion that fits, in the given order, each as a move of its own.
pub(crate) fn run(draft: &mut Draft<'_>, order: &[usize], moves: &mut Vec<Move>) {
    let mut rest: Vec<usize> = order.to_vec();
    let mut batch = BATCH_START;
    loop {
        rest.retain(|candidate| draft.is_open[*candidate]);
        let onto = draft.receivers();
        if batch == 1 {
            // Most do not fit any more: find those that do, and go on with them.
            let fits: Vec<bool> =
                rest.par_iter().map(|candidate| delete(draft, &[*candidate], &onto).is_some()).collect();
            rest = rest
                .into_iter()
                .zip(fits)
                .filter(|(_, fits)| *fits)
                .map(|(candidate, _)| candidate)
                .collect();
        }
        if rest.is_empty() {
            return;
        }
        // The longest beginning of the list that fits together, found by growing and halving.
        let mut fitting: Option<Found> = None;
        let mut length = 0;
        let mut step = batch.min(rest.len());
        while step > 0 && length < rest.len() {
            let end = (length + step).min(rest.len());
            let mut sources = rest[..end].to_vec();
            sources.sort_unstable();
            match delete(draft, &sources, &onto) {
                Some(found) => {
                    fitting = Some(found);
                    length = end;
                    step *= 2;
                }
                None => step /= 2,
            }
        }
        if let Some(found) = &fitting {
            draft.commit(found);
            moves.extend(split(draft, &found.one));
        }
        // The next one does not fit with them.
        rest.drain(..(length + 1).min(rest.len()));
        batch = (length / 2).max(1);
    }
}

fn delete(draft: &Draft<'_>, sources: &[usize], onto: &[usize]) -> Option<Found> {
    draft.ask(sources, onto, Mode::Compat, 0).filter(|found| found.one.replacements.is_empty())
}

/// One move per node.
fn split(draft: &Draft<'_>, found: &Move) -> Vec<Move> {
    let of = |source: &usize| {
        let node = draft.node_of[*source] as u32;
        let candidate = &draft.candidates[*source];
        Move {
            sources: vec![*source],
            replacements: Vec::new(),
            moves: found.moves.iter().filter(|(from, _)| from.node == node).copied().collect(),
            price_before_per_hour: candidate.price_per_hour,
            price_after_per_hour: 0.0,
            trouble: candidate.reschedule_cost,
        }
    };
    found.sources.iter().map(of).collect()
}
