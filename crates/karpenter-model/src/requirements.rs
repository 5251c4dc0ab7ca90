//! Requirements of pods, NodePools, instance types and offerings on node labels: their intersection, and whether they
//! are compatible.
//!
//! A requirement is a set of allowed values, or the complement of such a set, with optional integer bounds.
//!
//! Upstream: `pkg/scheduling/requirement.go`, `requirements.go`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The eight operators that the API accepts in a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

impl Operator {
    /// Parses an operator's name as the API spells it; `None` for an unknown name.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            "Gte" => Self::Gte,
            "Lte" => Self::Lte,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }
}

/// The allowed values of one label key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    pub key: Arc<str>,
    /// `true`: every value except `values`; `false`: only `values`.
    pub complement: bool,
    pub values: BTreeSet<Arc<str>>,
    pub gte: Option<i64>,
    pub lte: Option<i64>,
    pub min_values: Option<u32>,
}

impl Requirement {
    /// Builds a requirement. For operators with a numeric bound, a value that is not an integer gives a requirement
    /// that no value satisfies. Manifests are validated before, so this is only a safe fallback.
    pub fn new<I, S>(key: impl Into<Arc<str>>, operator: Operator, values: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<Arc<str>>,
    {
        let key = key.into();
        let values: BTreeSet<Arc<str>> = values.into_iter().map(Into::into).collect();
        let bound = || values.iter().next().and_then(|v| v.parse::<i64>().ok());
        let none = |key: &Arc<str>| Self::bare(key.clone(), false);
        match operator {
            Operator::In => Self { values, ..Self::bare(key, false) },
            Operator::NotIn => Self { values, ..Self::bare(key, true) },
            Operator::Exists => Self::bare(key, true),
            Operator::DoesNotExist => none(&key),
            Operator::Gt => match bound().and_then(|n| n.checked_add(1)) {
                Some(n) => Self { gte: Some(n), ..Self::bare(key, true) },
                None => none(&key),
            },
            Operator::Lt => match bound().and_then(|n| n.checked_sub(1)) {
                Some(n) => Self { lte: Some(n), ..Self::bare(key, true) },
                None => none(&key),
            },
            Operator::Gte => match bound() {
                Some(n) => Self { gte: Some(n), ..Self::bare(key, true) },
                None => none(&key),
            },
            Operator::Lte => match bound() {
                Some(n) => Self { lte: Some(n), ..Self::bare(key, true) },
                None => none(&key),
            },
        }
    }

    fn bare(key: Arc<str>, complement: bool) -> Self {
        Self { key, complement, values: BTreeSet::new(), gte: None, lte: None, min_values: None }
    }

    pub fn in_values<I, S>(key: impl Into<Arc<str>>, values: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<Arc<str>>,
    {
        Self::new(key, Operator::In, values)
    }

    pub fn exists(key: impl Into<Arc<str>>) -> Self {
        Self::bare(key.into(), true)
    }

    pub fn does_not_exist(key: impl Into<Arc<str>>) -> Self {
        Self::bare(key.into(), false)
    }

    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// The operator that describes the requirement after intersections. Numeric bounds do not change it.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// Whether a label value satisfies the requirement.
    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && self.within_bounds(value)
    }

    fn within_bounds(&self, value: &str) -> bool {
        if self.gte.is_none() && self.lte.is_none() {
            return true;
        }
        value
            .parse::<i64>()
            .is_ok_and(|n| self.gte.is_none_or(|bound| n >= bound) && self.lte.is_none_or(|bound| n <= bound))
    }

    /// The requirement that allows exactly the values that both requirements allow. If there are none, it is
    /// `DoesNotExist`.
    pub fn intersection(&self, other: &Self) -> Self {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let min_values = self.min_values.max(other.min_values);
        let mut result = Self::bare(self.key.clone(), false);
        result.min_values = min_values;
        if let (Some(gte), Some(lte)) = (gte, lte)
            && gte > lte
        {
            return result;
        }
        result.complement = self.complement && other.complement;
        result.values = match (self.complement, other.complement) {
            (true, true) => self.values.union(&other.values).cloned().collect(),
            (true, false) => other.values.difference(&self.values).cloned().collect(),
            (false, true) => self.values.difference(&other.values).cloned().collect(),
            (false, false) => self.values.intersection(&other.values).cloned().collect(),
        };
        result.gte = gte;
        result.lte = lte;
        let bounded = result.clone();
        result.values.retain(|value| bounded.within_bounds(value));
        if !result.complement {
            result.gte = None;
            result.lte = None;
        }
        result
    }

    /// Whether some value satisfies both requirements; does not build the intersection.
    pub fn has_intersection(&self, other: &Self) -> bool {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let (Some(gte), Some(lte)) = (gte, lte)
            && gte > lte
        {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (true, false) => other.values.iter().any(|value| self.has(value) && other.within_bounds(value)),
            (false, true) => self.values.iter().any(|value| other.has(value) && self.within_bounds(value)),
            (false, false) => self.values.iter().any(|value| {
                other.values.contains(value) && self.within_bounds(value) && other.within_bounds(value)
            }),
        }
    }

    /// The allowed value, if the requirement allows exactly one.
    pub fn single_value(&self) -> Option<&Arc<str>> {
        if self.complement || self.values.len() != 1 { None } else { self.values.first() }
    }

    /// A value that a node's label may have: the first listed value, or the smallest non-negative integer within the
    /// bounds that is not excluded. `None` if the label must not exist.
    pub fn any_value(&self) -> Option<Arc<str>> {
        if !self.complement {
            return self.values.first().cloned();
        }
        let low = self.gte.unwrap_or(0).max(0);
        let high = self.lte.unwrap_or(i64::MAX);
        // The requirement excludes at most |values| integers, so at least one of |values| + 1 consecutive integers is
        // allowed.
        (0..=self.values.len() as i64)
            .filter_map(|step| low.checked_add(step))
            .take_while(|n| *n <= high)
            .map(|n| n.to_string())
            .find(|text| !self.values.contains(text.as_str()))
            .map(Into::into)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 5;
        write!(f, "{} {}", self.key, self.operator().as_str())?;
        if !self.values.is_empty() {
            let shown: Vec<&str> = self.values.iter().take(SHOWN_MAX).map(AsRef::as_ref).collect();
            write!(f, " [{}", shown.join(" "))?;
            if self.values.len() > SHOWN_MAX {
                write!(f, " and {} others", self.values.len() - SHOWN_MAX)?;
            }
            f.write_str("]")?;
        }
        if let Some(bound) = self.gte {
            write!(f, " >={bound}")?;
        }
        if let Some(bound) = self.lte {
            write!(f, " <={bound}")?;
        }
        if let Some(min) = self.min_values {
            write!(f, " minValues {min}")?;
        }
        Ok(())
    }
}

/// Why two sets of requirements are incompatible, for one label key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Incompatible {
    /// The node's requirements do not define the key, and the key is not one that may be undefined.
    Undefined { wanted: Requirement, hint: Option<Arc<str>> },
    /// Both sides define the key, and no value satisfies both.
    Conflict { offered: Requirement, wanted: Requirement },
}

