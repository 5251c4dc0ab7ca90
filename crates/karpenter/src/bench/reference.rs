//! Measured speed of upstream's scheduler (version 1.15.0), called directly on two cores with a new scheduler per
//! run. docs/bench.md has the method.

/// Pods per second: lowest and highest measured value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reference {
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

const fn rate(lowest: f64, highest: f64) -> Reference {
    Reference { lowest, highest }
}

pub(crate) const UPSTREAM_MIX: Reference = rate(135.0, 178.0);
pub(crate) const PREFERENCES_RESPECTED: Reference = rate(43.0, 43.0);
pub(crate) const PREFERENCES_IGNORED: Reference = rate(1450.0, 1450.0);
pub(crate) const GRID_DEFAULT: Reference = rate(1430.0, 1540.0);
pub(crate) const GRID_CAPPED: Reference = rate(340.0, 430.0);
pub(crate) const FORTY_DEFAULT: Reference = rate(1050.0, 1530.0);
pub(crate) const FORTY_CAPPED: Reference = rate(100.0, 230.0);
pub(crate) const GPUS: Reference = rate(1200.0, 1200.0);
pub(crate) const CONSTRAINED_DEFAULT: Reference = rate(84.0, 84.0);
pub(crate) const CONSTRAINED_CAPPED: Reference = rate(230.0, 230.0);
