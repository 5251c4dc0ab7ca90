//! Checks the types in an expression without evaluating it.
//!
//! The check covers the part of CEL that can be useful to compute a number from an instance type. Everything else
//! (times, types as values, messages) is rejected as undeclared.

use std::collections::BTreeMap;
use std::fmt;

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    Int,
    Uint,
    Double,
    Bool,
    Text,
    Bytes,
    Null,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    /// A type that is known only when the expression is evaluated.
    Dynamic,
    /// The element type of an empty list, which is compatible with every type.
    Open,
}

impl Type {
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Double)
    }

    fn is_loose(&self) -> bool {
        matches!(self, Self::Dynamic | Self::Open)
    }

    fn is_bool(&self) -> bool {
        *self == Self::Bool || self.is_loose()
    }

    /// The type that covers both types; `None` if they are incompatible.
    fn joined(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Open, other) | (other, Self::Open) => Some(other.clone()),
            (Self::Dynamic, _) | (_, Self::Dynamic) => Some(Self::Dynamic),
            (Self::List(left), Self::List(right)) => Some(Self::List(Box::new(left.joined(right)?))),
            (Self::Map(left_key, left), Self::Map(right_key, right)) => {
                Some(Self::Map(Box::new(left_key.joined(right_key)?), Box::new(left.joined(right)?)))
            }
            (left, right) if left == right => Some(left.clone()),
            _ => None,
        }
    }

    fn joined_all(types: impl IntoIterator<Item = Type>) -> Type {
        types.into_iter().fold(Type::Open, |all, next| all.joined(&next).unwrap_or(Type::Dynamic))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int => formatter.write_str("int"),
            Self::Uint => formatter.write_str("uint"),
            Self::Double => formatter.write_str("double"),
            Self::Bool => formatter.write_str("bool"),
            Self::Text => formatter.write_str("string"),
            Self::Bytes => formatter.write_str("bytes"),
            Self::Null => formatter.write_str("null_type"),
            Self::List(item) => write!(formatter, "list({item})"),
            Self::Map(key, value) => write!(formatter, "map({key}, {value})"),
            Self::Dynamic | Self::Open => formatter.write_str("dyn"),
        }
    }
}

type Checked = Result<Type, String>;

/// The type of an expression with all its parts checked.
pub(super) fn of(expression: &IdedExpr) -> Checked {
    let mut names = BTreeMap::from([("instance_type".to_owned(), Type::Text)]);
    for number in ["vcpus", "memory_mib", "default_enis", "ips_per_eni", "max_pods"] {
        names.insert(number.to_owned(), Type::Int);
    }
    Scope { names }.of(expression)
}

#[derive(Clone)]
struct Scope {
    names: BTreeMap<String, Type>,
}

impl Scope {
    fn of(&self, expression: &IdedExpr) -> Checked {
        match &expression.expr {
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Ident(name) => self.names.get(name).cloned().ok_or_else(|| undeclared(name)),
            Expr::List(list) => self.of_list(list),
            Expr::Map(map) => self.of_map(map),
            Expr::Select(select) => self.of_select(select),
            Expr::Call(call) => self.of_call(call),
            Expr::Comprehension(comprehension) => self.of_comprehension(comprehension),
            Expr::Struct(built) => Err(undeclared(&built.type_name)),
            Expr::Unspecified => Err("the expression is empty".to_owned()),
        }
    }

    fn all<'a>(&self, expressions: impl IntoIterator<Item = &'a IdedExpr>) -> Result<Vec<Type>, String> {
        expressions.into_iter().map(|expression| self.of(expression)).collect()
    }

    fn of_list(&self, list: &ListExpr) -> Checked {
        Ok(Type::List(Box::new(Type::joined_all(self.all(&list.elements)?))))
    }

    fn of_map(&self, map: &MapExpr) -> Checked {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err("a map has entries only".to_owned());
            };
            keys.push(self.of(&entry.key)?);
            values.push(self.of(&entry.value)?);
        }
        Ok(Type::Map(Box::new(Type::joined_all(keys)), Box::new(Type::joined_all(values))))
    }

    fn of_select(&self, select: &SelectExpr) -> Checked {
        let value = match self.of(&select.operand)? {
            Type::Map(_, value) => *value,
            loose if loose.is_loose() => Type::Dynamic,
            other => return Err(format!("type '{other}' does not support field selection")),
        };
        Ok(if select.test { Type::Bool } else { value })
    }

    fn of_comprehension(&self, comprehension: &ComprehensionExpr) -> Checked {
        let item = match self.of(&comprehension.iter_range)? {
            Type::List(item) => *item,
            Type::Map(key, _) => *key,
            loose if loose.is_loose() => Type::Dynamic,
            other => return Err(format!("expression of type '{other}' cannot be range of a comprehension")),
        };
        let mut inner = self.clone();
        inner.names.insert(comprehension.iter_var.clone(), item);
        if let Some(second) = &comprehension.iter_var2 {
            inner.names.insert(second.clone(), Type::Dynamic);
        }
        let start = self.of(&comprehension.accu_init)?;
        inner.names.insert(comprehension.accu_var.clone(), start.clone());
        if !inner.of(&comprehension.loop_cond)?.is_bool() {
            return Err("the condition of a loop must be bool".to_owned());
        }
        let step = inner.of(&comprehension.loop_step)?;
        let end = start.joined(&step).ok_or_else(|| no_overload("_+_", &[start, step]))?;
        inner.names.insert(comprehension.accu_var.clone(), end);
        inner.of(&comprehension.result)
    }

    fn of_call(&self, call: &CallExpr) -> Checked {
        // In a method call, the receiver is the first argument of the function.
        let arguments = self.all(call.target.as_deref().into_iter().chain(&call.args))?;
        let name = call.func_name.as_str();
        if !is_callable(name, call.target.is_some()) {
            return Err(undeclared(name));
        }
        of_function(name, &arguments).ok_or_else(|| no_overload(name, &arguments))
    }
}

