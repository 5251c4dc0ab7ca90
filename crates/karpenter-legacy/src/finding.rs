//! What a conversion has to say: errors, warnings and notes with stable codes.
//!
//! The codes are part of the command's contract; docs/convert.md lists them. Nothing here decides when one applies.

use std::fmt;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing changes for anybody.
    Note,
    /// The result is usable and differs from what the old object did.
    Warning,
    /// There is no result for the object.
    Error,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The kind of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All codes, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it is printed: a letter for its weight and a number.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

codes! {
    /// A taint without an effect, which v1 refuses.
    EmptyTaintEffect = "E01",
    /// The container runtime was docker.
    Dockerd = "W02",
    /// Expiration was graceful and read live; in v1 it is forceful and frozen into each node.
    ForcefulExpiration = "W03",
    /// The disruption budgets and the drift of v1 apply, because that was asked for.
    CurrentDefaults = "W04",
    /// Images of Amazon Linux 2 exist only below Kubernetes 1.33.
    AmazonLinux2 = "W05",
    /// No images are published for Ubuntu that v1 could find by itself.
    UbuntuWithoutImages = "E06",
    /// A label counts as the requirement that would otherwise have been defaulted.
    LabelAsRequirement = "W07",
    /// A label that nodes no longer carry.
    LabelGone = "W08",
    /// Tags of images no longer restrict which nodes they are for.
    ImageTagRequirements = "W09",
    /// Custom user data has to register the node with a taint.
    CustomRegistration = "W10",
    /// More selector terms than v1 allows.
    TooManyTerms = "E11",
    /// Ids together with tags, which v1 cannot combine.
    IdsWithTags = "E12",
    /// The IAM identity of the nodes is not in the object.
    IdentityUnknown = "W13",
    /// A tag that v1 keeps for itself.
    ReservedTag = "W14",
    /// The Name tag of instances changes.
    NameTag = "W15",
    /// Unmanaged launch templates are not supported.
    LaunchTemplate = "E16",
    /// Whether instances get a public address is left to the subnet.
    PublicAddress = "W17",
    /// The old API would have refused the object.
    NeverValid = "E18",
    /// Kubelet settings belong to the node class, and it is not in the input.
    KubeletWithoutClass = "E19",
    /// Two objects of the input would have one name.
    NameTaken = "E20",
    /// Pods of a workload ask to be left alone in words that v1 does not know.
    DoNotEvict = "W21",
    /// The pool may launch kinds of instances that nobody asked for.
    OddFamilies = "N01",
    /// A kind that is not converted because the controller makes its objects.
    ControllerKind = "N02",
    /// The node class is not in the input.
    ClassElsewhere = "N03",
    /// A node class of its own, because kubelet settings belong to the class now.
    ClassSplit = "N04",
    /// An annotation has a new name.
    AnnotationRenamed = "N05",
}

impl Code {
    pub fn severity(self) -> Severity {
        match self.as_str().as_bytes().first() {
            Some(b'E') => Severity::Error,
            Some(b'W') => Severity::Warning,
            _ => Severity::Note,
        }
    }
}

/// One thing to know about the conversion of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    /// Position of the object in the input.
    pub input: usize,
    /// `Kind name`.
    pub object: String,
    /// The field of the old object, as in `spec.requirements[0].values`.
    pub field: String,
    /// What is the matter: lower case, no full stop.
    pub message: String,
    /// What to do about it; empty where there is nothing to do.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.code.as_str(), self.object)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if !self.fix.is_empty() {
            write!(f, " (fix: {})", self.fix)?;
        }
        Ok(())
    }
}

/// Collects what is found about one object.
#[derive(Debug)]
pub(crate) struct Report {
    input: usize,
    object: String,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(input: usize, object: impl Into<String>) -> Self {
        Self { input, object: object.into(), findings: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        code: Code,
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.findings.push(Finding {
            code,
            input: self.input,
            object: self.object.clone(),
            field: field.into(),
            message: message.into(),
            fix: fix.into(),
        });
    }

    /// What the old API's admission would have said.
    pub(crate) fn never_valid(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(Code::NeverValid, field, message, fix);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.code.severity() == Severity::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_different_and_say_how_much_they_weigh() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        assert_eq!(Code::NeverValid.severity(), Severity::Error);
        assert_eq!(Code::AmazonLinux2.severity(), Severity::Warning);
        assert_eq!(Code::OddFamilies.severity(), Severity::Note);
    }
}
