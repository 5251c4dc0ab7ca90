//! The names of the resources in an account, kept within AWS's length limits.

use super::Rule;

const ROLE_LENGTH_MAX: usize = 64;
const POLICY_LENGTH_MAX: usize = 128;
const QUEUE_LENGTH_MAX: usize = 80;
const RULE_LENGTH_MAX: usize = 64;

/// The name itself, or, if it is too long, its beginning and a digest that keeps it unique.
fn fitted(name: &str, length_max: usize) -> String {
    if name.len() <= length_max {
        return name.to_owned();
    }
    let end = format!("-{:08x}", digest(name));
    let kept: String = name.chars().take(length_max.saturating_sub(end.len())).collect();
    kept + &end
}

/// A digest by FNV-1a, which never changes between versions of Karpenter, so that resources keep their names.
fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

pub(super) fn policy(name: &str, cluster: &str) -> String {
    fitted(&format!("{name}-{cluster}"), POLICY_LENGTH_MAX)
}

pub(super) fn rule(rule: &Rule, cluster: &str) -> String {
    fitted(&format!("Karpenter{}-{cluster}", rule.name), RULE_LENGTH_MAX)
}

/// The default name of the node role.
pub fn node_role_name(cluster: &str) -> String {
    fitted(&format!("KarpenterNodeRole-{cluster}"), ROLE_LENGTH_MAX)
}

/// The default name of the controller role.
pub fn controller_role_name(cluster: &str) -> String {
    fitted(&format!("KarpenterControllerRole-{cluster}"), ROLE_LENGTH_MAX)
}

/// The default name of the interruption queue, which is the cluster name.
pub fn queue_name(cluster: &str) -> String {
    fitted(cluster, QUEUE_LENGTH_MAX)
}

/// Parses a queue name from the command line.
pub fn parse_queue(text: &str) -> Result<String, String> {
    let is_valid = (1..=QUEUE_LENGTH_MAX).contains(&text.len())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "valid: up to {QUEUE_LENGTH_MAX} letters, digits, hyphens and underscores, no address"
        )),
    }
}

/// The name and the path of an IAM role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleName {
    /// The path of the role; it begins and ends with a slash.
    pub path: String,
    pub name: String,
}

impl RoleName {
    pub fn plain(name: impl Into<String>) -> Self {
        Self { path: "/".to_owned(), name: name.into() }
    }

    /// Parses `name` or `path/name`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (path, name) = text.rsplit_once('/').unwrap_or(("", text));
        let is_word = |word: &str| {
            !word.is_empty()
                && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "+=,.@_-".contains(letter))
        };
        let path = path.strip_prefix('/').unwrap_or(path);
        if !is_word(name) || !(path.is_empty() || path.split('/').all(is_word)) {
            return Err(
                "valid: the name of a role, or its path and name such as team/nodes; no ARN".to_owned()
            );
        }
        if name.len() > ROLE_LENGTH_MAX {
            return Err(format!("valid: a name of up to {ROLE_LENGTH_MAX} characters"));
        }
        let path = if path.is_empty() { "/".to_owned() } else { format!("/{path}/") };
        Ok(Self { path, name: name.to_owned() })
    }

    pub(super) fn resource(&self) -> String {
        format!("role{}{}", self.path, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RULES;
    use super::*;

    #[test]
    fn long_names_are_shortened_and_stay_unique() {
        for length in [1, 20, 46, 47, 64, 80, 81, 100] {
            let [one, other] = ["a", "b"].map(|last| "c".repeat(length - 1) + last);
            for (of, length_max) in [
                (node_role_name as fn(&str) -> String, 64),
                (controller_role_name, 64),
                (queue_name, 80),
                (|cluster| policy("KarpenterControllerResourceDiscoveryPolicy", cluster), 128),
                (|cluster| rule(&RULES[4], cluster), 64),
            ] {
                let (name, its) = (of(&one), of(&other));
                assert!(name.len() <= length_max, "{name}");
                assert_ne!(name, its);
                assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)));
            }
        }
        assert_eq!(node_role_name("shop"), "KarpenterNodeRole-shop");
        assert_eq!(queue_name("shop"), "shop");
        assert_eq!(rule(&RULES[4], "shop"), "KarpenterCapacityReservationInterruption-shop");
        // The name must be the same in every version of Karpenter.
        let long = "KarpenterNodeRole-ccccccccccccccccccccccccccccccccccccc-487f6fee";
        assert_eq!(node_role_name(&"c".repeat(100)), long);
    }

    #[test]
    fn role_is_parsed_with_path() {
        let of = |text: &str| RoleName::parse(text).map(|role| role.resource());
        assert_eq!(of("nodes").as_deref(), Ok("role/nodes"));
        assert_eq!(of("/nodes").as_deref(), Ok("role/nodes"));
        assert_eq!(of("team/a/nodes").as_deref(), Ok("role/team/a/nodes"));
        for wrong in ["", "/", "a//b", "a/", "*", "arn:aws:iam::111122223333:role/nodes", "a b", "ä"] {
            assert!(RoleName::parse(wrong).is_err(), "{wrong}");
        }
        assert!(RoleName::parse(&"r".repeat(65)).is_err());
        assert!(parse_queue("shop-1").is_ok());
        for wrong in ["", "https://sqs/1/shop", "shop.fifo"] {
            assert!(parse_queue(wrong).is_err(), "{wrong}");
        }
        assert!(parse_queue(&"q".repeat(81)).is_err());
    }
}
