//! How responses represent objects: as stored, converted, reduced to metadata, or as a table.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/handlers/response.go

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Call;
use super::decode::bad;
use super::pipeline::Written;
use crate::convert;
use crate::encode::{Format, Reply, partial_metadata};
use crate::registry::{Conversion, Resource};
use crate::status::ApiResult;
use crate::store::Entry;
use crate::table::{self, Columns, IncludeObject};
use crate::watch::Transform;

impl Call<'_> {
    /// Whether the stored JSON can be sent as it is.
    pub(crate) fn presents_as_stored(&self) -> bool {
        self.served.conversion == Conversion::None
    }

    pub(crate) fn present_entry(&self, entry: &Entry) -> Value {
        convert::from_stored(&self.served, entry.value())
    }

    /// A response that contains the object in the representation that the client requested.
    pub(crate) fn reply_object(&self, code: u16, object: &Value) -> Reply {
        match self.format {
            Format::Metadata => Reply::json(code, &partial_metadata(object)),
            Format::Table(_) => {
                let revision = object["metadata"]["resourceVersion"].clone();
                let object = convert::from_stored(&self.served, object.clone());
                self.reply_table(
                    code,
                    &Map::from_iter([("resourceVersion".to_string(), revision)]),
                    &[object],
                )
            }
            _ if self.presents_as_stored() => Reply::json(code, object),
            _ => Reply::json(code, &convert::from_stored(&self.served, object.clone())),
        }
    }

    pub(crate) fn reply_entry(&self, code: u16, entry: &Entry) -> Reply {
        match self.format {
            Format::Metadata | Format::Table(_) => self.reply_object(code, &entry.value()),
            _ if self.presents_as_stored() => Reply::bytes(code, "application/json", entry.object().clone()),
            _ => self.reply_object(code, &entry.value()),
        }
    }

    pub(crate) fn reply_written(&self, code: u16, written: &Written) -> Reply {
        match written {
            Written::Stored(entry) | Written::Deleted(entry) => self.reply_entry(code, entry),
            Written::ResponseOnly(value) => self.reply_object(code, value),
        }
    }

    fn include_object(&self) -> ApiResult<IncludeObject> {
        let given = self.incoming.query.get("includeObject");
        IncludeObject::parse(given).ok_or_else(|| {
            bad(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{given}\": must be \
                 'Metadata', 'Object', 'None', or empty"
            ))
        })
    }

    pub(crate) fn reply_table(&self, code: u16, metadata: &Map<String, Value>, objects: &[Value]) -> Reply {
        let include = match self.include_object() {
            Ok(include) => include,
            Err(failure) => return Reply::from(failure.as_ref()),
        };
        let objects: Vec<&Value> = objects.iter().collect();
        let mut rendered = table::render(columns(&self.served), &objects, self.now, true, include, "");
        rendered["metadata"] = json!(metadata);
        if let Format::Table(version) = self.format {
            set_version(&mut rendered, version);
        }
        Reply::json(code, &rendered)
    }

    /// The transform for a watch that requests tables: each event is a table with one row, and only the first has
    /// column definitions.
    pub(crate) fn table_transform(&self, version: &'static str) -> ApiResult<Transform> {
        let served: Arc<Resource> = self.served.clone();
        let clock = self.core.clock.clone();
        let include = self.include_object()?;
        let mut first = true;
        Ok(Box::new(move |object| {
            let object = convert::from_stored(&served, object);
            let revision = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let with_definitions = std::mem::take(&mut first);
            let mut rendered =
                table::render(columns(&served), &[&object], clock.now(), with_definitions, include, revision);
            if !with_definitions {
                rendered["columnDefinitions"] = Value::Null;
            }
            set_version(&mut rendered, version);
            rendered
        }))
    }
}

/// Sets the version of a table, whose fields are the same in `v1` and `v1beta1`.
fn set_version(table: &mut Value, version: &str) {
    if version == "meta.k8s.io/v1" {
        return;
    }
    table["apiVersion"] = json!(version);
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        if row["object"]["kind"] == "PartialObjectMetadata" {
            row["object"]["apiVersion"] = json!(version);
        }
    }
}

fn columns(resource: &Resource) -> &Columns {
    match &resource.custom {
        Some(custom) => custom.kind.columns(),
        None => table::builtin_columns(&resource.group, &resource.version, &resource.kind),
    }
}
