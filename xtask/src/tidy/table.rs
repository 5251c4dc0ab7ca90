//! The table of which crates may depend on which. ARCHITECTURE.md has the same table; this module compares the two.

use std::path::Path;

use anyhow::{Context, Result};

use super::Findings;

pub(crate) struct Crate {
    pub(crate) name: &'static str,
    /// Whether the crate and everything that it links have no I/O, clock, randomness, logging or async code.
    pub(crate) pure: bool,
    /// The workspace crates that the crate may use. Only crates of rows above this row are named.
    pub(crate) may_use: &'static [&'static str],
}

pub(crate) const CRATES: [Crate; 23] = [
    Crate { name: "karpenter-model", pure: true, may_use: &[] },
    Crate { name: "karpenter-scheduling", pure: true, may_use: &["karpenter-model"] },
    Crate { name: "karpenter-disruption", pure: true, may_use: &["karpenter-model", "karpenter-scheduling"] },
    Crate { name: "karpenter-catalog", pure: true, may_use: &["karpenter-model"] },
    Crate { name: "karpenter-userdata", pure: true, may_use: &["karpenter-model", "karpenter-catalog"] },
    Crate { name: "karpenter-legacy", pure: true, may_use: &["karpenter-model"] },
    Crate { name: "karpenter-lint", pure: true, may_use: &["karpenter-model"] },
    Crate { name: "karpenter-view", pure: true, may_use: &[] },
    Crate {
        name: "karpenter-explain",
        pure: true,
        may_use: &["karpenter-model", "karpenter-scheduling", "karpenter-disruption", "karpenter-view"],
    },
    Crate { name: "karpenter-runtime", pure: false, may_use: &[] },
    Crate { name: "karpenter-api", pure: false, may_use: &["karpenter-model"] },
    Crate {
        name: "karpenter-state",
        pure: false,
        may_use: &[
            "karpenter-model",
            "karpenter-scheduling",
            "karpenter-disruption",
            "karpenter-catalog",
            "karpenter-view",
            "karpenter-explain",
            "karpenter-runtime",
            "karpenter-api",
        ],
    },
    Crate { name: "karpenter-apiserver", pure: false, may_use: &[] },
    Crate { name: "karpenter-embedded", pure: false, may_use: &["karpenter-model", "karpenter-runtime"] },
    Crate { name: "karpenter-cloud", pure: false, may_use: &["karpenter-model", "karpenter-api"] },
    Crate {
        name: "karpenter-kwok",
        pure: false,
        may_use: &[
            "karpenter-model",
            "karpenter-catalog",
            "karpenter-api",
            "karpenter-runtime",
            "karpenter-cloud",
        ],
    },
    Crate {
        name: "karpenter-controllers",
        pure: false,
        may_use: &[
            "karpenter-model",
            "karpenter-scheduling",
            "karpenter-disruption",
            "karpenter-legacy",
            "karpenter-explain",
            "karpenter-api",
            "karpenter-state",
            "karpenter-runtime",
            "karpenter-cloud",
        ],
    },
    Crate {
        name: "karpenter-aws",
        pure: false,
        may_use: &[
            "karpenter-model",
            "karpenter-catalog",
            "karpenter-userdata",
            "karpenter-api",
            "karpenter-state",
            "karpenter-runtime",
            "karpenter-cloud",
            "karpenter-controllers",
        ],
    },
    Crate {
        name: "karpenter-install",
        pure: false,
        may_use: &["karpenter-model", "karpenter-api", "karpenter-runtime", "karpenter-aws"],
    },
    Crate { name: "karpenter-memory", pure: false, may_use: &[] },
    Crate {
        name: "karpenter-aws-sdk",
        pure: false,
        may_use: &["karpenter-catalog", "karpenter-runtime", "karpenter-aws"],
    },
    Crate {
        name: "karpenter",
        pure: false,
        may_use: &[
            "karpenter-model",
            "karpenter-scheduling",
            "karpenter-disruption",
            "karpenter-catalog",
            "karpenter-legacy",
            "karpenter-lint",
            "karpenter-view",
            "karpenter-explain",
            "karpenter-runtime",
            "karpenter-api",
            "karpenter-state",
            "karpenter-apiserver",
            "karpenter-embedded",
            "karpenter-cloud",
            "karpenter-kwok",
            "karpenter-controllers",
            "karpenter-aws",
            "karpenter-install",
            "karpenter-memory",
            "karpenter-aws-sdk",
        ],
    },
    Crate { name: "xtask", pure: false, may_use: &[] },
];

impl Crate {
    /// The row of ARCHITECTURE.md for this crate.
    pub(crate) fn row(&self) -> String {
        let uses: Vec<&str> =
            self.may_use.iter().map(|name| name.strip_prefix("karpenter-").unwrap_or(name)).collect();
        let uses = if uses.is_empty() { "nothing of ours".to_owned() } else { uses.join(", ") };
        format!("| `{}` | {} | {uses} |", self.name, if self.pure { "pure" } else { "edge" })
    }
}

pub(crate) fn check_document(root: &Path, findings: &mut Findings) -> Result<()> {
    let path = root.join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    compare(&text, findings);
    Ok(())
}

fn compare(text: &str, findings: &mut Findings) {
    let expected: Vec<String> = CRATES.iter().map(Crate::row).collect();
    let is_row =
        |line: &&str| line.starts_with("| `") && (line.contains("` | pure |") || line.contains("` | edge |"));
    let found: Vec<&str> = text.lines().map(str::trim_end).filter(is_row).collect();
    for row in &expected {
        if !found.contains(&row.as_str()) {
            findings.error(format!("ARCHITECTURE.md: the dependency table lacks this row: {row}"));
        }
    }
    for row in found {
        if !expected.iter().any(|wanted| wanted == row) {
            findings.error(format!("ARCHITECTURE.md: xtask/src/tidy/table.rs has no such row: {row}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_only_rows_above_it() {
        for (position, entry) in CRATES.iter().enumerate() {
            for used in entry.may_use {
                assert!(CRATES[..position].iter().any(|above| above.name == *used), "{} {used}", entry.name);
            }
        }
    }

    #[test]
    fn missing_and_unknown_rows_are_errors() {
        let mut text: Vec<String> = CRATES.iter().map(Crate::row).collect();
        let mut findings = Findings::default();
        compare(&text.join("\n"), &mut findings);
        assert!(findings.errors.is_empty(), "{:?}", findings.errors);
        text[0] = "| `karpenter-model` | pure | scheduling |".to_owned();
        compare(&text.join("\n"), &mut findings);
        assert_eq!(findings.errors.len(), 2, "{:?}", findings.errors);
    }
}
