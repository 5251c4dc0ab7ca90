//! Compares custom resources and tables with recorded responses of kube-apiserver (`custom_kinds/README.md`), and with
//! the case tables of karpenter-api. The latter have definitions from practice with hundreds of accepted and rejected
//! objects, and also test karpenter-api's own validation.

use std::fmt::Write as _;
use std::path::PathBuf;

use karpenter_apiserver::crd::{CustomKind, default_definition, normalise_numbers, validate_definition};
use karpenter_apiserver::field::FieldError;
use karpenter_apiserver::table::{self, IncludeObject};
use serde_json::{Value, json};

// The tables and their parser are part of karpenter-api, whose definitions they test.
#[path = "../../../karpenter-api/tests/cases/table.rs"]
mod case_tables;

use case_tables::{Case, Expectation};

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../karpenter-api").join(name)
}

fn documents(folder: PathBuf) -> Vec<(String, Value)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let name = file.file_stem().expect("a name").to_string_lossy().to_string();
            let text = std::fs::read_to_string(&file).expect("a file");
            (name, serde_saphyr::from_str(&text).expect("YAML"))
        })
        .collect()
}

fn kinds() -> Vec<CustomKind> {
    documents(folder("crds"))
        .into_iter()
        .map(|(_, mut crd)| {
            default_definition(&mut crd);
            assert_eq!(validate_definition(&crd, None), Vec::new(), "{}", crd["metadata"]["name"]);
            let version = crd["spec"]["versions"][0]["name"].as_str().expect("a version").to_string();
            CustomKind::from_definition(&crd, &version).expect("a definition")
        })
        .collect()
}

