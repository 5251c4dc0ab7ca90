//! Annotations of a NodePool for consolidation and hostname spreads beyond upstream's API.
//!
//! An invalid value is reported and the default is used. If the default could disrupt more nodes than any valid value
//! of the annotation, the safe value is used instead: no moves, no many-to-many consolidation, a dry run. With an
//! invalid minimum saving or cool-down, no pods are moved.

#[cfg(test)]
mod tests;

use std::fmt;

use karpenter_api::error::one_line;
use karpenter_api::labels::{
    ANNOTATION_CONSOLIDATION_BALANCED_K, ANNOTATION_CONSOLIDATION_COOL_DOWN,
    ANNOTATION_CONSOLIDATION_DRY_RUN, ANNOTATION_CONSOLIDATION_M_TO_N, ANNOTATION_CONSOLIDATION_MANY_TO_MANY,
    ANNOTATION_CONSOLIDATION_MAX_MOVES_PER_HOUR, ANNOTATION_CONSOLIDATION_MIN_SAVING_PER_HOUR,
    ANNOTATION_CONSOLIDATION_MIN_SAVING_PERCENT, ANNOTATION_CONSOLIDATION_SAVING_RATIO,
    ANNOTATION_HOSTNAME_SPREAD_SHARE,
};
use karpenter_api::types::NodePool;
use karpenter_disruption::cluster::PoolPolicy;
use karpenter_model::duration::parse_go_duration;
use karpenter_model::spread_share::SpreadShare;

use crate::workloads::name_of;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// This text has the wording of the verdict for the node, which states the number of moves.
const EFFECT_NO_MOVES: &str = "until it is corrected, consolidation moves no pods (0 moves per hour)";
const PREFIX: &str = "karpenter.sh/consolidation-";
const KNOWN_ANNOTATIONS: [&str; 9] = [
    ANNOTATION_CONSOLIDATION_SAVING_RATIO,
    ANNOTATION_CONSOLIDATION_MIN_SAVING_PERCENT,
    ANNOTATION_CONSOLIDATION_MIN_SAVING_PER_HOUR,
    ANNOTATION_CONSOLIDATION_COOL_DOWN,
    ANNOTATION_CONSOLIDATION_BALANCED_K,
    ANNOTATION_CONSOLIDATION_MAX_MOVES_PER_HOUR,
    ANNOTATION_CONSOLIDATION_MANY_TO_MANY,
    ANNOTATION_CONSOLIDATION_M_TO_N,
    ANNOTATION_CONSOLIDATION_DRY_RUN,
];

/// An annotation of a NodePool with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlError {
    pub pool: String,
    pub annotation: String,
    pub value: String,
    /// The valid values.
    pub valid: &'static str,
    /// The behaviour of the controller until the value is corrected.
    pub effect: &'static str,
}

impl ControlError {
    /// The reason of the Kubernetes event.
    pub fn event_reason(&self) -> &'static str {
        if self.annotation == ANNOTATION_HOSTNAME_SPREAD_SHARE {
            "InvalidHostnameSpreadShare"
        } else {
            "InvalidConsolidationAnnotation"
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, annotation, value, valid, effect } = self;
        let (annotation, value) = (one_line(annotation), one_line(value));
        write!(f, "nodepool {pool}: annotation {annotation}: {value:?} is invalid; valid: {valid}; {effect}")
    }
}

/// The NodePool's annotated share: how many of the pods of a hard hostname spread one node may hold. The error is set
/// if the annotation is invalid.
pub fn spread_share(pool: &NodePool) -> (Option<SpreadShare>, Option<ControlError>) {
    let mut reader = Reader { pool, errors: Vec::new() };
    let share = reader.read(
        ANNOTATION_HOSTNAME_SPREAD_SHARE,
        |text| text.parse().ok(),
        SpreadShare::VALID,
        "the value of --hostname-spread-share is used",
    );
    (share.flatten(), reader.errors.pop())
}

