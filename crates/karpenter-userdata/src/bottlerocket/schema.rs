//! The settings of Bottlerocket that Karpenter knows, with their types.
//!
//! The module is a data table; a new setting is one more line. A value of the wrong type is an error, as it would be
//! when Bottlerocket boots.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/bootstrap/bottlerocketsettings.go`.

use toml::{Table, Value};

use crate::UserDataError;

pub(super) struct Field {
    name: &'static str,
    shape: Shape,
    /// Whether Bottlerocket requires the setting, so that it is written even if it is empty or missing.
    required: bool,
}

enum Shape {
    Text,
    Integer,
    Unsigned,
    Bool,
    TextList,
    /// A list of command lines.
    TextLists,
    TextMap,
    TextListMap,
    Record(&'static [Field]),
    RecordMap(&'static [Field]),
}

const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false }
}

const fn required(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true }
}

pub(super) const KUBERNETES: &[Field] = &[
    field("api-server", Shape::Text),
    field("cloud-provider", Shape::Text),
    field("cluster-certificate", Shape::Text),
    field("cluster-name", Shape::Text),
    field("cluster-dns-ip", Shape::Text),
    field("credential-providers", Shape::RecordMap(CREDENTIAL_PROVIDER)),
    field("node-labels", Shape::TextMap),
    field("node-taints", Shape::TextListMap),
    field("max-pods", Shape::Integer),
    field("static-pods", Shape::RecordMap(STATIC_POD)),
    field("eviction-hard", Shape::TextMap),
    field("eviction-soft", Shape::TextMap),
    field("eviction-soft-grace-period", Shape::TextMap),
    field("eviction-max-pod-grace-period", Shape::Integer),
    field("kube-reserved", Shape::TextMap),
    field("system-reserved", Shape::TextMap),
    field("allowed-unsafe-sysctls", Shape::TextList),
    field("server-tls-bootstrap", Shape::Bool),
    field("registry-qps", Shape::Integer),
    field("registry-burst", Shape::Integer),
    field("event-qps", Shape::Integer),
    field("event-burst", Shape::Integer),
    field("kube-api-qps", Shape::Integer),
    field("kube-api-burst", Shape::Integer),
    field("container-log-max-size", Shape::Text),
    field("container-log-max-files", Shape::Integer),
    field("container-log-max-workers", Shape::Integer),
    field("container-log-monitor-interval", Shape::Text),
    field("cpu-manager-policy", Shape::Text),
    field("cpu-manager-policy-options", Shape::TextList),
    field("cpu-manager-reconcile-period", Shape::Text),
    field("memory-manager-policy", Shape::Text),
    field("memory-manager-reserved-memory", Shape::RecordMap(RESERVED_MEMORY)),
    field("topology-manager-scope", Shape::Text),
    field("topology-manager-policy", Shape::Text),
    field("topology-manager-policy-options", Shape::Record(TOPOLOGY_OPTIONS)),
    field("image-gc-high-threshold-percent", Shape::Text),
    field("image-gc-low-threshold-percent", Shape::Text),
    field("ids-per-pod", Shape::Integer),
    field("cpu-cfs-quota-enforced", Shape::Bool),
    field("shutdown-grace-period", Shape::Text),
    field("shutdown-grace-period-for-critical-pods", Shape::Text),
    field("cluster-domain", Shape::Text),
    field("seccomp-default", Shape::Bool),
    field("pod-pids-limit", Shape::Integer),
    field("device-ownership-from-security-context", Shape::Bool),
    field("single-process-oom-kill", Shape::Bool),
    field("hostname-override-source", Shape::Text),
    field("log-level", Shape::Unsigned),
];

const CREDENTIAL_PROVIDER: &[Field] = &[
    field("enabled", Shape::Bool),
    field("cache-duration", Shape::Text),
    required("image-patterns", Shape::TextList),
    field("environment", Shape::TextMap),
];

const STATIC_POD: &[Field] = &[field("enabled", Shape::Bool), field("manifest", Shape::Text)];

const RESERVED_MEMORY: &[Field] = &[
    required("enabled", Shape::Bool),
    field("memory", Shape::Text),
    field("hugepages-2Mi", Shape::Text),
    field("hugepages-1Gi", Shape::Text),
];

const TOPOLOGY_OPTIONS: &[Field] =
    &[field("prefer-closest-numa-nodes", Shape::Bool), field("max-allowable-numa-nodes", Shape::Integer)];

pub(super) const BOOTSTRAP_COMMAND: &[Field] = &[
    required("commands", Shape::TextLists),
    required("mode", Shape::Text),
    required("essential", Shape::Bool),
];

