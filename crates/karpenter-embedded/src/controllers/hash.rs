//! Short hashes of templates. The value differs from upstream's, which depends on how Go prints its structs; equal
//! templates have equal hashes.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use karpenter_model::stdx::fnv32a;
use serde::Serialize;

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a of the object's JSON and the collision count, in an alphabet without vowels, so that hashes do not form
/// words.
pub fn short_hash<T: Serialize>(object: &T, collision_count: Option<i32>) -> String {
    let mut bytes = serde_json::to_vec(object).unwrap_or_default();
    if let Some(count) = collision_count {
        bytes.extend(count.to_le_bytes());
    }
    safe_encode(&fnv32a(&bytes).to_string())
}

fn safe_encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// The template without the label that a workload controller added.
pub fn without_label(template: &PodTemplateSpec, label: &str) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        meta.labels = meta.labels.take().map(|mut labels| {
            labels.remove(label);
            labels
        });
        meta.labels.take_if(|labels| labels.is_empty());
    }
    template
}
