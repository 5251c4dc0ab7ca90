//! Converts objects to a `Table`, which kubectl prints.
//!
//! [`Columns`] has the columns of a kind: a function for each built-in kind (`builtin`), or the JSON paths in a
//! CustomResourceDefinition. Names and cells of built-in columns are kube-apiserver's; their descriptions differ.
//!
//! Upstream: k8s.io/apimachinery/pkg/apis/meta/v1/types.go,
//! k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor/tableconvertor.go

mod builtin;
mod jsonpath;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::encode::partial_metadata;

pub use builtin::builtin_columns;
use jsonpath::JsonPath;

/// How much of each object its row of the table contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Parses the query parameter `includeObject`; an empty value means metadata.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Self::None),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// The definition of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDefinition {
    pub name: String,
    pub column_type: String,
    pub format: String,
    pub description: String,
    /// The priority; kubectl prints columns with a priority above zero only with `-o wide`.
    pub priority: i64,
}

type CellsOf = fn(&Value, Timestamp) -> Vec<Value>;

#[derive(Debug)]
enum Cells {
    Builtin(CellsOf),
    /// The JSON paths of the columns that follow the name column.
    Custom(Vec<JsonPath>),
}

/// The columns of one kind, and how their cells are computed.
#[derive(Debug)]
pub struct Columns {
    definitions: Vec<ColumnDefinition>,
    cells: Cells,
}

const NAME_DESCRIPTION: &str = "The name of the object.";
const AGE_DESCRIPTION: &str = "When the object was created.";

impl Columns {
    pub fn definitions(&self) -> &[ColumnDefinition] {
        &self.definitions
    }

    /// The columns that a custom resource has in `additionalPrinterColumns`; if there are none, name and age.
    pub fn custom(columns: Option<&Value>) -> Self {
        let mut definitions = vec![ColumnDefinition {
            name: "Name".into(),
            column_type: "string".into(),
            format: "name".into(),
            description: NAME_DESCRIPTION.into(),
            priority: 0,
        }];
        let mut paths = Vec::new();
        let columns = columns.and_then(Value::as_array).filter(|columns| !columns.is_empty());
        let Some(columns) = columns else {
            definitions.push(ColumnDefinition {
                name: "Age".into(),
                column_type: "date".into(),
                format: String::new(),
                description: AGE_DESCRIPTION.into(),
                priority: 0,
            });
            paths.extend(JsonPath::parse(".metadata.creationTimestamp"));
            return Self { definitions, cells: Cells::Custom(paths) };
        };
        for column in columns {
            let text = |name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
            // As in kube-apiserver, the first column that cannot be parsed is omitted, and so are all columns after it.
            let Some(path) = JsonPath::parse(&text("jsonPath")) else { break };
            let description = match text("description") {
                empty if empty.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {}", text("jsonPath"))
                }
                description => description,
            };
            paths.push(path);
            definitions.push(ColumnDefinition {
                name: text("name"),
                column_type: text("type"),
                format: text("format"),
                description,
                priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            });
        }
        Self { definitions, cells: Cells::Custom(paths) }
    }

    /// Whether these are the columns of pods. The row of a finished pod gets the condition `Completed`.
    fn is_of_pods(&self) -> bool {
        std::ptr::eq(self, builtin_columns("", "v1", "Pod"))
    }

    /// The cells of an object, one for each column.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.cells {
            Cells::Builtin(cells) => cells(object, now),
            Cells::Custom(paths) => {
                let mut cells = vec![Value::from(name_of(object))];
                for (path, definition) in paths.iter().zip(&self.definitions[1..]) {
                    let found = path.find(object);
                    cells.push(
                        found
                            .first()
                            .map_or(Value::Null, |value| custom_cell(&definition.column_type, value, now)),
                    );
                }
                cells
            }
        }
    }
}

fn custom_cell(column_type: &str, value: &Value, now: Timestamp) -> Value {
    match (column_type, value) {
        ("string", value) => Value::from(jsonpath::print(value)),
        ("integer", Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)).into()
        }
        ("number", Value::Number(number)) => number.as_f64().into(),
        ("boolean", Value::Bool(flag)) => Value::Bool(*flag),
        ("date", Value::String(text)) => Value::from(match parse_time(text) {
            Some(time) => age_at(time, now),
            None if text.is_empty() => "<unknown>".to_string(),
            None => "<invalid>".to_string(),
        }),
        _ => Value::Null,
    }
}

/// Builds a Table (`meta.k8s.io/v1`). `resource_version` is that of the list, or of the single object.
pub fn render(
    columns: &Columns,
    objects: &[&Value],
    now: Timestamp,
    with_definitions: bool,
    include_object: IncludeObject,
    resource_version: &str,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = Map::new();
            row.insert("cells".into(), Value::Array(columns.cells(object, now)));
            if columns.is_of_pods()
                && let Some(conditions) = builtin::row_conditions(object)
            {
                row.insert("conditions".into(), conditions);
            }
            row.insert("object".into(), included(object, include_object));
            Value::Object(row)
        })
        .collect();
    let mut metadata = Map::new();
    if !resource_version.is_empty() {
        metadata.insert("resourceVersion".into(), Value::from(resource_version));
    }
    let definitions = if with_definitions { definitions_json(columns) } else { Value::Array(Vec::new()) };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn definitions_json(columns: &Columns) -> Value {
    let definitions = columns.definitions.iter().map(|column| {
        json!({
            "name": column.name, "type": column.column_type, "format": column.format,
            "description": column.description, "priority": column.priority,
        })
    });
    Value::Array(definitions.collect())
}

fn included(object: &Value, include_object: IncludeObject) -> Value {
    match include_object {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => partial_metadata(object),
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// How long ago the time was, in kubectl's format.
fn age_at(time: Timestamp, now: Timestamp) -> String {
    human_duration(now.duration_since(time).as_secs())
}

/// How long ago the time at a JSON pointer was; `<unknown>` if there is no time.
fn age(object: &Value, pointer: &str, now: Timestamp) -> String {
    let time = object.pointer(pointer).and_then(Value::as_str).and_then(parse_time);
    time.map_or_else(|| "<unknown>".to_string(), |time| age_at(time, now))
}

/// Formats a duration with two or three significant digits.
pub(crate) fn human_duration(seconds: i64) -> String {
    let pair = |large: i64, large_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{large_unit}")
        } else {
            format!("{large}{large_unit}{small}{small_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        _ if seconds < -1 => "<invalid>".to_string(),
        _ if seconds < 0 => "0s".to_string(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => pair(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}
