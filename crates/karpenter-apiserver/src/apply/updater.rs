//! How updates and applies change the ownership of fields.
//!
//! Upstream: sigs.k8s.io/structured-merge-diff/v6/merge/update.go

use serde_json::Value;

use super::managed::{ManagedFields, ManagerId};
use super::path::Path;
use super::set::FieldSet;
use super::typed::{self, Comparison};
use crate::shape::Shape;

/// A field that the request would change, but that another manager owns with another value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conflict {
    /// The other manager, as error messages describe it.
    pub(super) manager: String,
    pub(super) path: Path,
}

/// Removes changed and removed fields from all managers. Returns the changed and added fields, which then belong to the
/// writer.
pub(super) fn update(
    live: &Value,
    new: &Value,
    shape: &Shape,
    reset: &FieldSet,
    managed: &mut ManagedFields,
) -> FieldSet {
    managed.reconcile(shape);
    let comparison = typed::compare(live, new, shape).without(reset);
    take(&comparison, managed, None)
}

/// Returns the merged object; if there are conflicts and `force` is false, returns the conflicts instead.
pub(super) fn apply(
    live: &Value,
    applied: &Value,
    shape: &Shape,
    reset: &FieldSet,
    managed: &mut ManagedFields,
    (id, api_version): (&ManagerId, &str),
    force: bool,
) -> Result<Value, Vec<Conflict>> {
    managed.reconcile(shape);
    let merged = typed::merge(live, applied, shape);
    let last = managed.owners.get(id).map(|owned| owned.set.clone()).unwrap_or_default();
    let wanted = typed::field_set(applied, shape).recursive_difference(reset);
    managed.set(id, wanted, api_version);
    let new = if last.is_empty() { merged } else { prune(merged, &last, managed, shape) };
    let comparison = typed::compare(live, &new, shape).without(reset);
    if !force {
        let changed = comparison.modified.union(&comparison.added);
        let mut conflicts = Vec::new();
        for (other, owned) in &managed.owners {
            if other != id {
                let common = owned.set.intersection(&changed);
                conflicts.extend(
                    common.paths().into_iter().map(|path| Conflict { manager: other.to_string(), path }),
                );
            }
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    take(&comparison, managed, Some(id));
    Ok(new)
}

/// Removes changed and removed fields from all managers except `except`. Returns the changed and added fields.
fn take(comparison: &Comparison, managed: &mut ManagedFields, except: Option<&ManagerId>) -> FieldSet {
    let changed = comparison.modified.union(&comparison.added);
    managed.owners.retain(|id, owned| {
        if Some(id) != except {
            owned.set.remove_all(&changed);
            owned.set.remove_all(&comparison.removed);
        }
        !owned.set.is_empty()
    });
    changed
}

/// Removes the fields that the manager applied before and no longer applies, unless another manager owns them.
fn prune(merged: Value, last: &FieldSet, managed: &ManagedFields, shape: &Shape) -> Value {
    let last = last.with_named_fields(shape);
    let all = typed::field_set(&merged, shape).with_named_fields(shape);
    let removed_all = typed::remove(&merged, &last, shape);
    let kept = typed::field_set(&removed_all, shape).with_named_fields(shape);
    let owned = managed
        .owners
        .values()
        .fold(FieldSet::default(), |all, owned| all.union(&owned.set))
        .with_named_fields(shape);
    // Fields that some manager owns are restored, with their parents.
    let with_owned = typed::remove(&merged, &all.difference(&kept.union(&owned)), shape);
    // Fields below a removed parent that the manager never owned are restored.
    let kept = typed::field_set(&with_owned, shape).with_named_fields(shape);
    typed::remove(&merged, &all.difference(&kept).intersection(&last), shape)
}
