//! Short names for templates. The value differs from the one a real control plane computes (that one depends on how
//! Go prints its structs); what matters is that equal templates get equal names.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Serialize;

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a over the object's JSON form and a count of earlier collisions, in letters that spell no words.
pub fn short_hash<T: Serialize>(object: &T, collision_count: Option<i32>) -> String {
    // Kubernetes types always have a JSON form.
    let mut bytes = serde_json::to_vec(object).unwrap_or_default();
    if let Some(count) = collision_count {
        bytes.extend(count.to_le_bytes());
    }
    safe_encode(&fnv32a(&bytes).to_string())
}

pub fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn safe_encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// The template without the label that a workload controller put on it.
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
