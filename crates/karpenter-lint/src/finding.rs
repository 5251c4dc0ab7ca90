//! Findings and their codes. The codes are part of the command's contract; docs/lint.md lists them.

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Works, though probably not as meant.
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
            /// All codes, in the order of the documentation.
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
    /// Two pools of one weight could both make the same node.
    PoolsOverlap = "L01" Warning,
    /// A pool that no pod can select, or that no workload of the input does.
    PoolUnselectable = "L02" Warning,
    /// A label that tells pools apart does not keep other pods away.
    LabelDoesNotRepel = "L03" Warning,
    /// A workload asks for nodes that no pool makes.
    NoSuchNode = "L04" Error,
    /// A pool's requirements leave no instance type.
    PoolWithoutTypes = "L05" Error,
    /// A container says nothing about cpu or memory.
    RequestsMissing = "L06" Warning,
    /// Every pool that could take the workload has a taint that it does not tolerate.
    TaintNotTolerated = "L07" Error,
    /// Karpenter may be scheduled onto nodes that it manages.
    KarpenterOnOwnNodes = "L08" Error,
    /// Consolidation is switched on and off at once, or comes after expiration.
    ConsolidationAgainstTime = "L09" Warning,
    /// Budgets close for good what the policy switches on.
    BudgetNeverOpens = "L10" Warning,
    /// A budget whose schedule never comes.
    BudgetNeverApplies = "L11" Warning,
    /// A workload selects by the label of Provisioners, which v1 pools do not put on nodes.
    ProvisionerNameSelected = "L12" Error,
    /// A container mounts a volume that the pod does not have.
    VolumeMissing = "L13" Error,
    /// A node group of somebody else carries the label by which a pool is selected.
    LabelShared = "L14" Warning,
    /// The pool's node class is not among the node classes of the input.
    ClassMissing = "L15" Error,
    /// Pods ask not to be moved by an annotation that counts on nodes of Provisioners only.
    DoNotEvict = "L16" Warning,
    /// A budget whose schedule cannot be read, which keeps every node of its pool.
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
    /// What is the matter and why it matters: lower case, no full stop.
    pub why: String,
    /// What to change.
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