/// Validates an object as the API server does with strict field validation, in which unknown fields are errors.
fn admit(kind: &CustomKind, mut object: Value, old: Option<Value>) -> Result<Value, Vec<String>> {
    let unknown = kind.prune(&mut object);
    kind.default(&mut object);
    let errors = match old {
        None => kind.validate_create(&object),
        Some(mut old) => {
            kind.default(&mut old);
            kind.validate_update(&object, &old)
        }
    };
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.extend(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
    if texts.is_empty() { Ok(object) } else { Err(texts) }
}

/// Whether a case concerns names or versions, which the schema does not check.
fn is_not_about_the_schema(case: &Case) -> bool {
    let path = case.path.as_deref().unwrap_or_default();
    let is_about_names = path == "apiVersion" || path == "kind" || path.starts_with("metadata.");
    is_about_names && !case.contains.as_deref().unwrap_or_default().contains("unknown field")
}

fn answers(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The errors in the form of `details.causes` (field, reason, message), sorted.
fn causes(errors: &[FieldError]) -> Vec<Value> {
    let causes = errors.iter().map(FieldError::cause);
    sorted(causes.map(|cause| json!([cause.field, cause.reason, cause.message])).collect())
}

/// Sorts causes, because kube-apiserver's order of errors depends on hash maps.
fn sorted(mut causes: Vec<Value>) -> Vec<Value> {
    causes.sort_by_key(Value::to_string);
    causes
}

/// Cases for which our message differs: CEL's error for a list where a time is expected.
const DIFFERENT_MESSAGES: [&str; 1] = ["time [\"a\"]"];

#[test]
fn validation_of_objects_matches_recorded_responses() {
    let answers = answers(include_str!("../custom_kinds/objects.json"));
    let mut definition = answers["definition"].clone();
    default_definition(&mut definition);
    assert_eq!(causes(&validate_definition(&definition, None)), Vec::<Value>::new());
    let kind = CustomKind::from_definition(&definition, "v1").expect("a definition");
    let cases = answers["cases"].as_array().expect("cases");
    assert!(cases.len() > 100, "only {} cases", cases.len());
    for case in
        cases.iter().filter(|case| !DIFFERENT_MESSAGES.contains(&case["name"].as_str().unwrap_or_default()))
    {
        let name = &case["name"];
        let mut object = case["object"].clone();
        let unknown = kind.prune(&mut object);
        kind.default(&mut object);
        let errors = match case.get("old") {
            None => kind.validate_create(&object),
            Some(old) => {
                let mut old = old.clone();
                kind.default(&mut old);
                kind.validate_update(&object, &old)
            }
        };
        assert_eq!(causes(&errors), sorted(case["causes"].as_array().expect("causes").clone()), "{name}");
        assert_eq!(json!(unknown), case.get("unknown").cloned().unwrap_or_else(|| json!([])), "{name}");
        if let Some(stored) = case.get("stored") {
            normalise_numbers(&mut object);
            assert_eq!(object.get("spec").unwrap_or(&Value::Null), stored, "{name}");
        }
    }
}

/// The stored object became invalid when the definition became stricter; parts that do not change may stay invalid
/// (ratcheting).
#[test]
fn ratcheting_matches_recorded_responses() {
    let answers = answers(include_str!("../custom_kinds/updates.json"));
    let kind = CustomKind::from_definition(&answers["definition"], "v1").expect("a definition");
    let cases = answers["cases"].as_array().expect("cases");
    assert!(cases.len() > 20, "only {} cases", cases.len());
    for case in cases {
        let (object, old) = (&case["object"], &answers["old"]);
        let errors = if case["status"] == true {
            kind.validate_status_update(object, old)
        } else {
            kind.validate_update(object, old)
        };
        let expected = sorted(case["causes"].as_array().expect("causes").clone());
        assert_eq!(causes(&errors), expected, "{}", case["name"]);
    }
}

#[test]
fn validation_of_definitions_matches_recorded_responses() {
    let answers = answers(include_str!("../custom_kinds/definitions.json"));
    let cases = answers["cases"].as_array().expect("cases");
    assert!(cases.len() > 80, "only {} cases", cases.len());
    for case in cases {
        let mut definition = case["definition"].clone();
        default_definition(&mut definition);
        let found = causes(&validate_definition(&definition, None));
        assert_eq!(found, sorted(case["causes"].as_array().expect("causes").clone()), "{}", case["name"]);
    }
}

#[test]
fn tables_match_recorded_responses() {
    let answers = answers(include_str!("../custom_kinds/tables.json"));
    let now = "2026-11-16T03:10:00Z".parse().expect("a time");
    let kinds = answers["kinds"].as_array().expect("kinds");
    assert!(kinds.len() > 40, "only {} kinds", kinds.len());
    for kind in kinds {
        let part = |name: &str| kind[name].as_str().expect("a text");
        let columns = table::builtin_columns(part("group"), part("version"), part("kind"));
        let definitions: Vec<Value> = columns
            .definitions()
            .iter()
            .map(|column| json!([column.name, column.column_type, column.format, column.priority]))
            .collect();
        assert_eq!(json!(definitions), kind["columns"], "{}", kind["kind"]);
        for row in kind["rows"].as_array().expect("rows") {
            let table = table::render(columns, &[&row["object"]], now, true, IncludeObject::None, "1");
            let rendered = &table["rows"][0];
            let cells = rendered["cells"].as_array().expect("cells");
            let expected = row["cells"].as_array().expect("cells");
            let name = &row["object"]["metadata"]["name"];
            assert_eq!(cells.len(), expected.len(), "{} {name}", kind["kind"]);
            for (cell, expected) in cells.iter().zip(expected) {
                // If the recorded cell is an age, any age is accepted.
                let is_age = cell.as_str().is_some_and(|text| text.ends_with(['s', 'm', 'h', 'd', 'y']));
                match expected {
                    Value::Null => assert!(is_age, "{} {name}: {cell} is no age", kind["kind"]),
                    Value::String(text) if text.contains("(AGE ago)") => {
                        let count = text.split(' ').next();
                        assert_eq!(cell.as_str().and_then(|cell| cell.split(' ').next()), count, "{name}");
                    }
                    _ => assert_eq!(cell, expected, "{} {name}", kind["kind"]),
                }
            }
            assert_eq!(rendered.get("conditions"), row.get("conditions"), "{} {name}", kind["kind"]);
        }
    }
}

#[test]
fn every_case_has_expected_result() {
    let kinds = kinds();
    let mut report = String::new();
    let mut count = 0;
    for (name, table) in case_tables::tables() {
        let kind = table.base["kind"].as_str().expect("a kind");
        let kind = kinds.iter().find(|found| found.kind() == kind).expect("a kind of our definitions");
        for case in &table.cases {
            if is_not_about_the_schema(case) {
                continue;
            }
            count += 1;
            let result = admit(kind, case.object(&table.base), case.old_object(&table.base));
            let error = match (&result, case.expect) {
                (Ok(stored), Expectation::Accept) => case.defaulted.iter().find_map(|(pointer, expected)| {
                    let actual = stored.pointer(pointer);
                    // Clients send 7.0 as 7, so the two count as equal.
                    let is_equal = |actual: &Value| {
                        actual == expected || (actual.is_f64() && actual.as_f64() == expected.as_f64())
                    };
                    (!actual.is_some_and(is_equal))
                        .then(|| format!("{pointer} is {actual:?}, not {expected}"))
                }),
                (Ok(_), _) => Some("was accepted".to_string()),
                (Err(errors), Expectation::Accept) => Some(format!("was rejected: {errors:#?}")),
                (Err(_), _) => None,
            };
            if let Some(error) = error {
                writeln!(report, "{name}: {}: {error} ({:?} {:?})", case.name, case.path, case.contains)
                    .expect("writing to a string");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(count > 400, "only {count} cases were read");
}
