//! CEL rules (`x-kubernetes-validations`) of a schema, compiled once and evaluated for objects.
//!
//! kube-cel evaluates. This module adds what the API server does around it: rules do not see nulls (`has()` would be true),
//! transition rules run only with an old object, and every result except `true` rejects the object. Ratcheting, with which
//! the API server tolerates unchanged violations on update, is not implemented: a violation is reported even if the stored
//! object has it too.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{FieldError, Rule};

/// All rules of one schema tree.
#[derive(Debug)]
pub struct CelRules {
    compiled: kube_cel::CompiledSchema,
    /// The message of each rule, by its expression. kube-cel reports a failed evaluation without the message. Rules
    /// with equal expressions have equal messages.
    messages: BTreeMap<String, String>,
}

impl CelRules {
    /// Compiles every rule of an OpenAPI v3 schema; the error names the first rule that does not compile.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        let compiled = kube_cel::compile_schema(schema);
        match first_compilation_error(&compiled) {
            Some(error) => Err(error),
            None => {
                let messages = nodes(&compiled)
                    .into_iter()
                    .flat_map(|node| node.validations.iter().flatten())
                    .filter_map(|found| Some((found.rule.rule.clone(), found.rule.message.clone()?)))
                    .collect();
                Ok(Self { compiled, messages })
            }
        }
    }

    /// The number of rules, over all nodes of the schema.
    pub fn rule_count(&self) -> usize {
        nodes(&self.compiled).iter().map(|node| node.validations.len()).sum()
    }

    /// Evaluates all rules. The objects must have no nulls and be within the limits of `validate`.
    pub fn errors(&self, object: &Value, old_object: Option<&Value>) -> Vec<FieldError> {
        let Err(failures) = kube_cel::validate_compiled(&self.compiled, object, old_object) else {
            return Vec::new();
        };
        let mut errors: Vec<FieldError> =
            failures.into_vec().into_iter().map(|failure| self.field_error(failure)).collect();
        // kube-cel iterates hash maps; the order of errors must not depend on it.
        errors.sort();
        errors
    }

    fn field_error(&self, failure: kube_cel::ValidationError) -> FieldError {
        let message = match failure.kind {
            kube_cel::ErrorKind::ValidationFailure => failure.message,
            // The evaluation failed; for example, the rule reads a field that the object does not have.
            _ => {
                let cause = failure.message.trim_start_matches("rule evaluation error: ").to_lowercase();
                let rule = self.messages.get(&failure.rule).unwrap_or(&failure.rule);
                format!("{cause} evaluating rule: {rule}")
            }
        };
        FieldError::new(failure.field_path, Rule::Cel, message)
            .with_valid(format!("a value for which {}", failure.rule))
    }
}

fn nodes(root: &kube_cel::CompiledSchema) -> Vec<&kube_cel::CompiledSchema> {
    let mut found = Vec::new();
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        found.push(node);
        pending.extend(node.properties.values());
        pending.extend(node.items.as_deref());
        pending.extend(node.additional_properties.as_deref());
        pending.extend(node.all_of.iter().chain(&node.one_of).chain(&node.any_of));
    }
    found
}

fn first_compilation_error(root: &kube_cel::CompiledSchema) -> Option<String> {
    nodes(root).iter().find_map(|node| node.compilation_errors().first().map(ToString::to_string))
}
