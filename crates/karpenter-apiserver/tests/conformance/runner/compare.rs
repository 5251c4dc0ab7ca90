//! Compares a transcript with the recorded one; distinguishes known differences from new ones.

use std::fmt::Write as _;
use std::fs;

use serde::Deserialize;
use serde_json::Value;

use super::script::{Area, Script};
use super::transcript::Transcript;
use super::{Error, folder};

/// A difference between two responses, at one place.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) script: String,
    pub(crate) step: String,
    pub(crate) action: String,
    pub(crate) area: Area,
    /// The place, as a JSON pointer into the response.
    pub(crate) place: String,
    /// The recorded value; `None` if the recorded response has nothing at this place.
    pub(crate) recorded: Option<Value>,
    pub(crate) actual: Option<Value>,
}

/// A difference that is accepted, with its reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownDifference {
    /// The title under which docs/embedded-cluster.md describes the difference.
    pub(crate) title: String,
    /// The reason, which is written for readers of the file and not used here.
    #[allow(dead_code)]
    pub(crate) reason: String,
    #[serde(rename = "where")]
    pub(crate) places: Vec<KnownPlace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownPlace {
    /// The script in which the difference may occur; `None` for all scripts.
    pub(crate) script: Option<String>,
    /// The step in which the difference may occur, by name or by prefix followed by `*`; `None` for all steps.
    pub(crate) step: Option<String>,
    /// The place in the response where the difference may occur, including everything below it; `*` matches one
    /// segment. `None` for the whole response.
    pub(crate) place: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFile {
    differences: Vec<KnownDifference>,
}

pub(crate) fn load_known() -> Result<Vec<KnownDifference>, Error> {
    let text = fs::read_to_string(folder().join("differences.yaml"))?;
    let file: KnownFile = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    Ok(file.differences)
}

impl KnownPlace {
    pub(crate) fn covers(&self, difference: &Difference) -> bool {
        let step = |wanted: &String| match wanted.strip_suffix('*') {
            Some(beginning) => difference.step.starts_with(beginning),
            None => *wanted == difference.step,
        };
        self.script.as_ref().is_none_or(|script| *script == difference.script)
            && self.step.as_ref().is_none_or(step)
            && self.place.as_ref().is_none_or(|place| is_at_or_below(place, &difference.place))
    }
}

fn is_at_or_below(pattern: &str, place: &str) -> bool {
    let mut segments = place.split('/');
    pattern.split('/').all(|wanted| segments.next().is_some_and(|segment| wanted == "*" || wanted == segment))
}

/// All differences between the responses of one script and the recorded ones.
pub(crate) fn differences(
    script: &Script,
    recorded: &Transcript,
    actual: &Transcript,
) -> Result<Vec<Difference>, Error> {
    let mut found = Vec::new();
    for (position, step) in script.steps.iter().enumerate() {
        let recorded = recorded
            .steps
            .iter()
            .find(|candidate| candidate.name == step.name)
            .filter(|candidate| candidate.fingerprint == step.fingerprint())
            .ok_or_else(|| {
                format!("{}: step {:?} is not recorded as it is now: record again", script.name, step.name)
            })?;
        let actual = actual.steps.get(position).ok_or("a step without answer")?;
        let mut places = Vec::new();
        walk(Some(&recorded.answer), Some(&actual.answer), &mut String::new(), &mut places);
        for (place, recorded, actual) in places {
            found.push(Difference {
                script: script.name.clone(),
                step: step.name.clone(),
                action: step.action(),
                area: step.area.unwrap_or(script.area),
                place,
                recorded,
                actual,
            });
        }
    }
    if recorded.steps.len() != script.steps.len() {
        return Err(format!("{}: steps were removed: record again", script.name).into());
    }
    Ok(found)
}

type Place = (String, Option<Value>, Option<Value>);

fn walk(recorded: Option<&Value>, actual: Option<&Value>, place: &mut String, found: &mut Vec<Place>) {
    let length = place.len();
    match (recorded, actual) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let _ = write!(place, "/{}", name.replace('~', "~0").replace('/', "~1"));
                walk(left.get(name), right.get(name), place, found);
                place.truncate(length);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for position in 0..left.len().max(right.len()) {
                let _ = write!(place, "/{position}");
                walk(left.get(position), right.get(position), place, found);
                place.truncate(length);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push((place.clone(), left.cloned(), right.cloned())),
    }
}

/// The differences that no known difference covers, and the known differences that do not occur.
pub(crate) fn match_known<'a>(
    differences: &'a [Difference],
    known: &'a [KnownDifference],
) -> (Vec<&'a Difference>, Vec<&'a KnownPlace>) {
    let places: Vec<&KnownPlace> = known.iter().flat_map(|entry| &entry.places).collect();
    let covered = |difference: &Difference| places.iter().any(|place| place.covers(difference));
    let unknown = differences.iter().filter(|difference| !covered(difference)).collect();
    let used = |place: &KnownPlace| differences.iter().any(|difference| place.covers(difference));
    let unused = places.iter().filter(|place| !used(place)).copied().collect();
    (unknown, unused)
}

/// The number of steps that have differences.
pub(crate) fn count_steps(differences: &[&Difference]) -> usize {
    let mut steps: Vec<_> =
        differences.iter().map(|difference| (&difference.script, &difference.step)).collect();
    steps.sort();
    steps.dedup();
    steps.len()
}

/// A report for readers, grouped by area, script and step.
pub(crate) fn report(differences: &[&Difference]) -> String {
    let mut sorted = differences.to_vec();
    sorted.sort_by_key(|difference| difference.area);
    let mut text = String::new();
    let mut area = None;
    for step in sorted.chunk_by(|a, b| (&a.script, &a.step) == (&b.script, &b.step)) {
        let first = step[0];
        if area.replace(first.area) != Some(first.area) {
            let _ = writeln!(text, "\n## {}", format!("{:?}", first.area).to_uppercase());
        }
        let _ = writeln!(text, "\n- **{} / {}** `{}`", first.script, first.step, first.action);
        // If only one of the servers rejects the request, the bodies of the responses cannot be compared.
        let status_differs = step.iter().any(|difference| difference.place == "/status");
        let is_relevant = |difference: &&&Difference| {
            !status_differs || ["/status", "/body/message"].contains(&difference.place.as_str())
        };
        for difference in step.iter().filter(is_relevant).take(PLACES_PER_STEP_MAX) {
            let side = |value: &Option<Value>| match value {
                None => String::from("(nothing)"),
                Some(value) => shortened(&value.to_string()),
            };
            let _ = writeln!(text, "  - `{}`", difference.place);
            let _ = writeln!(text, "    - real: `{}`", side(&difference.recorded));
            let _ = writeln!(text, "    - here: `{}`", side(&difference.actual));
        }
        if !status_differs && step.len() > PLACES_PER_STEP_MAX {
            let _ = writeln!(text, "  - and {} more places", step.len() - PLACES_PER_STEP_MAX);
        }
    }
    text
}

const PLACES_PER_STEP_MAX: usize = 10;

fn shortened(text: &str) -> String {
    const LIMIT: usize = 700;
    if text.chars().count() <= LIMIT {
        return text.to_owned();
    }
    text.chars().take(LIMIT).chain("...".chars()).collect()
}