/// The controls of a NodePool from its annotations, and their errors.
pub fn controls(pool: &NodePool) -> (PoolPolicy, Vec<ControlError>) {
    let mut reader = Reader { pool, errors: Vec::new() };
    let defaults = PoolPolicy::default();
    let min_saving_percent = reader.read(
        ANNOTATION_CONSOLIDATION_MIN_SAVING_PERCENT,
        |text| number(text).filter(|percent| (0.0..=100.0).contains(percent)),
        "a number from 0 to 100, such as 5",
        EFFECT_NO_MOVES,
    );
    let saving_ratio = reader.read(
        ANNOTATION_CONSOLIDATION_SAVING_RATIO,
        |text| number(text).filter(|ratio| *ratio >= 0.0),
        "a number from 0, such as 0.05",
        EFFECT_NO_MOVES,
    );
    let min_saving_per_hour = reader.read(
        ANNOTATION_CONSOLIDATION_MIN_SAVING_PER_HOUR,
        |text| number(text).filter(|dollars| *dollars >= 0.0),
        "dollars per hour, such as 0.05",
        EFFECT_NO_MOVES,
    );
    let cool_down_secs = reader.read(
        ANNOTATION_CONSOLIDATION_COOL_DOWN,
        |text| parse_go_duration(text).ok().filter(|nanos| *nanos >= 0).map(seconds_up),
        "a duration such as 30m or 2h",
        EFFECT_NO_MOVES,
    );
    let has_unreadable_minimum = [min_saving_percent, min_saving_per_hour, saving_ratio]
        .contains(&Some(None))
        || cool_down_secs == Some(None);
    let max_moves_per_hour = reader.read(
        ANNOTATION_CONSOLIDATION_MAX_MOVES_PER_HOUR,
        |text| text.parse::<u32>().ok(),
        "a whole number, such as 100",
        "consolidation moves no pods",
    );
    let controls = PoolPolicy {
        saving_ratio: saving_ratio.flatten(),
        min_saving_ratio: min_saving_percent
            .flatten()
            .map_or(defaults.min_saving_ratio, |percent| percent / 100.0),
        min_saving_per_hour: min_saving_per_hour.flatten().unwrap_or(defaults.min_saving_per_hour),
        cool_down_secs: cool_down_secs.flatten().unwrap_or(defaults.cool_down_secs),
        balanced_k: reader
            .read(
                ANNOTATION_CONSOLIDATION_BALANCED_K,
                |text| number(text).filter(|k| *k > 0.0),
                "a number above 0, such as 2",
                "2 is used",
            )
            .flatten()
            .unwrap_or(defaults.balanced_k),
        max_moves_per_hour: if has_unreadable_minimum {
            Some(0)
        } else {
            max_moves_per_hour.map_or(defaults.max_moves_per_hour, |count| Some(count.unwrap_or(0)))
        },
        moved_last_hour: 0,
        is_many_to_many_enabled: reader.many_to_many().unwrap_or(defaults.is_many_to_many_enabled),
        is_dry_run: reader
            .read(
                ANNOTATION_CONSOLIDATION_DRY_RUN,
                |text| one_of(text, "true", "false"),
                "\"true\" or \"false\"",
                "it counts as true",
            )
            .map_or(defaults.is_dry_run, |dry| dry.unwrap_or(true)),
    };
    reader.find_unknown();
    reader.errors.extend(spread_share(pool).1);
    (controls, reader.errors)
}

struct Reader<'a> {
    pool: &'a NodePool,
    errors: Vec<ControlError>,
}

impl Reader<'_> {
    /// The value of an annotation. `None`: there is no annotation. `Some(None)`: the value is invalid.
    fn read<T>(
        &mut self,
        annotation: &str,
        parse: impl Fn(&str) -> Option<T>,
        valid: &'static str,
        effect: &'static str,
    ) -> Option<Option<T>> {
        let value = self.pool.metadata.annotations.as_ref()?.get(annotation)?;
        let parsed = parse(value);
        if parsed.is_none() {
            self.push(annotation, value, valid, effect);
        }
        Some(parsed)
    }

    /// Many-to-many consolidation has two annotations. If they contradict each other, it is disabled and an error is
    /// reported.
    fn many_to_many(&mut self) -> Option<bool> {
        let mut read = |annotation: &str| {
            let parse = |text: &str| one_of(text, "enabled", "disabled");
            let said = self.read(annotation, parse, "\"enabled\" or \"disabled\"", "it counts as disabled");
            Some((said?, said?.unwrap_or(false)))
        };
        let long = read(ANNOTATION_CONSOLIDATION_MANY_TO_MANY);
        let short = read(ANNOTATION_CONSOLIDATION_M_TO_N);
        if let (Some((Some(one), _)), Some((Some(other), _))) = (long, short)
            && one != other
        {
            let value = if other { "enabled" } else { "disabled" };
            let valid = "the same as of karpenter.sh/consolidation-many-to-many, or one of the two alone";
            self.push(ANNOTATION_CONSOLIDATION_M_TO_N, value, valid, "both count as disabled");
        }
        let meant = long.into_iter().chain(short).map(|(_, is_enabled)| is_enabled);
        meant.reduce(|one, other| one && other)
    }

    /// Reports misspelled annotations, which would have no effect.
    fn find_unknown(&mut self) {
        for (annotation, value) in self.pool.metadata.annotations.iter().flatten() {
            if annotation.starts_with(PREFIX) && !KNOWN_ANNOTATIONS.contains(&annotation.as_str()) {
                self.push(
                    annotation,
                    value,
                    KNOWN_ANNOTATIONS_TEXT,
                    "the annotation is unknown and has no effect",
                );
            }
        }
    }

    fn push(&mut self, annotation: &str, value: &str, valid: &'static str, effect: &'static str) {
        self.errors.push(ControlError {
            pool: name_of(&self.pool.metadata).to_owned(),
            annotation: annotation.to_owned(),
            value: value.to_owned(),
            valid,
            effect,
        });
    }
}

const KNOWN_ANNOTATIONS_TEXT: &str = "karpenter.sh/consolidation- followed by saving-ratio, min-saving-percent, min-saving-per-hour, cool-down, balanced-k, max-moves-per-hour, many-to-many (or m-to-n) or dry-run";

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

fn one_of(text: &str, yes: &str, no: &str) -> Option<bool> {
    if text == yes {
        Some(true)
    } else if text == no {
        Some(false)
    } else {
        None
    }
}

/// The duration in whole seconds, rounded up.
pub(crate) fn seconds_up(nanos: i64) -> i64 {
    nanos / NANOS_PER_SECOND + i64::from(nanos % NANOS_PER_SECOND > 0)
}
