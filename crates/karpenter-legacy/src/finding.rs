//! The findings of a conversion: errors, warnings and notes, each with a code that does not change.
//!
//! Users may rely on the codes, which docs/convert.md lists. Other modules decide when a finding applies.

use std::fmt;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The finding is for information; the behaviour is the same as before.
    Note,
    /// The result can be used, but it behaves differently from the input object.
    Warning,
    /// The object could not be converted.
    Error,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// What a finding is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All codes, in the order in which docs/convert.md lists them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code in print: a letter for the severity, and a number.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

codes! {
    /// A taint has an empty effect, which v1 rejects.
    EmptyTaintEffect = "E01",
    /// The container runtime was docker, which v1 does not support.
    Dockerd = "W02",
    /// Expiration was graceful, and changes of its time applied to existing nodes; in v1 it is forceful, and fixed for
    /// each NodeClaim.
    ForcefulExpiration = "W03",
    /// The user requested the defaults of v1, so v1's default budget and drift apply.
    V1Defaults = "W04",
    /// There are no AMIs of Amazon Linux 2 for Kubernetes 1.33 and later.
    AmazonLinux2 = "W05",
    /// v1 has no alias for Ubuntu AMIs, so the manifest must select AMIs explicitly.
    UbuntuWithoutImages = "E06",
    /// A label has the same key as a default requirement, so the default requirement is not added.
    LabelAsRequirement = "W07",
    /// The object uses a label that nodes do not have in v1.
    LabelRemoved = "W08",
    /// In v1, tags of an AMI do not restrict on which nodes it is used.
    ImageTagRequirements = "W09",
    /// Custom user data must make the node register with the taint `karpenter.sh/unregistered`.
    CustomRegistration = "W10",
    /// The selector would need more terms than v1 allows.
    TooManyTerms = "E11",
    /// A selector combines ids with tags, which v1 does not allow in one term.
    IdsWithTags = "E12",
    /// The object states neither the role nor the instance profile of its nodes.
    IdentityUnknown = "W13",
    /// A tag that v1 reserves.
    ReservedTag = "W14",
    /// In v1, instances get another value of the tag `Name`.
    NameTag = "W15",
    /// The object names an unmanaged launch template, which v1 does not support.
    LaunchTemplate = "E16",
    /// In v1, the subnet's setting decides whether instances get a public address.
    PublicAddress = "W17",
    /// The API server would have rejected the object with the v1alpha5 or v1beta1 API.
    NeverValid = "E18",
    /// In v1, kubelet settings belong to the node class, which the input does not contain.
    KubeletWithoutClass = "E19",
    /// Two objects in the input would give v1 objects with the same name.
    NameTaken = "E20",
    /// A pod template has the annotation `karpenter.sh/do-not-evict`, which has no effect in v1.
    DoNotEvict = "W21",
    /// The requirements only exclude instance types, so types for special purposes may be launched.
    ExclusionOnly = "N01",
    /// The controller creates objects of this kind, so they are not converted.
    ControllerKind = "N02",
    /// The object refers to a node class that the input does not contain.
    ClassNotInInput = "N03",
    /// Another node class was added, because in v1 kubelet settings belong to the class.
    ClassSplit = "N04",
    /// An annotation has another name in v1.
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

/// A finding about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    /// The index of the object in the input.
    pub input: usize,
    /// `Kind name`.
    pub object: String,
    /// The path of the field in the input object, such as `spec.requirements[0].values`.
    pub field: String,
    /// What is wrong, in lower case and without a full stop.
    pub message: String,
    /// What to change; empty if nothing need be changed.
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

    /// Adds an error for a field with which the API server would have rejected the object.
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
