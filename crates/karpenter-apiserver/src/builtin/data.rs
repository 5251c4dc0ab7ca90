//! Parses `data/kinds.txt`. The file is compiled into the program, so a malformed line is a programming error, and the
//! parser panics.

use std::collections::HashMap;

use super::{
    BuiltinKind, BuiltinSubresource, Data, FieldInfo, FieldType, ListType, TypeForm, TypeId, TypeInfo,
};

pub(super) fn parse(text: &'static str) -> Data {
    let packages: HashMap<&str, &str> =
        lines(text, "package ").filter_map(|line| line.split_once(' ')).collect();
    let by_alias: HashMap<&str, TypeId> = lines(text, "type ")
        .enumerate()
        .map(|(index, line)| (word(line, 0), TypeId(u16::try_from(index).expect("fewer than 65536 types"))))
        .collect();
    let mut data = Data {
        groups: Vec::new(),
        kinds: Vec::new(),
        types: Vec::new(),
        by_kind: HashMap::new(),
        by_name: HashMap::new(),
    };
    for line in text.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            let owner = data.types.last_mut().expect("a field follows its type");
            owner.fields.push(parse_field(field, &by_alias));
            continue;
        }
        let (head, rest) = line.split_once(' ').expect("a line has at least two words");
        match head {
            "source" | "package" => {}
            "group" => {
                let mut words = rest.split(' ');
                let group = group_name(words.next().expect("a group has a name"));
                data.groups.push((group, words.collect()));
            }
            "kind" => data.kinds.push(parse_kind(rest, &by_alias)),
            "sub" => {
                let owner = data.kinds.last_mut().expect("a subresource follows its kind");
                owner.subresources.push(parse_subresource(rest));
            }
            "type" => {
                let info = parse_type(rest, &packages);
                let id = by_alias[word(rest, 0)];
                data.by_name.insert(info.name.clone(), id);
                if let Some(key) = info.group_version_kind {
                    data.by_kind.insert(key, id);
                }
                data.types.push(info);
            }
            _ => panic!("unknown line: {line}"),
        }
    }
    for info in &mut data.types {
        info.fields.sort_by_key(|field| field.name);
        info.always_written = (0..)
            .zip(&info.fields)
            .filter(|(_, field)| is_always_written(field))
            .map(|(index, _)| index)
            .collect();
    }
    for kind in &data.kinds {
        data.by_kind.insert((kind.group, kind.version, kind.kind), kind.type_id);
    }
    data
}

fn is_always_written(field: &FieldInfo) -> bool {
    // In Go, `omitempty` has no effect on structs.
    let is_struct = matches!(field.field_type, FieldType::Named(_)) && !field.pointer;
    !field.omit_zero && (is_struct || !field.omit_empty)
}

fn lines<'text>(text: &'text str, head: &'static str) -> impl Iterator<Item = &'text str> {
    text.lines().filter_map(move |line| line.strip_prefix(head))
}

fn word(line: &str, index: usize) -> &str {
    line.split(' ').nth(index).expect("the line has this word")
}

