//! Checks CEL rules without evaluating them: syntax, names of fields and variables, and whether the result can be a
//! boolean.
//!
//! kube-apiserver checks all types in a rule. This module finds common mistakes (unknown fields, undeclared variables,
//! results that are not boolean); other errors occur when the rule is evaluated.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/compilation.go

use std::collections::BTreeMap;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use crate::crd::rules;
use crate::crd::schema::{Additional, JsonType, Schema};

/// The result of checking a rule.
pub(super) struct Checked {
    /// Each error as the field of the rule that has it (`rule` or `messageExpression`), and the message.
    pub(super) errors: Vec<(&'static str, String)>,
    pub(super) uses_old_self: bool,
}

pub(super) fn check(rule: &Value, schema: &Schema, is_root: bool) -> Checked {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_optional = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default();
    let mut checked = Checked { errors: Vec::new(), uses_old_self: false };
    for (part, source) in [("rule", text("rule")), ("messageExpression", text("messageExpression"))] {
        if source.trim().is_empty() {
            continue;
        }
        let program = match rules::compile(source) {
            Ok(program) => program,
            Err(error) => {
                let message = error.to_string().replace("\n| ", "\n | ");
                checked.errors.push((part, format!("compilation failed: {message}")));
                continue;
            }
        };
        checked.uses_old_self |= part == "rule" && program.references().has_variable("oldSelf");
        let mut scope = Scope { source, variables: BTreeMap::new(), errors: Vec::new() };
        let self_kind = Kind::Of(schema, is_root || schema.embedded_resource);
        scope.variables.insert("self".into(), self_kind);
        scope.variables.insert("oldSelf".into(), if is_optional { Kind::Unknown } else { self_kind });
        let kind = scope.walk(program.expression());
        if !scope.errors.is_empty() {
            checked.errors.push((part, format!("compilation failed: {}", scope.errors.join("\n"))));
        } else if part == "rule" && kind.is_certainly_not(JsonType::Boolean) {
            checked.errors.push((part, "cel expression must evaluate to a bool".to_string()));
        } else if part == "messageExpression" && kind.is_certainly_not(JsonType::String) {
            checked.errors.push((part, "must evaluate to a string".to_string()));
        }
    }
    checked
}

/// What the checker knows about the type of an expression.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Unknown,
    /// A value that this schema describes. The flag is true for a resource, which has a type and metadata.
    Of(&'a Schema, bool),
    Scalar(JsonType),
    Metadata,
}

impl Kind<'_> {
    /// The name of a scalar type in CEL; `None` if the type is uncertain.
    fn cel_type(self) -> Option<&'static str> {
        let json_type = match self {
            Kind::Scalar(found) => found,
            Kind::Of(schema, _) if schema.format.is_none() => schema.json_type?,
            _ => return None,
        };
        match json_type {
            JsonType::String => Some("string"),
            JsonType::Integer => Some("int"),
            JsonType::Number => Some("double"),
            JsonType::Boolean => Some("bool"),
            JsonType::Object | JsonType::Array => None,
        }
    }

    fn is_certainly_not(self, wanted: JsonType) -> bool {
        match self {
            Kind::Unknown => false,
            Kind::Metadata => true,
            Kind::Scalar(found) => found != wanted,
            Kind::Of(schema, _) => {
                let is_certain = schema.json_type.is_some() && schema.format.is_none();
                is_certain && schema.json_type != Some(wanted)
            }
        }
    }
}

struct Scope<'a> {
    source: &'a str,
    variables: BTreeMap<String, Kind<'a>>,
    errors: Vec<String>,
}