/// A set of requirements, at most one per label key, all of which must be met.
///
/// Clones share their content until one of them changes; even then they share the requirements that did not change. A
/// catalog has tens of thousands of instance types and offerings, and most of their requirements are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirements {
    /// The requirements, sorted by key. There are at most a few dozen; for so few, a list is faster than a tree.
    all: Arc<Vec<Arc<Requirement>>>,
}

impl Requirements {
    pub fn new() -> Self {
        Self::default()
    }

    /// One `In` requirement per label, with the label's value.
    pub fn from_labels<'a, I>(labels: I) -> Self
    where
        I: IntoIterator<Item = (&'a Arc<str>, &'a Arc<str>)>,
    {
        labels.into_iter().map(|(key, value)| Requirement::in_values(key.clone(), [value.clone()])).collect()
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.all.binary_search_by(|present| (*present.key).cmp(key))
    }

    /// Returns the list for modification, after copying it if it is shared. The copy has capacity for `count` more
    /// requirements, because most changes add some.
    fn unshared_with_capacity(&mut self, count: usize) -> &mut Vec<Arc<Requirement>> {
        if Arc::get_mut(&mut self.all).is_none() {
            let mut copy = Vec::with_capacity(self.all.len() + count);
            copy.extend_from_slice(&self.all);
            self.all = Arc::new(copy);
        }
        Arc::make_mut(&mut self.all)
    }

    /// Adds a requirement. If there is one for the same key, the result is their intersection.
    pub fn add(&mut self, requirement: Requirement) {
        self.add_shared(Arc::new(requirement));
    }

