//! What the operator chose for the whole process. What a pool's owner chose is in [`crate::cluster::PoolPolicy`].

/// Which way savings are sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// m nodes for the cheapest n, the whole cluster at once, several commands together.
    #[default]
    Cost,
    /// Upstream's methods, one proposal at a time: while one waits for its second look, nothing else is proposed.
    Compat,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub mode: Mode,
    /// Gate SpotToSpotConsolidation.
    pub spot_to_spot: bool,
    /// Gate TerminateFirstDrift.
    pub terminate_first_drift: bool,
    /// Gate TerminateFirstRepair.
    pub terminate_first_repair: bool,
    /// Work units that a search for cheaper nodes may spend; the same number gives the same commands everywhere.
    pub effort: u64,
    /// Moving all pods of a NodePool has to save this share of its price.
    pub saving_ratio: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            spot_to_spot: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            effort: karpenter_model::problem::EFFORT_DEFAULT,
            saving_ratio: 0.05,
        }
    }
}
