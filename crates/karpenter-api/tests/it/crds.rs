//! Tests of the embedded CRDs: they are complete, agree with the lookup table, and have patterns with the same meaning
//! in both regular expression engines.

use karpenter_api::crds;
use serde_json::Value;

fn documents() -> Vec<(&'static crds::Crd, Value)> {
    crds::all()
        .iter()
        .chain(crds::legacy())
        .map(|crd| {
            (crd, serde_saphyr::from_str(crd.yaml).unwrap_or_else(|error| panic!("{}: {error}", crd.name)))
        })
        .collect()
}

fn visit(schema: &Value, path: &str, visitor: &mut impl FnMut(&str, &Value)) {
    visitor(path, schema);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        visit(child, &format!("{path}.{name}"), visitor);
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            visit(&schema[keyword], &format!("{path}.{keyword}"), visitor);
        }
    }
}

#[test]
fn lookup_table_matches_manifests() {
    for (crd, document) in documents() {
        assert_eq!(document["apiVersion"], "apiextensions.k8s.io/v1");
        assert_eq!(document["kind"], "CustomResourceDefinition");
        assert_eq!(document["metadata"]["name"], crd.name);
        assert_eq!(document["spec"]["group"], crd.group);
        assert_eq!(document["spec"]["names"]["kind"], crd.kind);
        assert_eq!(document["spec"]["names"]["listKind"], format!("{}List", crd.kind));
        assert_eq!(document["spec"]["scope"], if crd.namespaced { "Namespaced" } else { "Cluster" });
        let versions = document["spec"]["versions"].as_array().expect("versions");
        assert_eq!(versions.len(), 1, "{} has one version", crd.name);
        assert_eq!(versions[0]["name"], crd.version);
        assert_eq!(versions[0]["served"], true);
        assert_eq!(versions[0]["storage"], true);
        assert!(versions[0]["subresources"]["status"].is_object(), "{} has a status subresource", crd.name);
        let is_legacy = crds::legacy().iter().any(|legacy| std::ptr::eq(legacy, crd));
        match crds::find(&crd.api_version(), crd.kind) {
            Some(found) => assert!(std::ptr::eq(found, crd) && !is_legacy),
            None => assert!(is_legacy),
        }
    }
}

#[test]
fn lookup_needs_group_version_and_kind() {
    assert!(crds::find("karpenter.sh/v1", "NodePool").is_some());
    assert!(crds::find("karpenter.sh/v1beta1", "NodePool").is_none());
    assert!(crds::find("karpenter.sh/v1", "nodepool").is_none());
    assert!(crds::find("karpenter.sh", "NodePool").is_none());
    assert!(crds::find("v1", "Pod").is_none());
}

#[test]
fn every_schema_compiles_with_all_of_its_rules() {
    let counts: Vec<(&str, usize)> =
        crds::all().iter().chain(crds::legacy()).map(|crd| (crd.kind, crd.schema().rule_count())).collect();
    assert_eq!(
        counts,
        [
            ("NodePool", 21),
            ("NodeClaim", 11),
            ("NodeOverlay", 8),
            ("EC2NodeClass", 44),
            ("KWOKNodeClass", 0),
            ("CapacityBuffer", 2),
            ("Provisioner", 10),
            ("AWSNodeTemplate", 4)
        ]
    );
}

#[test]
fn every_field_is_described() {
    for (crd, document) in documents() {
        visit(&document["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut |path, schema| {
            let description = schema["description"].as_str().unwrap_or_default();
            let is_free = path == ".metadata";
            assert!(is_free || description.len() > 8, "{}{path} has no description", crd.name);
            assert!(is_free || description.ends_with('.'), "{}{path}: {description}", crd.name);
        });
    }
}

/// `\d`, `\s` and `\w` match only ASCII in the API server's regular expression engine, but Unicode in ours, so patterns
/// must not use them.
#[test]
fn patterns_mean_the_same_in_every_engine() {
    for (crd, document) in documents() {
        visit(&document["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut |path, schema| {
            let pattern = schema["pattern"].as_str().unwrap_or_default();
            for class in ["\\d", "\\s", "\\w", "\\b"] {
                assert!(!pattern.contains(class), "{}{path}: {pattern}", crd.name);
            }
        });
    }
}

/// If a default violated its own schema, every object would be invalid.
#[test]
fn defaults_satisfy_their_schemas() {
    for (crd, document) in documents() {
        visit(&document["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut |path, schema| {
            let Some(default) = schema.get("default") else { return };
            let parsed = karpenter_api::schema::Schema::parse(schema).expect("a schema");
            let mut value = default.clone();
            parsed.apply_defaults(&mut value);
            let findings = parsed.check(path, &value);
            assert!(findings.errors.is_empty(), "{}{path}: {:?}", crd.name, findings.errors);
        });
    }
}