fn of_literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::Text,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

fn is_callable(name: &str, is_method: bool) -> bool {
    match name {
        "startsWith" | "endsWith" | "contains" => is_method,
        "size" | "matches" => true,
        "max" | "min" | "int" | "uint" | "double" | "string" | "dyn" => !is_method,
        // Operators have internal names that are not valid identifiers in CEL.
        _ => {
            name.contains(['_', '@'])
                && !is_method
                && !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        }
    }
}

fn of_function(name: &str, arguments: &[Type]) -> Option<Type> {
    match (name, arguments) {
        (operators::CONDITIONAL, [condition, yes, no]) if condition.is_bool() => yes.joined(no),
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right])
            if left.is_bool() && right.is_bool() =>
        {
            Some(Type::Bool)
        }
        (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [value]) if value.is_bool() => {
            Some(Type::Bool)
        }
        (operators::NEGATE, [value @ (Type::Int | Type::Double | Type::Dynamic)]) => Some(value.clone()),
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => left.joined(right).map(|_| Type::Bool),
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            [left, right],
        ) => left.joined(right).filter(is_ordered).map(|_| Type::Bool),
        (operators::IN, [item, range]) => of_membership(item, range),
        (operators::INDEX, [range, position]) => of_index(range, position),
        ("max" | "min", [Type::Int, Type::Int]) => Some(Type::Int),
        ("max" | "min", [left, right]) if left.is_number() && right.is_number() => Some(Type::Double),
        ("max" | "min", [left, right]) if left.is_loose() || right.is_loose() => Some(Type::Dynamic),
        ("size", [Type::Text | Type::Bytes | Type::List(_) | Type::Map(..) | Type::Dynamic]) => {
            Some(Type::Int)
        }
        ("startsWith" | "endsWith" | "contains" | "matches", [Type::Text, Type::Text]) => Some(Type::Bool),
        ("int", [value]) if is_convertible(value) => Some(Type::Int),
        ("uint", [value]) if is_convertible(value) => Some(Type::Uint),
        ("double", [value]) if is_convertible(value) => Some(Type::Double),
        ("string", [value]) if is_convertible(value) || matches!(value, Type::Bool | Type::Bytes) => {
            Some(Type::Text)
        }
        ("dyn", [_]) => Some(Type::Dynamic),
        (name, [left, right]) => of_arithmetic(name, left.joined(right)?),
        _ => None,
    }
}

fn of_arithmetic(operator: &str, both: Type) -> Option<Type> {
    let is_right = match (operator, &both) {
        (_, Type::Dynamic) => operator.starts_with('_'),
        (operators::ADD, Type::Text | Type::Bytes | Type::List(_)) => true,
        (operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE, both) => {
            both.is_number() || *both == Type::Uint
        }
        (operators::MODULO, both) => matches!(both, Type::Int | Type::Uint),
        _ => false,
    };
    is_right.then_some(both)
}

fn of_membership(item: &Type, range: &Type) -> Option<Type> {
    let of = match range {
        Type::List(of) | Type::Map(of, _) => of,
        loose if loose.is_loose() => return Some(Type::Bool),
        _ => return None,
    };
    item.joined(of).map(|_| Type::Bool)
}

fn of_index(range: &Type, position: &Type) -> Option<Type> {
    match range {
        Type::List(item) => Type::Int.joined(position).map(|_| (**item).clone()),
        Type::Map(key, value) => key.joined(position).map(|_| (**value).clone()),
        loose => loose.is_loose().then_some(Type::Dynamic),
    }
}

fn is_ordered(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Int
            | Type::Uint
            | Type::Double
            | Type::Bool
            | Type::Text
            | Type::Bytes
            | Type::Dynamic
            | Type::Open
    )
}

fn is_convertible(kind: &Type) -> bool {
    matches!(kind, Type::Int | Type::Uint | Type::Double | Type::Text | Type::Dynamic)
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}'")
}

fn no_overload(name: &str, arguments: &[Type]) -> String {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    format!("found no matching overload for '{name}' applied to '({})'", arguments.join(", "))
}
