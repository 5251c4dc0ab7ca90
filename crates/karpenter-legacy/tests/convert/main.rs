//! Tests of the conversion of manifests. Every result is validated with the CRDs of v1.

mod beta;
mod fixtures;
mod never_valid;
mod provisioners;

use karpenter_legacy::{Converted, Options, convert};
use serde_json::Value;

pub fn documents(text: &str) -> Vec<Value> {
    let read = karpenter_api::manifest::read("input.yaml", text);
    assert_eq!(read.errors, [], "the fixture is readable");
    read.documents.into_iter().map(|document| document.value).collect()
}

/// Converts manifests, and validates every result with the CRDs of v1.
pub fn converted_with(text: &str, options: &Options) -> Converted {
    let converted = convert(&documents(text), options);
    for object in &converted.objects {
        if let Err(errors) = karpenter_api::validate::validate(&object.value, None) {
            panic!("v1 rejects {}: {errors:?}", object.value);
        }
    }
    converted
}

pub fn converted(text: &str) -> Converted {
    converted_with(text, &Options::default())
}

pub fn codes(converted: &Converted) -> Vec<&'static str> {
    converted.findings.iter().map(|finding| finding.code.as_str()).collect()
}

pub fn values(converted: &Converted) -> Vec<&Value> {
    converted.objects.iter().map(|object| &object.value).collect()
}