impl<'a> Scope<'a> {
    fn add_error(&mut self, needle: &str, message: &str) {
        let offset = self.source.find(needle).unwrap_or_default();
        let before = &self.source[..offset];
        let line_number = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[line_start..].chars().count();
        let line = self.source[line_start..].lines().next().unwrap_or_default();
        let dots = ".".repeat(column);
        let error = format!("ERROR: <input>:{line_number}:{}: {message}\n | {line}\n | {dots}^", column + 1);
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn walk(&mut self, expression: &IdedExpr) -> Kind<'a> {
        match &expression.expr {
            Expr::Ident(name) => match self.variables.get(name) {
                Some(kind) => *kind,
                None if is_known_name(name) => Kind::Unknown,
                None => {
                    let name = name.clone();
                    self.add_error(&name, &format!("undeclared reference to '{name}' (in container '')"));
                    Kind::Unknown
                }
            },
            Expr::Select(select) => {
                // The parser represents a qualified name (`a.b`) as the selection of a field.
                if let Expr::Ident(name) = &select.operand.expr
                    && !self.variables.contains_key(name)
                {
                    return Kind::Unknown;
                }
                let operand = self.walk(&select.operand);
                let kind = self.field(operand, &select.field);
                if select.test { Kind::Scalar(JsonType::Boolean) } else { kind }
            }
            Expr::Call(call) => {
                let target = call.target.as_ref().map(|target| match &target.expr {
                    Expr::Ident(name) if !self.variables.contains_key(name) => Kind::Unknown,
                    _ => self.walk(target),
                });
                let arguments: Vec<Kind> = call.args.iter().map(|argument| self.walk(argument)).collect();
                self.check_comparison(&call.func_name, &arguments);
                match call.func_name.as_str() {
                    "_[_]" => element(*arguments.first().unwrap_or(&Kind::Unknown)),
                    "_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" => {
                        Kind::Scalar(JsonType::Boolean)
                    }
                    "size" => Kind::Scalar(JsonType::Integer),
                    "startsWith" | "endsWith" | "matches" => Kind::Scalar(JsonType::Boolean),
                    "string" => Kind::Scalar(JsonType::String),
                    _ => {
                        let _ = target;
                        Kind::Unknown
                    }
                }
            }
            Expr::Comprehension(comprehension) => {
                let range = self.walk(&comprehension.iter_range);
                self.walk(&comprehension.accu_init);
                let item = match range {
                    Kind::Of(schema, _) if schema.json_type == Some(JsonType::Array) => element(range),
                    _ => Kind::Unknown,
                };
                let outer = self.variables.clone();
                self.variables.insert(comprehension.iter_var.clone(), item);
                if let Some(second) = &comprehension.iter_var2 {
                    self.variables.insert(comprehension.iter_var.clone(), Kind::Unknown);
                    self.variables.insert(second.clone(), element(range));
                }
                self.variables.insert(comprehension.accu_var.clone(), Kind::Unknown);
                self.walk(&comprehension.loop_cond);
                self.walk(&comprehension.loop_step);
                self.walk(&comprehension.result);
                self.variables = outer;
                Kind::Unknown
            }
            Expr::List(list) => {
                list.elements.iter().for_each(|element| {
                    self.walk(element);
                });
                Kind::Unknown
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.walk(&entry.key);
                        self.walk(&entry.value);
                    }
                }
                Kind::Unknown
            }
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Kind::Scalar(JsonType::Boolean),
                LiteralValue::Double(_) => Kind::Scalar(JsonType::Number),
                LiteralValue::Int(_) | LiteralValue::UInt(_) => Kind::Scalar(JsonType::Integer),
                LiteralValue::String(_) => Kind::Scalar(JsonType::String),
                LiteralValue::Bytes(_) | LiteralValue::Null => Kind::Unknown,
            },
            Expr::Struct(found) => {
                let name = found.type_name.clone();
                self.add_error(&name, &format!("undeclared reference to '{name}' (in container '')"));
                Kind::Unknown
            }
            Expr::Unspecified => Kind::Unknown,
        }
    }

    /// Reports comparisons between a string, a number and a boolean, which CEL does not allow.
    fn check_comparison(&mut self, function: &str, arguments: &[Kind]) {
        let symbol = match function {
            "_<_" | "_<=_" | "_>_" | "_>=_" | "_==_" | "_!=_" => &function[1..function.len() - 1],
            _ => return,
        };
        let [Some(left), Some(right)] =
            [0, 1].map(|index| arguments.get(index).and_then(|kind| kind.cel_type()))
        else {
            return;
        };
        let is_number = |name: &str| matches!(name, "int" | "double");
        if left != right && !(is_number(left) && is_number(right)) {
            let message =
                format!("found no matching overload for '{function}' applied to '({left}, {right})'");
            self.add_error(symbol, &message);
        }
    }

    fn field(&mut self, operand: Kind<'a>, escaped: &str) -> Kind<'a> {
        let name = unescape(escaped);
        let (schema, is_resource) = match operand {
            Kind::Of(schema, is_resource) => (schema, is_resource || schema.embedded_resource),
            Kind::Metadata if name == "name" || name == "generateName" => {
                return Kind::Scalar(JsonType::String);
            }
            Kind::Metadata => {
                self.add_error(&format!(".{escaped}"), &format!("undefined field '{escaped}'"));
                return Kind::Unknown;
            }
            Kind::Unknown | Kind::Scalar(_) => return Kind::Unknown,
        };
        if is_resource {
            match name.as_str() {
                "metadata" => return Kind::Metadata,
                "apiVersion" | "kind" => return Kind::Scalar(JsonType::String),
                _ => {}
            }
        }
        match (schema.properties.get(&name), &schema.additional) {
            (Some(property), _) => Kind::Of(property, false),
            (None, Additional::Schema(child)) => Kind::Of(child, false),
            (None, Additional::Unspecified) if schema.json_type == Some(JsonType::Object) => {
                self.add_error(&format!(".{escaped}"), &format!("undefined field '{escaped}'"));
                Kind::Unknown
            }
            _ => Kind::Unknown,
        }
    }
}

fn element(container: Kind) -> Kind {
    match container {
        Kind::Of(schema, _) => match (&schema.items, schema.additional_schema()) {
            (Some(items), _) => Kind::Of(items, false),
            (None, Some(additional)) => Kind::Of(additional, false),
            _ => Kind::Unknown,
        },
        _ => Kind::Unknown,
    }
}

/// Whether a name is declared by CEL itself: the name of a type, or one that the parser generates (with the prefix `@`
/// or `__`).
fn is_known_name(name: &str) -> bool {
    const TYPES: [&str; 12] = [
        "bool",
        "bytes",
        "double",
        "duration",
        "dyn",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "timestamp",
        "uint",
    ];
    TYPES.contains(&name) || name.starts_with('@') || name.starts_with("__") || name.contains('.')
}

fn unescape(name: &str) -> String {
    if let Some(reserved) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && !reserved.is_empty()
        && reserved.bytes().all(|byte| byte.is_ascii_lowercase())
        && !matches!(reserved, "underscores" | "dot" | "dash" | "slash")
    {
        return reserved.to_string();
    }
    name.replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/")
        .replace("__underscores__", "__")
}
