//! The CEL rules (`x-kubernetes-validations`) of a schema: compiled once, and evaluated for each object.
//!
//! kube-cel evaluates the expressions. This module adds what the API server does in addition: nulls are hidden from
//! rules (otherwise `has()` would be true for them), transition rules run only if there is an old object, and every
//! result except `true` rejects the object. Ratcheting is not implemented: on update, the API server tolerates
//! violations that the stored object already has, while this module reports them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{FieldError, Rule};

/// All rules of one schema tree.
#[derive(Debug)]
pub struct CelRules {
    compiled: kube_cel::CompiledSchema,
    /// The message of each rule, by the rule's expression, because kube-cel reports a failed evaluation without the
    /// message. Rules with equal expressions have equal messages.
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

    /// The number of rules in all parts of the schema.
    pub fn rule_count(&self) -> usize {
        nodes(&self.compiled).iter().map(|node| node.validations.len()).sum()
    }

    /// Evaluates all rules and returns the violations. The objects must contain no nulls and must be within the limits
    /// of `validate`.
    pub fn errors(&self, object: &Value, old_object: Option<&Value>) -> Vec<FieldError> {
        let Err(failures) = kube_cel::validate_compiled(&self.compiled, object, old_object) else {
            return Vec::new();
        };
        let mut errors: Vec<FieldError> =
            failures.into_vec().into_iter().map(|failure| self.field_error(failure)).collect();
        // kube-cel iterates hash maps, so errors are sorted to make their order independent of it.
        errors.sort();
        errors
    }

    fn field_error(&self, failure: kube_cel::ValidationError) -> FieldError {
        let message = match failure.kind {
            kube_cel::ErrorKind::ValidationFailure => failure.message,
            // The rule could not be evaluated, for example because it reads a field that the object lacks.
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