    /// Like [`Requirements::add`], for a requirement that other sets share.
    pub fn add_shared(&mut self, requirement: Arc<Requirement>) {
        let position = self.position(&requirement.key);
        let all = self.unshared_with_capacity(1);
        match position {
            Ok(position) => all[position] = Arc::new(all[position].intersection(&requirement)),
            Err(position) => all.insert(position, requirement),
        }
    }

    pub fn extend(&mut self, others: &Self) {
        if self.is_empty() {
            self.all = Arc::clone(&others.all);
            return;
        }
        self.unshared_with_capacity(others.len());
        for requirement in &*others.all {
            self.add_shared(Arc::clone(requirement));
        }
    }

    /// Replaces the requirement for the same key, if there is one.
    pub fn replace(&mut self, requirement: Requirement) {
        let position = self.position(&requirement.key);
        let all = Arc::make_mut(&mut self.all);
        match position {
            Ok(position) => all[position] = Arc::new(requirement),
            Err(position) => all.insert(position, Arc::new(requirement)),
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        // If the key is missing, the list need not be copied, so this is checked first.
        let position = self.position(key).ok()?;
        Some(Arc::unwrap_or_clone(Arc::make_mut(&mut self.all).remove(position)))
    }

    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.position(key).ok().map(|position| &*self.all[position])
    }

    pub fn has_key(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.all.iter().map(|requirement| &**requirement)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.iter().map(|requirement| &requirement.key)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn has_min_values(&self) -> bool {
        self.iter().any(|requirement| requirement.min_values.is_some())
    }

    /// Whether, for every key that both sets define, some value satisfies both. Two requirements that only exclude
    /// values never conflict.
    pub fn intersects(&self, incoming: &Self) -> bool {
        self.first_conflict(incoming).is_none()
    }

    /// The first key, in alphabetical order, for which `intersects` fails.
    pub fn first_conflict(&self, incoming: &Self) -> Option<Incompatible> {
        let (small, large) = if self.len() <= incoming.len() { (self, incoming) } else { (incoming, self) };
        for one in small.iter() {
            let Some(other) = large.get(&one.key) else { continue };
            if one.has_intersection(other) || (only_excludes(one) && only_excludes(other)) {
                continue;
            }
            let (offered, wanted) = if std::ptr::eq(small, self) { (one, other) } else { (other, one) };
            return Some(Incompatible::Conflict { offered: offered.clone(), wanted: wanted.clone() });
        }
        None
    }

    /// Whether a node with the requirements `self` satisfies `incoming`, for example those of a pod. `self` must define
    /// every key of `incoming`, except keys in `open` and keys for which `incoming` only excludes values.
    pub fn compatible(&self, incoming: &Self, open: &BTreeSet<Arc<str>>) -> Result<(), Incompatible> {
        for wanted in incoming.iter() {
            if self.has_key(&wanted.key) || only_excludes(wanted) || open.contains(&wanted.key) {
                continue;
            }
            let hint = typo_hint(&wanted.key, self.keys().chain(open.iter()));
            return Err(Incompatible::Undefined { wanted: wanted.clone(), hint });
        }
        match self.first_conflict(incoming) {
            Some(conflict) => Err(conflict),
            None => Ok(()),
        }
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(iter: I) -> Self {
        iter.into_iter().map(Arc::new).collect()
    }
}

impl FromIterator<Arc<Requirement>> for Requirements {
    fn from_iter<I: IntoIterator<Item = Arc<Requirement>>>(iter: I) -> Self {
        let mut requirements = Self::new();
        for requirement in iter {
            requirements.add_shared(requirement);
        }
        requirements
    }
}

impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

fn only_excludes(requirement: &Requirement) -> bool {
    matches!(requirement.operator(), Operator::NotIn | Operator::DoesNotExist)
}

/// A known key that the user may have meant by `key`: one of the two contains the other, or the parts after '/' are
/// equal.
fn typo_hint<'a>(key: &str, known: impl Iterator<Item = &'a Arc<str>>) -> Option<Arc<str>> {
    let suffix = key.rsplit('/').next().unwrap_or(key);
    known
        .filter(|candidate| {
            let candidate: &str = candidate;
            candidate != key
                && (candidate.contains(key)
                    || key.contains(candidate)
                    || candidate.rsplit('/').next() == Some(suffix))
        })
        .min()
        .cloned()
}

#[cfg(test)]
mod tests;
