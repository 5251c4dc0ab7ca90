//! Runs the fuzz targets on the stable compiler with a fixed number of seeded mutations of the examples. `cargo fuzz`
//! (see CONTRIBUTING.md) tries more inputs.

#[path = "../../../../fuzz/bodies.rs"]
mod bodies;
mod mutator;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use mutator::{Mutator, Random};

/// Number of inputs per target; a debug build takes some seconds. `FUZZ_SMOKE_INPUTS` sets another number.
fn count(by_default: u64) -> u64 {
    std::env::var("FUZZ_SMOKE_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(by_default)
}

fn seeds() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths: Vec<PathBuf> = ["examples", "fuzz/seeds"]
        .iter()
        .flat_map(|directory| fs::read_dir(root.join(directory)).expect("a directory"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    assert!(paths.len() > 4, "{paths:?}");
    let text = |path| fs::read_to_string(path).expect("UTF-8");
    // The catalog of the fuzz target has no AWS labels, so NodePools that require AWS labels would have no instance
    // types.
    let without_aws = |text: String| {
        let kept = text.lines().filter(|line| !line.contains("karpenter.k8s.aws/instance"));
        kept.flat_map(|line| [line, "\n"]).collect::<String>()
    };
    paths.iter().map(text).map(without_aws).collect()
}

/// Runs a target on mutated inputs, and reports the first input for which it panics.
fn drive(target: &str, inputs: u64, body: fn(&[u8]), mut input: impl FnMut(u64) -> Vec<u8>) {
    for number in 0..inputs {
        let bytes = input(number);
        if catch_unwind(AssertUnwindSafe(|| body(&bytes))).is_err() {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{number}.yaml"));
            fs::write(&kept, &bytes).expect("writable");
            panic!("{target} panics on input {number}, kept in {}", kept.display());
        }
    }
}

#[test]
fn mutated_manifests_never_panic_and_plans_are_valid() {
    let seeds = seeds();
    let mutator = Mutator::new(&seeds);
    drive("manifest", count(150), bodies::manifest, |number| mutator.mutate(&mut Random::new(number)));
}

#[test]
fn unmutated_manifests_pass_every_target() {
    for seed in seeds() {
        bodies::manifest(seed.as_bytes());
        bodies::validate(seed.as_bytes());
    }
}

#[test]
fn validation_never_panics() {
    let seeds = seeds();
    let mutator = Mutator::new(&seeds);
    drive("validate", count(300), bodies::validate, |number| {
        mutator.mutate(&mut Random::new(number + 1_000_000))
    });
}

#[test]
fn quantities_survive_a_round_trip() {
    let signs = ["", "-", "+"];
    let digits = [
        "0",
        "1",
        "9",
        "00",
        "12345678901234567890",
        "999999999999999999999999",
        "0.5",
        ".5",
        "5.",
        "0.0000000001",
    ];
    let suffixes = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-9",
        "e400", "xyz", " ",
    ];
    let mut texts = Vec::new();
    for sign in signs {
        for digit in digits {
            texts.extend(suffixes.map(|suffix| format!("{sign}{digit}{suffix}")));
        }
    }
    let inputs = count(20_000).max(texts.len() as u64);
    drive("quantity", inputs, bodies::quantity, |number| {
        let mut random = Random::new(number);
        match texts.get(number as usize) {
            Some(text) => text.clone().into_bytes(),
            None => {
                let letters = b"0123456789.+-eEnumkKMGTPi";
                (0..random.below(14)).map(|_| letters[random.below(letters.len())]).collect()
            }
        }
    });
}
