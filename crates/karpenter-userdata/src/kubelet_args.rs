//! The kubelet's command line arguments, for AMI families whose bootstrap script accepts them.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use crate::input::{Input, Kubelet};

/// All arguments, joined by spaces. The argument for taints is always present, so that no default of the AMI applies.
pub(crate) fn line(input: &Input) -> String {
    let taints: Vec<String> = input.taints.iter().map(ToString::to_string).collect();
    let mut arguments: Vec<String> = node_labels(input).into_iter().collect();
    arguments.push(format!("--register-with-taints={}", quoted(&taints.join(","))));
    configuration(&input.kubelet, &mut arguments);
    arguments.join(" ")
}

/// The flag with the node's labels. A kubelet configuration file cannot contain labels, so every family except
/// Bottlerocket uses this flag.
pub(crate) fn node_labels(input: &Input) -> Option<String> {
    pairs("--node-labels", &input.labels, "=")
}

fn configuration(kubelet: &Kubelet, arguments: &mut Vec<String>) {
    let single = |name: &str, value: Option<&dyn Display>| value.map(|value| format!("{name}={value}"));
    let number =
        |name: &str, value: &Option<i32>| single(name, value.as_ref().map(|value| value as &dyn Display));
    arguments.extend(
        [
            number("--max-pods", &kubelet.max_pods),
            number("--pods-per-core", &kubelet.pods_per_core),
            pairs("--system-reserved", &kubelet.system_reserved, "="),
            pairs("--kube-reserved", &kubelet.kube_reserved, "="),
            pairs("--eviction-hard", &kubelet.eviction_hard, "<"),
            pairs("--eviction-soft", &kubelet.eviction_soft, "<"),
            pairs("--eviction-soft-grace-period", &kubelet.eviction_soft_grace_period, "="),
            number("--eviction-max-pod-grace-period", &kubelet.eviction_max_pod_grace_period_seconds),
            number("--image-gc-high-threshold", &kubelet.image_gc_high_threshold_percent),
            number("--image-gc-low-threshold", &kubelet.image_gc_low_threshold_percent),
            single("--cpu-cfs-quota", kubelet.cpu_cfs_quota.as_ref().map(|value| value as &dyn Display)),
        ]
        .into_iter()
        .flatten(),
    );
}

fn pairs<V: Display>(name: &str, values: &BTreeMap<String, V>, separator: &str) -> Option<String> {
    if values.is_empty() {
        return None;
    }
    let joined: Vec<String> = values.iter().map(|(key, value)| format!("{key}{separator}{value}")).collect();
    Some(format!("{name}={}", quoted(&joined.join(","))))
}

/// The text in double quotes, escaped like Go's `%q`, which upstream uses.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            character if character.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        for (text, expected) in [
            ("", r#""""#),
            ("a=b,c=d", r#""a=b,c=d""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("a\nb\tc\rd\u{1}", r#""a\nb\tc\rd\x01""#),
            ("grün", "\"grün\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