/// The known settings in `settings.kubernetes`. The paths of unknown settings are added to `unknown`.
pub(super) fn known(
    written: Option<Value>,
    fields: &[Field],
    unknown: &mut Vec<String>,
) -> Result<Table, UserDataError> {
    let path = "settings.kubernetes";
    written.map_or_else(|| Ok(Table::new()), |written| record(written, fields, path, unknown))
}

/// The known settings of a table whose values are records, keyed by name.
pub(super) fn known_map(
    written: Option<Value>,
    path: &str,
    fields: &[Field],
    unknown: &mut Vec<String>,
) -> Result<Table, UserDataError> {
    written.map_or_else(|| Ok(Table::new()), |written| record_map(written, fields, path, unknown))
}

pub(super) fn mismatch(path: &str, expected: &'static str, found: &Value) -> UserDataError {
    UserDataError::TomlType { path: path.to_owned(), expected, found: kind(found) }
}

fn record(
    written: Value,
    fields: &[Field],
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Table, UserDataError> {
    let mut known = Table::new();
    for (key, value) in table(written, path)? {
        let path = join(path, &key);
        match fields.iter().find(|field| field.name.eq_ignore_ascii_case(&key)) {
            None => unknown.push(path),
            Some(field) => {
                let value = shaped(value, &field.shape, &path, unknown)?;
                if field.required || !is_empty(&value) {
                    known.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    for field in fields.iter().filter(|field| field.required) {
        known.entry(field.name).or_insert_with(|| default_value(&field.shape));
    }
    Ok(known)
}

fn record_map(
    written: Value,
    fields: &[Field],
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Table, UserDataError> {
    let entries = table(written, path)?.into_iter().map(|(key, value)| {
        let record = record(value, fields, &join(path, &key), unknown)?;
        Ok((key, Value::Table(record)))
    });
    entries.collect()
}

fn shaped(
    value: Value,
    shape: &Shape,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Value, UserDataError> {
    match shape {
        Shape::Text => checked(value, Value::is_str, "text", path),
        Shape::Bool => checked(value, Value::is_bool, "true or false", path),
        Shape::Integer => checked(value, Value::is_integer, "an integer", path),
        Shape::Unsigned => {
            let fits = |value: &Value| value.as_integer().is_some_and(|number| u32::try_from(number).is_ok());
            checked(value, fits, "a non-negative integer", path)
        }
        Shape::TextList => list(value, &Shape::Text, path, unknown),
        Shape::TextLists => list(value, &Shape::TextList, path, unknown),
        Shape::TextMap => map(value, &Shape::Text, path, unknown),
        Shape::TextListMap => map(value, &Shape::TextList, path, unknown),
        Shape::Record(fields) => record(value, fields, path, unknown).map(Value::Table),
        Shape::RecordMap(fields) => record_map(value, fields, path, unknown).map(Value::Table),
    }
}

fn checked(
    value: Value,
    fits: impl Fn(&Value) -> bool,
    expected: &'static str,
    path: &str,
) -> Result<Value, UserDataError> {
    if fits(&value) { Ok(value) } else { Err(mismatch(path, expected, &value)) }
}

fn list(value: Value, item: &Shape, path: &str, unknown: &mut Vec<String>) -> Result<Value, UserDataError> {
    let Value::Array(items) = value else { return Err(mismatch(path, "a list", &value)) };
    let items = items.into_iter().enumerate();
    let items = items.map(|(position, value)| shaped(value, item, &format!("{path}[{position}]"), unknown));
    items.collect::<Result<_, _>>().map(Value::Array)
}

fn map(value: Value, item: &Shape, path: &str, unknown: &mut Vec<String>) -> Result<Value, UserDataError> {
    let entries = table(value, path)?.into_iter().map(|(key, value)| {
        let value = shaped(value, item, &join(path, &key), unknown)?;
        Ok((key, value))
    });
    entries.collect::<Result<_, _>>().map(Value::Table)
}

fn table(value: Value, path: &str) -> Result<Table, UserDataError> {
    match value {
        Value::Table(table) => Ok(table),
        other => Err(mismatch(path, "a table", &other)),
    }
}

fn join(path: &str, key: &str) -> String {
    if key.contains('.') { format!("{path}.\"{key}\"") } else { format!("{path}.{key}") }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Table(entries) => entries.is_empty(),
        _ => false,
    }
}

fn default_value(shape: &Shape) -> Value {
    match shape {
        Shape::Text => Value::String(String::new()),
        Shape::Integer | Shape::Unsigned => Value::Integer(0),
        Shape::Bool => Value::Boolean(false),
        Shape::TextList | Shape::TextLists => Value::Array(Vec::new()),
        Shape::TextMap | Shape::TextListMap | Shape::Record(_) | Shape::RecordMap(_) => {
            Value::Table(Table::new())
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}
