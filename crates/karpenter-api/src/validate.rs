//! Validates manifests of Karpenter's kinds and applies defaults.
//!
//! `admit` does what the API server does with our CRDs and strict field validation. `validate` additionally checks the
//! rules that controllers enforce. Objects of other kinds are rejected, so the caller must leave them out.

mod limits;
mod metadata;

use serde_json::Value;

use crate::cel::CelRules;
use crate::crds::{self, Crd};
use crate::error::{FieldError, Rule};
use crate::runtime::runtime_errors;
use crate::schema::{Schema, SchemaError, closest_name, short_text};

pub use metadata::{errors as metadata_errors, is_label_value, is_qualified_name};

/// Everything that the API server checks for one version of one kind.
#[derive(Debug)]
pub struct ObjectSchema {
    structure: Schema,
    rules: CelRules,
    /// The JSON pointer to the field that the scale subresource reads as replicas.
    replicas: Option<String>,
}

impl ObjectSchema {
    /// Compiles the schema (`openAPIV3Schema`) of a CRD version.
    pub fn compile(document: &Value) -> Result<Self, SchemaError> {
        let mut structure = Schema::parse(document)?;
        structure.set_property("metadata", metadata::schema()?);
        let rules = CelRules::compile(document).map_err(SchemaError::BadRule)?;
        Ok(Self { structure, rules, replicas: None })
    }

    /// Compiles the schema of the first version in a CRD manifest.
    pub fn from_crd_yaml(yaml: &str) -> Result<Self, SchemaError> {
        let crd: Value =
            serde_saphyr::from_str(yaml).map_err(|error| SchemaError::BadCrd(error.to_string()))?;
        let document = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").ok_or_else(|| {
            SchemaError::BadCrd("spec.versions[0].schema.openAPIV3Schema is missing".to_string())
        })?;
        let replicas = crd.pointer("/spec/versions/0/subresources/scale/specReplicasPath");
        let replicas = replicas.and_then(Value::as_str).map(|path| path.replace('.', "/"));
        Ok(Self { replicas, ..Self::compile(document)? })
    }

    /// The number of CEL rules in the schema.
    pub fn rule_count(&self) -> usize {
        self.rules.rule_count()
    }

    /// Applies defaults and validates an object as the API server does: on create, or, if `old` is given, on update.
    pub fn admit(&self, object: &Value, old: Option<&Value>) -> Result<Value, Vec<FieldError>> {
        let (object, findings) = self.examine(object, old);
        if findings.errors.is_empty() { Ok(object) } else { Err(findings.errors) }
    }

    fn examine(&self, object: &Value, old: Option<&Value>) -> (Value, crate::schema::Findings) {
        let mut findings = crate::schema::Findings::default();
        findings.errors.extend(limits::errors(object));
        findings.errors.extend(old.into_iter().flat_map(limits::errors));
        if !findings.errors.is_empty() {
            findings.blocks_rules = true;
            return (Value::Null, findings);
        }
        let mut object = object.clone();
        self.structure.apply_defaults(&mut object);
        let walked = self.structure.check("", &object);
        findings.errors.extend(walked.errors);
        findings.errors.extend(metadata::errors(&object));
        findings.errors.extend(self.scale_error(&object));
        findings.blocks_rules = walked.blocks_rules;
        if !findings.blocks_rules {
            let old = old.map(|old| {
                let mut old = old.clone();
                self.structure.apply_defaults(&mut old);
                old
            });
            findings.errors.extend(self.rules.errors(&object, old.as_ref()));
        }
        (object, findings)
    }
}

impl ObjectSchema {
    /// The number of replicas in the scale subresource must fit into 32 bits, whatever the schema allows.
    fn scale_error(&self, object: &Value) -> Option<FieldError> {
        let path = self.replicas.as_deref()?;
        let replicas = object.pointer(path)?.as_i64()?;
        (!(0..=i64::from(i32::MAX)).contains(&replicas)).then(|| {
            let field = path.trim_start_matches('/').replace('/', ".");
            FieldError::new(field, Rule::Bound, format!("invalid value: {replicas}: cannot be scaled to"))
                .with_valid(format!("0 to {}", i32::MAX))
        })
    }
}

/// The error of an object that is too large or too deeply nested for the API server, whatever its kind.
pub fn size_error(object: &Value) -> Option<FieldError> {
    limits::errors(object)
}

/// Checks whether the API server would accept the object; if so, returns the object as it would be stored, with
/// defaults.
pub fn admit(object: &Value, old: Option<&Value>) -> Result<Value, Vec<FieldError>> {
    crd_of(object).map_err(|error| vec![error])?.schema().admit(object, old)
}

/// Checks whether the API server and then the controllers would accept the object; if so, returns it as it would be
/// stored, with defaults. Otherwise returns all errors, those of the API server first.
pub fn validate(object: &Value, old: Option<&Value>) -> Result<Value, Vec<FieldError>> {
    let crd = crd_of(object).map_err(|error| vec![error])?;
    let (object, findings) = crd.schema().examine(object, old);
    let mut errors = findings.errors;
    if !findings.blocks_rules {
        // Controllers repeat some rules of the API server, so each field is reported once. An error of an enclosing
        // field does not suppress one of an inner field, because it may concern another inner field.
        let mut further = runtime_errors(crd.kind, &object);
        further.retain(|error| !errors.iter().any(|known| known.path == error.path));
        errors.extend(further);
    }
    if errors.is_empty() { Ok(object) } else { Err(errors) }
}

fn crd_of(object: &Value) -> Result<&'static Crd, FieldError> {
    let fields = object.as_object().ok_or_else(|| {
        FieldError::new("", Rule::Type, "a manifest must be an object")
            .with_valid("an object with apiVersion and kind")
    })?;
    let text = |name: &str| {
        fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).ok_or_else(|| {
            FieldError::new(name, Rule::Required, "required value").with_valid("a non-empty string")
        })
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    crds::find(api_version, kind).ok_or_else(|| unknown_kind(api_version, kind))
}

fn unknown_kind(api_version: &str, kind: &str) -> FieldError {
    let served: Vec<&Crd> = crds::all().iter().filter(|crd| crd.kind == kind).collect();
    if let Some(crd) = served.first() {
        return FieldError::new(
            "apiVersion",
            Rule::UnknownKind,
            format!("no kind \"{kind}\" in \"{}\"", short_text(api_version)),
        )
        .with_valid(crd.api_version());
    }
    let hint = closest_name(kind, crds::all().iter().map(|crd| crd.kind))
        .map_or(String::new(), |meant| format!("; did you mean \"{meant}\"?"));
    let known = crds::all().iter().map(|crd| format!("{} {}", crd.api_version(), crd.kind));
    FieldError::new(
        "kind",
        Rule::UnknownKind,
        format!("unknown kind \"{}\" in \"{}\"{hint}", short_text(kind), short_text(api_version)),
    )
    .with_valid(known.collect::<Vec<_>>().join(", "))
}
