//! Findings of a conversion: errors, warnings and notes with stable codes.
//!
//! The codes are part of the command's contract; docs/convert.md lists them. Other modules decide when one applies.

use std::fmt;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Information; the behaviour does not change.
    Note,
    /// The result is usable, but behaves differently from the input object.
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
            /// All codes, in the order of docs/convert.md.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The printed code: a letter for the severity and a number.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

codes! {
    /// A taint with an empty effect, which v1 rejects.
    EmptyTaintEffect = "E01",
    /// The container runtime was docker.
    Dockerd = "W02",
    /// Expiration was graceful and followed edits; in v1 it is forceful and fixed for each NodeClaim.
    ForcefulExpiration = "W03",
    /// The default budget and drift of v1 apply, by request of the user.
    V1Defaults = "W04",
    /// AMIs of Amazon Linux 2 exist for Kubernetes before 1.33 only.
    AmazonLinux2 = "W05",
    /// v1 has no alias for Ubuntu AMIs, so the AMIs must be selected explicitly.
    UbuntuWithoutImages = "E06",
    /// A label has the same key as a default requirement, which is therefore not added.
    LabelAsRequirement = "W07",
    /// The object uses a label that v1 nodes do not have.
    LabelRemoved = "W08",
    /// AMI tags do not restrict the nodes of an AMI in v1.
    ImageTagRequirements = "W09",
    /// Custom user data must register the node with the taint `karpenter.sh/unregistered`.
    CustomRegistration = "W10",
    /// The selector needs more terms than v1 allows.
    TooManyTerms = "E11",
    /// A selector combines ids with tags, which v1 cannot combine.
    IdsWithTags = "E12",
    /// The object contains neither the role nor the instance profile of the nodes.
    IdentityUnknown = "W13",
    /// A tag that v1 reserves.
    ReservedTag = "W14",
    /// The Name tag of instances changes.
    NameTag = "W15",
    /// Unmanaged launch templates are not supported.
    LaunchTemplate = "E16",
    /// In v1, the setting of the subnet decides whether instances get a public address.
    PublicAddress = "W17",
    /// The v1alpha5 or v1beta1 API would have rejected the object.
    NeverValid = "E18",
    /// In v1, kubelet settings are part of the node class, and the node class is not in the input.
    KubeletWithoutClass = "E19",
    /// Two objects of the input result in the same name.
    NameTaken = "E20",
    /// A pod template has `karpenter.sh/do-not-evict`, which has no effect in v1.
    DoNotEvict = "W21",
    /// The requirements only exclude instance types, so that special purpose types may be launched.
    ExclusionOnly = "N01",
    /// Objects of this kind are created by the controller and are not converted.
    ControllerKind = "N02",
    /// The node class is not in the input.
    ClassNotInInput = "N03",
    /// An additional node class was added, because kubelet settings are part of the class in v1.
    ClassSplit = "N04",
    /// An annotation was renamed.
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

/// A finding about the conversion of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    /// Position of the object in the input.
    pub input: usize,
    /// `Kind name`.
    pub object: String,
    /// The field of the input object, such as `spec.requirements[0].values`.
    pub field: String,
    /// The problem: lower case, no full stop.
    pub message: String,
    /// The fix; empty if none is needed.
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

/// Collects the findings of one object.
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

    /// Adds an error for a field that the API would have rejected.
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
    fn codes_are_unique_and_determine_severity() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        assert_eq!(Code::NeverValid.severity(), Severity::Error);
        assert_eq!(Code::AmazonLinux2.severity(), Severity::Warning);
        assert_eq!(Code::ExclusionOnly.severity(), Severity::Note);
    }
}
