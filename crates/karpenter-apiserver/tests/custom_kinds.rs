//! Real definitions with hundreds of accept/reject cases: every verdict must be the one the tables give. The
//! tables are those by which another implementation is tested, so agreement is worth something.

use std::fmt::Write as _;
use std::path::PathBuf;

use karpenter_apiserver::crd::{CustomKind, default_definition, validate_definition};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Table {
    base: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    set: Map<String, Value>,
    repeat: Option<Many>,
    fill: Option<Many>,
    update_from: Option<Map<String, Value>>,
    expect: String,
    path: Option<String>,
    contains: Option<String>,
    #[serde(default)]
    defaulted: Map<String, Value>,
}

#[derive(Deserialize)]
struct Many {
    at: String,
    value: Value,
    times: usize,
}

impl Case {
    fn object(&self, base: &Value) -> Value {
        let mut object = base.clone();
        for pointer in &self.remove {
            let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
            place(&mut object, parent).as_object_mut().expect("an object").remove(name);
        }
        for (pointer, value) in &self.set {
            *place(&mut object, pointer) = value.clone();
        }
        if let Some(many) = &self.repeat {
            *place(&mut object, &many.at) = Value::Array(vec![many.value.clone(); many.times]);
        }
        if let Some(many) = &self.fill {
            let map = place(&mut object, &many.at);
            for number in 0..many.times {
                map[format!("key-{number}")] = many.value.clone();
            }
        }
        object
    }

    fn old_object(&self, base: &Value) -> Option<Value> {
        self.update_from.as_ref().map(|changes| {
            let mut object = base.clone();
            for (pointer, value) in changes {
                *place(&mut object, pointer) = value.clone();
            }
            object
        })
    }
}

fn place<'a>(object: &'a mut Value, pointer: &str) -> &'a mut Value {
    pointer.split('/').skip(1).fold(object, |current, name| match current {
        Value::Array(elements) => &mut elements[name.parse::<usize>().expect("an index")],
        _ => &mut current[name],
    })
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../karpenter-api").join(name)
}

fn documents(folder: PathBuf) -> Vec<(String, Value)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
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

/// What the API server would say: unknown fields count as errors, as with strict field validation.
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

#[test]
fn every_case_has_the_expected_verdict() {
    let kinds = kinds();
    let mut report = String::new();
    let mut count = 0;
    for (name, table) in documents(folder("tests/cases")) {
        let table: Table = serde_json::from_value(table).expect("a table");
        let kind = table.base["kind"].as_str().expect("a kind");
        let kind = kinds.iter().find(|found| found.kind() == kind).expect("a kind of our definitions");
        for case in &table.cases {
            // Rules that only a controller knows are not in the schema.
            if case.contains.as_deref().is_some_and(|text| text.starts_with("runtime")) {
                continue;
            }
            count += 1;
            let verdict = admit(kind, case.object(&table.base), case.old_object(&table.base));
            let complaint = match (&verdict, case.expect.as_str()) {
                (Ok(stored), "accept") => case.defaulted.iter().find_map(|(pointer, expected)| {
                    let actual = stored.pointer(pointer);
                    (actual != Some(expected)).then(|| format!("{pointer} is {actual:?}, not {expected}"))
                }),
                (Ok(_), _) => Some("was accepted".to_string()),
                (Err(errors), "accept") => Some(format!("was rejected: {errors:#?}")),
                (Err(_), _) => None,
            };
            if let Some(complaint) = complaint {
                writeln!(report, "{name}: {}: {complaint} ({:?} {:?})", case.name, case.path, case.contains)
                    .expect("writing to a string");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(count > 400, "only {count} cases were read");
}
