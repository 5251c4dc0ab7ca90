//! Taints and tolerations.
//!
//! Taints and tolerations. `PreferNoSchedule` is treated like a hard taint; if no node fits, the planner adds a
//! toleration for it, as upstream does.
//!
//! Upstream: `pkg/scheduling/taints.go`.

use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    pub key: Arc<str>,
    pub value: Arc<str>,
    pub effect: Effect,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect.as_str())
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect.as_str())
        }
    }
}

/// How a toleration compares its value with the taint's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TolerationOperator {
    Exists,
    Equal(Arc<str>),
    /// The taint's value must be a number greater than this one. Newer Kubernetes versions have this operator.
    Gt(i64),
    Lt(i64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Toleration {
    /// The key of the tolerated taint; an empty key with operator `Exists` tolerates every key.
    pub key: Arc<str>,
    pub operator: TolerationOperator,
    /// The effect of the tolerated taint; `None` tolerates every effect.
    pub effect: Option<Effect>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match &self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal(value) => !self.key.is_empty() && *value == taint.value,
            TolerationOperator::Gt(bound) => taint.value.parse::<i64>().is_ok_and(|value| value > *bound),
            TolerationOperator::Lt(bound) => taint.value.parse::<i64>().is_ok_and(|value| value < *bound),
        }
    }

    /// The toleration for all PreferNoSchedule taints, which the planner adds when it relaxes preferences.
    pub fn prefer_no_schedule() -> Self {
        Self { key: "".into(), operator: TolerationOperator::Exists, effect: Some(Effect::PreferNoSchedule) }
    }
}

/// The first taint that none of the tolerations tolerates.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(effect: Effect) -> Taint {
        Taint { key: "team".into(), value: "a".into(), effect }
    }

    fn toleration(key: &str, operator: TolerationOperator, effect: Option<Effect>) -> Toleration {
        Toleration { key: key.into(), operator, effect }
    }

    #[test]
    fn tolerations_match_key_value_and_effect() {
        let cases = [
            (toleration("team", TolerationOperator::Exists, None), true),
            (toleration("", TolerationOperator::Exists, None), true),
            (toleration("team", TolerationOperator::Equal("a".into()), Some(Effect::NoSchedule)), true),
            (toleration("team", TolerationOperator::Equal("b".into()), None), false),
            (toleration("team", TolerationOperator::Exists, Some(Effect::NoExecute)), false),
            (toleration("other", TolerationOperator::Exists, None), false),
        ];
        for (toleration, expected) in cases {
            assert_eq!(toleration.tolerates(&taint(Effect::NoSchedule)), expected, "{toleration:?}");
        }
    }

    #[test]
    fn the_relaxation_toleration_covers_only_preferred_taints() {
        let relaxed = [Toleration::prefer_no_schedule()];
        assert_eq!(first_untolerated(&[taint(Effect::PreferNoSchedule)], &relaxed), None);
        assert!(first_untolerated(&[taint(Effect::NoSchedule)], &relaxed).is_some());
    }
}
