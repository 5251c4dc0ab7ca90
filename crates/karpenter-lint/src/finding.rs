//! Findings and their codes. Users may rely on the codes, which docs/lint.md lists.

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The manifest works, but probably not as intended.
    Warning,
    /// Cannot work.
    Error,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal $severity:ident,)*) => {
        /// What a finding is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All codes, in the order in which docs/lint.md lists them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// Two NodePools with the same weight can both launch a node for the same pod.
    PoolsOverlap = "L01" Warning,
    /// No pod can select the NodePool, or no workload in the input does.
    PoolUnselectable = "L02" Warning,
    /// A label distinguishes NodePools, but there is no taint, so other pods may run on their nodes as well.
    LabelDoesNotRepel = "L03" Warning,
    /// A workload requires a node that no NodePool can launch.
    NoMatchingPool = "L04" Error,
    /// No instance type meets the requirements of the NodePool.
    PoolWithoutTypes = "L05" Error,
    /// A container states no CPU or memory requests.
    RequestsMissing = "L06" Warning,
    /// Every NodePool that fits the workload has a taint that the workload does not tolerate.
    TaintNotTolerated = "L07" Error,
    /// Karpenter may be scheduled onto nodes that it manages itself.
    KarpenterOnOwnNodes = "L08" Error,
    /// `consolidateAfter` contradicts the consolidation policy, or it is not shorter than `expireAfter`.
    ConsolidateAfterConflict = "L09" Warning,
    /// The budgets never allow a disruption that the consolidation policy enables.
    BudgetNeverOpens = "L10" Warning,
    /// The schedule of a budget matches no date, so the budget never applies.
    BudgetNeverApplies = "L11" Warning,
    /// A workload selects the label that names a Provisioner, which nodes of v1 NodePools do not have.
    ProvisionerNameSelected = "L12" Error,
    /// A container mounts a volume that its pod does not define.
    VolumeMissing = "L13" Error,
    /// A node that Karpenter does not manage has the label by which pods select a NodePool.
    LabelShared = "L14" Warning,
    /// The input has node classes, but not the one that the NodePool refers to.
    ClassMissing = "L15" Error,
    /// Pods have the annotation do-not-evict, which protects them only on nodes of Provisioners.
    DoNotEvict = "L16" Warning,
    /// A budget has an invalid schedule, which blocks the disruption of every node of its NodePool.
    BudgetUnreadable = "L17" Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    /// The index of the object in the input.
    pub input: usize,
    /// `Kind namespace/name`.
    pub object: String,
    pub field: String,
    /// What is wrong and what it causes, in lower case and without a full stop.
    pub why: String,
    /// The change after which the finding is no longer reported.
    pub fix: String,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn add(
        &mut self,
        code: Code,
        (input, object): (usize, &str),
        field: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let object = object.to_owned();
        self.findings.push(Finding {
            code,
            input,
            object,
            field: field.into(),
            why: why.into(),
            fix: fix.into(),
        });
    }

    pub(crate) fn into_sorted(mut self) -> Vec<Finding> {
        self.findings.sort_by(|one, other| {
            (one.input, one.code, &one.field).cmp(&(other.input, other.code, &other.field))
        });
        self.findings
    }
}
