//! Findings and their codes. The codes are part of the command's contract; docs/lint.md lists them.

/// The severity of a finding.
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
        /// The kind of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All codes, in the order of docs/lint.md.
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
    /// Two NodePools with the same weight could both launch a node for the same pod.
    PoolsOverlap = "L01" Warning,
    /// A NodePool that no pod can select, or that no workload of the input selects.
    PoolUnselectable = "L02" Warning,
    /// A label distinguishes NodePools, but without a taint other pods may run on their nodes too.
    LabelDoesNotRepel = "L03" Warning,
    /// A workload requires nodes that no NodePool can launch.
    NoMatchingPool = "L04" Error,
    /// No instance type meets the requirements of a NodePool.
    PoolWithoutTypes = "L05" Error,
    /// A container has no CPU or memory requests.
    RequestsMissing = "L06" Warning,
    /// Every NodePool that fits the workload has a taint that the workload does not tolerate.
    TaintNotTolerated = "L07" Error,
    /// Karpenter may be scheduled onto nodes that it manages.
    KarpenterOnOwnNodes = "L08" Error,
    /// consolidateAfter contradicts the consolidation policy, or is not shorter than expireAfter.
    ConsolidateAfterConflict = "L09" Warning,
    /// Budgets never allow a disruption that the policy enables.
    BudgetNeverOpens = "L10" Warning,
    /// The schedule of a budget matches no date.
    BudgetNeverApplies = "L11" Warning,
    /// A workload selects the label of Provisioners, which nodes of v1 NodePools do not have.
    ProvisionerNameSelected = "L12" Error,
    /// A container mounts a volume that the pod does not define.
    VolumeMissing = "L13" Error,
    /// A node that Karpenter does not manage has the label that selects a NodePool.
    LabelShared = "L14" Warning,
    /// The node class of a NodePool is not among the node classes of the input.
    ClassMissing = "L15" Error,
    /// Pods have the annotation do-not-evict, which only protects them on nodes of Provisioners.
    DoNotEvict = "L16" Warning,
    /// A budget has an invalid schedule, which blocks disruption of every node of its NodePool.
    BudgetUnreadable = "L17" Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    /// Position of the object in the input.
    pub input: usize,
    /// `Kind namespace/name`.
    pub object: String,
    pub field: String,
    /// The problem and its effect: lower case, no full stop.
    pub why: String,
    /// The change that resolves the finding.
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
