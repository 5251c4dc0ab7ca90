//! The functions that rules may call, which kube-cel provides. Functions with regular expressions are replaced here,
//! because kube-cel compiles the regular expression on every call, which takes longer than the rest of a rule.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value};
use regex::Regex;

use crate::crd::pattern;

/// The maximum number of cached regular expressions, which rules can compute. When it is reached, the cache is cleared.
const EXPRESSIONS_MAX: usize = 256;

thread_local! {
    static EXPRESSIONS: RefCell<HashMap<String, Regex>> = RefCell::default();
}

pub(super) fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("matches", matches);
    context.add_function("find", find);
    context
}

fn matches(This(text): This<Arc<String>>, expression: Arc<String>) -> ResolveResult {
    with_expression("matches", &expression, |regex| Value::Bool(regex.is_match(&text)))
}

fn find(This(text): This<Arc<String>>, expression: Arc<String>) -> ResolveResult {
    with_expression("find", &expression, |regex| {
        let found = regex.find(&text).map(|found| found.as_str().to_string());
        Value::String(Arc::new(found.unwrap_or_default()))
    })
}

fn with_expression(function: &str, expression: &str, apply: impl FnOnce(&Regex) -> Value) -> ResolveResult {
    EXPRESSIONS.with_borrow_mut(|known| {
        if let Some(regex) = known.get(expression) {
            return Ok(apply(regex));
        }
        let regex = pattern::compile(expression)
            .map_err(|error| ExecutionError::function_error(function, format!("invalid regex: {error}")))?;
        if known.len() >= EXPRESSIONS_MAX {
            known.clear();
        }
        Ok(apply(known.entry(expression.to_string()).or_insert(regex)))
    })
}

/// Whether the CEL evaluator supports an expression. It panics on message literals (`Name{field: 1}`), which rules of
/// custom resources do not need.
pub(super) fn is_supported(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Struct(_) | Expr::Unspecified => false,
        Expr::Ident(_) | Expr::Literal(_) => true,
        Expr::Select(select) => is_supported(&select.operand),
        Expr::Call(call) => {
            call.target.as_deref().is_none_or(is_supported) && call.args.iter().all(is_supported)
        }
        Expr::List(list) => list.elements.iter().all(is_supported),
        Expr::Map(map) => map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => is_supported(&entry.key) && is_supported(&entry.value),
            EntryExpr::StructField(_) => false,
        }),
        Expr::Comprehension(found) => {
            [&found.iter_range, &found.accu_init, &found.loop_cond, &found.loop_step, &found.result]
                .into_iter()
                .all(is_supported)
        }
    }
}
