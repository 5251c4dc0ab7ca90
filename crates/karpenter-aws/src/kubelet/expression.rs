//! CEL expressions over an instance type: an expression is compiled once and evaluated for many instance types.
//!
//! The language is CEL, with functions `min` and `max` of two arguments. The `cel` crate checks types only during
//! evaluation. Upstream rejects a wrong type when it compiles the expression, and so does the module `typecheck`. This
//! module does not know for which setting an expression is used.

#[cfg(test)]
mod tests;
mod typecheck;

use std::sync::Arc;
use std::time::Duration;

use cel::{Context, ExecutionError, Program, Value};
use karpenter_catalog::aws::TypeInfo;
use karpenter_runtime::clock::Clock;

use crate::cache::Cache;

/// How long a compiled expression is cached after its last use.
const TTL: Duration = Duration::from_secs(12 * 60 * 60);

/// The maximum length of an expression in bytes. Parser and evaluator are recursive; this limit and [`OPERATORS_MAX`]
/// bound the recursion, so that no expression overflows the stack.
const LENGTH_MAX: usize = 4096;
/// The maximum number of operators in an expression.
const OPERATORS_MAX: usize = 256;

/// Why an expression has no value for an instance type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("compiling expression, {reason} (expression={expression})")]
    Compile { expression: String, reason: String },
    #[error("expression must return int or double (expression={expression}, output-type={found})")]
    Type { expression: String, found: String },
    #[error("evaluating expression, {reason} (expression={expression}, instance-type={instance_type})")]
    Evaluate { expression: String, instance_type: String, reason: String },
    #[error(
        "expression returned a non-finite value (expression={expression}, instance-type={instance_type}, value={value})"
    )]
    NotFinite { expression: String, instance_type: String, value: String },
}

/// The values of the variables that an expression may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variables {
    pub vcpus: i64,
    pub memory_mib: i64,
    /// The number of network interfaces on the default network card.
    pub default_enis: i64,
    pub ips_per_eni: i64,
    pub max_pods: i64,
    pub instance_type: String,
}

impl Variables {
    pub fn of(info: &TypeInfo, max_pods: i64) -> Self {
        Self {
            vcpus: info.vcpus.into(),
            memory_mib: i64::try_from(info.memory_mib).unwrap_or(i64::MAX),
            default_enis: info.default_card_interfaces().into(),
            ips_per_eni: info.ipv4_addresses_per_interface.into(),
            max_pods,
            instance_type: info.name.to_string(),
        }
    }

    fn context(&self) -> Context<'static> {
        let mut context = Context::default();
        // The `cel` crate's own `min` and `max` accept any number of arguments and do not convert between int and
        // double.
        context.add_function("max", |left: Value, right: Value| extreme(left, right, f64::max, i64::max));
        context.add_function("min", |left: Value, right: Value| extreme(left, right, f64::min, i64::min));
        context.add_variable_from_value("vcpus", self.vcpus);
        context.add_variable_from_value("memory_mib", self.memory_mib);
        context.add_variable_from_value("default_enis", self.default_enis);
        context.add_variable_from_value("ips_per_eni", self.ips_per_eni);
        context.add_variable_from_value("max_pods", self.max_pods);
        context.add_variable_from_value("instance_type", self.instance_type.clone());
        context
    }
}

fn extreme(
    left: Value,
    right: Value,
    of_doubles: fn(f64, f64) -> f64,
    of_ints: fn(i64, i64) -> i64,
) -> Result<Value, ExecutionError> {
    let double = |value: &Value| match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    };
    match (&left, &right) {
        (Value::Int(left), Value::Int(right)) => Ok(Value::Int(of_ints(*left, *right))),
        _ => match (double(&left), double(&right)) {
            (Some(left), Some(right)) => Ok(Value::Float(of_doubles(left, right))),
            _ => Err(ExecutionError::NoSuchOverload),
        },
    }
}

/// A compiled expression, which was checked to return a number.
#[derive(Debug)]
pub struct Compiled {
    program: Program,
}

/// Compiled expressions.
#[derive(Debug)]
pub struct Expressions {
    compiled: Cache<String, Arc<Compiled>>,
}

impl Expressions {
    pub fn new(clock: Clock) -> Self {
        Self { compiled: Cache::new(clock, TTL) }
    }

    /// Returns a compiled expression from the cache, or compiles it. Only expressions that compile are cached.
    pub fn compile(&self, expression: &str) -> Result<Arc<Compiled>, ExpressionError> {
        if let Some(compiled) = self.compiled.get_and_renew(&expression.to_owned()) {
            return Ok(compiled);
        }
        let compiled = Arc::new(compile(expression)?);
        self.compiled.insert(expression.to_owned(), Arc::clone(&compiled));
        Ok(compiled)
    }

    /// The value of an expression for an instance type, truncated to an integer.
    pub fn evaluate(&self, expression: &str, variables: &Variables) -> Result<i64, ExpressionError> {
        let compiled = self.compile(expression)?;
        let failed = |reason: String| ExpressionError::Evaluate {
            expression: expression.to_owned(),
            instance_type: variables.instance_type.clone(),
            reason,
        };
        match compiled.program.execute(&variables.context()) {
            Ok(Value::Int(number)) => Ok(number),
            Ok(Value::Float(number)) if !number.is_finite() => Err(ExpressionError::NotFinite {
                expression: expression.to_owned(),
                instance_type: variables.instance_type.clone(),
                value: number.to_string(),
            }),
            Ok(Value::Float(number)) => {
                whole(number).ok_or_else(|| failed(format!("{number} is out of range")))
            }
            Ok(other) => Err(failed(format!("unexpected type {}", other.type_of()))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

fn whole(number: f64) -> Option<i64> {
    // f64 cannot represent i64::MAX; the next larger f64 is 2^63, which is out of range.
    let bound = 2f64.powi(63);
    (-bound..bound).contains(&number).then_some(number as i64)
}

fn compile(expression: &str) -> Result<Compiled, ExpressionError> {
    let refused = |reason: String| ExpressionError::Compile { expression: expression.to_owned(), reason };
    let is_operator = |letter: &char| "+-*/%<>=!&|?([{.".contains(*letter);
    if expression.len() > LENGTH_MAX || expression.chars().filter(is_operator).count() > OPERATORS_MAX {
        return Err(ExpressionError::Compile {
            expression: expression.chars().take(80).collect(),
            reason: format!("it is too long: valid are {LENGTH_MAX} bytes and {OPERATORS_MAX} operators"),
        });
    }
    let program = Program::compile(expression).map_err(|errors| {
        let messages: Vec<String> = errors.errors.iter().map(|error| error.msg.clone()).collect();
        refused(messages.join(", "))
    })?;
    let found = typecheck::of(program.expression()).map_err(refused)?;
    if !found.is_number() {
        return Err(ExpressionError::Type { expression: expression.to_owned(), found: found.to_string() });
    }
    Ok(Compiled { program })
}
