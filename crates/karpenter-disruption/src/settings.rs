//! Settings of the whole process. Settings of a NodePool are in [`crate::cluster::PoolPolicy`].

/// Which methods of consolidation are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Rebalance: replaces several nodes by several cheaper ones, planned for the whole cluster, with several commands
    /// at once.
    #[default]
    Cost,
    /// Upstream's methods, one command at a time: nothing is evaluated while a command awaits its validation.
    Compat,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub mode: Mode,
    /// Feature gate `SpotToSpotConsolidation`.
    pub spot_to_spot: bool,
    /// Feature gate `TerminateFirstDrift`.
    pub terminate_first_drift: bool,
    /// Feature gate `TerminateFirstRepair`.
    pub terminate_first_repair: bool,
    /// The number of work units of a search; the same number gives the same commands on every machine.
    pub effort: u64,
    /// The share of the lowest price of a NodePool's pods that moving all of them has to save.
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
            saving_ratio: 0.08,
        }
    }
}
