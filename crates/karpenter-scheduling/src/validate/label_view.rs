//! The labels that a node has or will have, and whether a requirement holds for them.
//!
//! Some labels of a planned node are undecided, because its NodeClaim allows several values. A requirement holds for
//! such a label only if every allowed value satisfies it.

use std::borrow::Cow;

use karpenter_model::labels;
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::selector::Labels;

/// What is known about one label of a node.
#[derive(Debug)]
pub(super) enum Label<'a> {
    Value(&'a str),
    Absent,
    Open(Cow<'a, Requirement>),
}

impl Label<'_> {
    pub(super) fn satisfies(&self, wanted: &Requirement) -> bool {
        match self {
            Self::Value(value) => wanted.has(value),
            Self::Absent => holds_without_label(wanted),
            Self::Open(open) if !open.complement && open.values.is_empty() => holds_without_label(wanted),
            Self::Open(open) if !open.complement => {
                open.values.iter().filter(|value| open.has(value)).all(|value| wanted.has(value))
            }
            Self::Open(open) => {
                let bounds_inside = wanted.gte.is_none_or(|bound| open.gte.is_some_and(|own| own >= bound))
                    && wanted.lte.is_none_or(|bound| open.lte.is_some_and(|own| own <= bound));
                wanted.complement && bounds_inside && wanted.values.iter().all(|value| !open.has(value))
            }
        }
    }
}

/// Whether a requirement holds for a node that lacks the label. kube-scheduler accepts only `NotIn` and `DoesNotExist`
/// in this case.
fn holds_without_label(wanted: &Requirement) -> bool {
    if wanted.complement {
        !wanted.values.is_empty() && wanted.gte.is_none() && wanted.lte.is_none()
    } else {
        wanted.values.is_empty()
    }
}

/// A node whose labels can be looked up.
pub(super) trait LabelView {
    fn label(&self, key: &str) -> Label<'_>;

    fn unmet<'r>(&self, wanted: &'r Requirements) -> Option<&'r Requirement> {
        wanted.iter().find(|requirement| !self.label(&requirement.key).satisfies(requirement))
    }

    fn meets(&self, wanted: &Requirements) -> bool {
        self.unmet(wanted).is_none()
    }

    /// Whether at least one of the alternatives is met. An empty list means that there is no constraint.
    fn meets_any(&self, alternatives: &[Requirements]) -> bool {
        alternatives.is_empty() || alternatives.iter().any(|wanted| self.meets(wanted))
    }
}

/// The labels of an existing node.
pub(super) struct ExistingView<'a> {
    pub(super) labels: &'a Labels,
    pub(super) hostname: &'a str,
}

impl LabelView for ExistingView<'_> {
    fn label(&self, key: &str) -> Label<'_> {
        match self.labels.get(key) {
            Some(value) => Label::Value(value),
            None if key == labels::HOSTNAME => Label::Value(self.hostname),
            None => Label::Absent,
        }
    }
}

/// A planned node under the assumption that it launches as one instance type in one offering.
pub(super) struct PlannedView<'a> {
    /// The NodePool's requirements and labels, joined with the NodeClaim's requirements.
    pub(super) claim: &'a Requirements,
    pub(super) instance_type_name: &'a str,
    pub(super) instance_type: &'a Requirements,
    pub(super) offering: &'a Requirements,
}

/// The hostname of a planned node. Label values cannot contain spaces, so no selector matches it by accident.
const UNKNOWN_HOSTNAME: &str = "not known yet";

impl LabelView for PlannedView<'_> {
    fn label(&self, key: &str) -> Label<'_> {
        if key == labels::HOSTNAME {
            return Label::Value(UNKNOWN_HOSTNAME);
        }
        let offered = self.offering.get(key);
        let of_type = self.instance_type.get(key);
        let claimed = self.claim.get(key);
        for requirement in [offered, of_type, claimed].into_iter().flatten() {
            if let Some(value) = requirement.single_value() {
                return Label::Value(value);
            }
        }
        if key == labels::INSTANCE_TYPE {
            return Label::Value(self.instance_type_name);
        }
        let mut open: Option<Cow<'_, Requirement>> = None;
        for requirement in [offered, of_type, claimed].into_iter().flatten() {
            open = Some(match open {
                None => Cow::Borrowed(requirement),
                Some(present) => Cow::Owned(present.intersection(requirement)),
            });
        }
        match open {
            Some(requirement) => Label::Open(requirement),
            None if key == labels::REGISTERED || key == labels::INITIALIZED => Label::Value("true"),
            None => Label::Absent,
        }
    }
}
