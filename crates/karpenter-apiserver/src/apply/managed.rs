//! `metadata.managedFields`: which managers an object has, which fields each of them owns, and when each made its last
//! change.
//!
//! Upstream: k8s.io/apimachinery/pkg/util/managedfields/internal/managedfields.go

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::set::FieldSet;
use crate::field::go_quote;
use crate::shape::Shape;

/// The identity of a manager. Two entries with the same name but another operation, version or subresource belong to
/// different managers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    /// The identity as JSON. It is the first field of the struct, because managers are sorted by it.
    key: String,
    pub(super) manager: String,
    /// Whether the manager's operation is `Update`; otherwise it is `Apply`.
    pub(super) updates: bool,
    /// The API version; empty for `Apply`, because such a manager stays the same when it changes the version.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl ManagerId {
    pub(super) fn apply(manager: &str, subresource: &str) -> Self {
        Self::new(manager, false, "", subresource)
    }

    pub(super) fn update(manager: &str, api_version: &str, subresource: &str) -> Self {
        Self::new(manager, true, api_version, subresource)
    }

    fn new(manager: &str, updates: bool, api_version: &str, subresource: &str) -> Self {
        let parts = [
            ("manager", manager),
            ("operation", if updates { "Update" } else { "Apply" }),
            ("apiVersion", api_version),
            ("subresource", subresource),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("\"{name}\":{}", json!(value)))
            .collect();
        Self {
            key: format!("{{{}}}", parts.join(",")),
            manager: manager.to_string(),
            updates,
            api_version: api_version.to_string(),
            subresource: subresource.to_string(),
        }
    }
}

impl fmt::Display for ManagerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&go_quote(&self.manager))?;
        if !self.subresource.is_empty() {
            write!(formatter, " with subresource {}", go_quote(&self.subresource))?;
        }
        if self.updates {
            write!(formatter, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnedFields {
    pub(super) set: FieldSet,
    pub(super) api_version: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ManagedFields {
    pub(super) owners: BTreeMap<ManagerId, OwnedFields>,
    /// When each manager made its last change, in RFC 3339 and UTC, so that sorting the strings sorts the times.
    times: BTreeMap<ManagerId, String>,
}

impl ManagedFields {
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// See [`FieldSet::reconcile`].
    pub(super) fn reconcile(&mut self, shape: &Shape) {
        for owned in self.owners.values_mut() {
            owned.set.reconcile(shape);
        }
    }

    pub(super) fn set(&mut self, id: &ManagerId, set: FieldSet, api_version: &str) {
        self.owners.insert(id.clone(), OwnedFields { set, api_version: api_version.to_string() });
    }

    /// Adds fields to those that the manager owns.
    pub(super) fn add(&mut self, id: &ManagerId, set: FieldSet, api_version: &str) {
        let set = match self.owners.get(id) {
            Some(previous) => set.union(&previous.set),
            None => set,
        };
        self.set(id, set, api_version);
    }

    pub(super) fn strip(&mut self, id: &ManagerId, fields: &FieldSet) {
        if let Some(owned) = self.owners.get_mut(id) {
            owned.set.remove_all(fields);
            if owned.set.is_empty() {
                self.owners.remove(id);
            }
        }
    }

    pub(super) fn set_time(&mut self, id: &ManagerId, now: &str) {
        self.times.insert(id.clone(), now.to_string());
    }

    pub(super) fn copy_time(&mut self, id: &ManagerId, from: &Self) {
        if let Some(time) = from.times.get(id) {
            self.set_time(id, time);
        }
    }

    /// Merges the oldest entries with operation `Update` and the same version into one, until there are at most `limit`
    /// of them.
    pub(super) fn cap_updates(&mut self, limit: usize) {
        let mut updaters: Vec<ManagerId> = self.owners.keys().filter(|id| id.updates).cloned().collect();
        let mut count = updaters.len();
        if count <= limit {
            return;
        }
        let time = |id: &ManagerId| self.times.get(id).cloned().unwrap_or_default();
        updaters.sort_by_key(|id| (time(id), id.clone()));
        let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for id in updaters {
            if count <= limit {
                return;
            }
            let Some(owned) = self.owners.get(&id).cloned() else { continue };
            let version = owned.api_version.clone();
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, id);
                continue;
            };
            let bucket = ManagerId::update("ancient-changes", &version, "");
            if !self.owners.contains_key(&bucket)
                && let Some(oldest) = self.owners.remove(first)
            {
                self.owners.insert(bucket.clone(), oldest);
            }
            self.owners.remove(&id);
            self.add(&bucket, owned.set, &version);
            if let Some(time) = self.times.get(&id).cloned() {
                self.times.insert(bucket, time);
            }
            count -= 1;
        }
    }

    pub(super) fn decode(entries: Option<&Value>) -> Result<Self, String> {
        let mut managed = Self::default();
        let entries = match entries {
            None | Some(Value::Null) => return Ok(managed),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err("managedFields must be a list".to_string()),
        };
        for (index, entry) in entries.iter().enumerate() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("");
            let applies = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return Err("operation must be `Apply` or `Update`".to_string()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_string());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => {
                    let other = go_quote(other);
                    return Err(format!("invalid fieldsType {other} in managed fields entry {index}"));
                }
            }
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => FieldSet::decode(fields)?,
            };
            let id = if applies {
                ManagerId::apply(text("manager"), text("subresource"))
            } else {
                ManagerId::update(text("manager"), api_version, text("subresource"))
            };
            if let Some(time) = entry.get("time").and_then(Value::as_str) {
                managed.set_time(&id, time);
            }
            managed.set(&id, set, api_version);
        }
        Ok(managed)
    }

    /// The entries as JSON, sorted: those with operation `Apply` first, then by time.
    pub(super) fn encode(&self) -> Vec<Value> {
        let mut owners: Vec<(&ManagerId, &OwnedFields)> = self.owners.iter().collect();
        owners.sort_by_key(|(id, owned)| {
            (id.updates, self.times.get(*id), &id.manager, &owned.api_version, &id.subresource)
        });
        owners
            .into_iter()
            .map(|(id, owned)| {
                let mut entry = Map::new();
                entry.insert("manager".into(), json!(id.manager));
                entry.insert("operation".into(), json!(if id.updates { "Update" } else { "Apply" }));
                entry.insert("apiVersion".into(), json!(owned.api_version));
                if let Some(time) = self.times.get(id) {
                    entry.insert("time".into(), json!(time));
                }
                entry.insert("fieldsType".into(), json!("FieldsV1"));
                entry.insert("fieldsV1".into(), owned.set.encode());
                if !id.subresource.is_empty() {
                    entry.insert("subresource".into(), json!(id.subresource));
                }
                if id.manager.is_empty() {
                    entry.remove("manager");
                }
                Value::Object(entry)
            })
            .collect()
    }
}