fn group_name(text: &'static str) -> &'static str {
    if text == "-" { "" } else { text }
}

fn list(text: &'static str) -> Vec<&'static str> {
    text.split(',').collect()
}

fn parse_kind(line: &'static str, by_alias: &HashMap<&str, TypeId>) -> BuiltinKind {
    let mut kind = BuiltinKind {
        group: group_name(word(line, 0)),
        version: word(line, 1),
        kind: word(line, 2),
        type_id: by_alias[word(line, 3)],
        plural: word(line, 4),
        singular: word(line, 5),
        namespaced: word(line, 6) == "namespaced",
        verbs: list(word(line, 7)),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: None,
        subresources: Vec::new(),
    };
    for option in line.split(' ').skip(8) {
        match option.split_once('=').expect("an option has a value") {
            ("short", value) => kind.short_names = list(value),
            ("categories", value) => kind.categories = list(value),
            ("hash", value) => kind.storage_version_hash = Some(value),
            _ => panic!("unknown option: {option}"),
        }
    }
    kind
}

fn parse_subresource(line: &'static str) -> BuiltinSubresource {
    let (group, version, kind) = group_version_kind(word(line, 1));
    BuiltinSubresource { name: word(line, 0), group, version, kind, verbs: list(word(line, 2)) }
}

fn group_version_kind(text: &'static str) -> (&'static str, &'static str, &'static str) {
    let mut parts = text.split('/');
    let mut next = || parts.next().expect("group/version/kind has three parts");
    (group_name(next()), next(), next())
}

fn parse_type(line: &'static str, packages: &HashMap<&str, &str>) -> TypeInfo {
    let (alias, name) = word(line, 0).split_once('.').expect("a type has a package");
    let form = match word(line, 1) {
        "struct" => TypeForm::Struct,
        "time" => TypeForm::Time,
        "microtime" => TypeForm::MicroTime,
        "duration" => TypeForm::Duration,
        "quantity" => TypeForm::Quantity,
        "intorstring" => TypeForm::IntOrString,
        "fields" => TypeForm::Fields,
        "raw" => TypeForm::Raw,
        "json" => TypeForm::Json,
        "patch" => TypeForm::Patch,
        "schemaorarray" => TypeForm::SchemaOrArray,
        "schemaorbool" => TypeForm::SchemaOrBool,
        "schemaorstrings" => TypeForm::SchemaOrStrings,
        other => panic!("unknown form: {other}"),
    };
    let mut info = TypeInfo {
        name: format!("{}.{name}", packages[alias]),
        form,
        atomic: false,
        group_version_kind: None,
        fields: Vec::new(),
        always_written: Vec::new(),
    };
    for option in line.split(' ').skip(2) {
        match option.split_once('=') {
            Some(("gvk", value)) => info.group_version_kind = Some(group_version_kind(value)),
            _ => info.atomic = option == "atomic",
        }
    }
    info
}

fn parse_field(line: &'static str, by_alias: &HashMap<&str, TypeId>) -> FieldInfo {
    let flags = word(line, 3);
    let mut field = FieldInfo {
        name: word(line, 0),
        field_type: parse_field_type(word(line, 1), by_alias),
        required: flags.contains('r'),
        pointer: flags.contains('p'),
        omit_empty: flags.contains('o'),
        omit_zero: flags.contains('z'),
        default: None,
        list_type: None,
        map_atomic: None,
        patch_merge_key: None,
        patch_strategy: None,
        protobuf: Vec::new(),
        go_type: None,
    };
    let numbers = word(line, 2);
    if numbers != "-" {
        let number = |text: &str| text.parse().expect("a protobuf number");
        field.protobuf = numbers.split('.').map(number).collect();
    }
    for option in line.split(' ').skip(4) {
        match option.split_once('=').expect("an option has a value") {
            ("list", "atomic") => field.list_type = Some(ListType::Atomic),
            ("list", "set") => field.list_type = Some(ListType::Set),
            ("list", keys) => field.list_type = Some(ListType::Map(list(keys))),
            ("map", value) => field.map_atomic = Some(value == "atomic"),
            ("merge", value) => field.patch_merge_key = Some(value),
            ("strategy", value) => field.patch_strategy = Some(value),
            ("go", value) => field.go_type = Some(value),
            ("default", value) => {
                field.default = Some(serde_json::from_str(value).expect("a default is JSON"));
            }
            _ => panic!("unknown option: {option}"),
        }
    }
    field
}

fn parse_field_type(text: &str, by_alias: &HashMap<&str, TypeId>) -> FieldType {
    match text {
        "s" => FieldType::String,
        "y" => FieldType::Bytes,
        "i" => FieldType::Int32,
        "l" => FieldType::Int64,
        "d" => FieldType::Double,
        "b" => FieldType::Boolean,
        _ => match (text.strip_prefix('['), text.strip_prefix('{')) {
            (Some(element), _) => FieldType::List(Box::new(parse_field_type(element, by_alias))),
            (_, Some(element)) => FieldType::Map(Box::new(parse_field_type(element, by_alias))),
            _ => FieldType::Named(by_alias[text]),
        },
    }
}
