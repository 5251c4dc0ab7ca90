//! EC2's limit on the size of user data.

/// The maximum size of user data before base64 encoding; EC2 rejects launches with more.
pub const LIMIT_BYTES: usize = 16_384;

/// 90 % of EC2's limit. For larger user data a warning is logged, because labels and taints may still grow.
pub const WARNING_BYTES: usize = 14_745;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub bytes: usize,
    pub verdict: SizeVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeVerdict {
    Fits,
    NearLimit,
    TooLarge,
}

impl Size {
    pub fn of(text: &str) -> Self {
        let bytes = text.len();
        let verdict = match bytes {
            0..WARNING_BYTES => SizeVerdict::Fits,
            WARNING_BYTES..=LIMIT_BYTES => SizeVerdict::NearLimit,
            _ => SizeVerdict::TooLarge,
        };
        Self { bytes, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_changes_at_warning_and_limit() {
        for (bytes, verdict) in [
            (0, SizeVerdict::Fits),
            (14_744, SizeVerdict::Fits),
            (14_745, SizeVerdict::NearLimit),
            (16_384, SizeVerdict::NearLimit),
            (16_385, SizeVerdict::TooLarge),
        ] {
            assert_eq!(Size::of(&"x".repeat(bytes)), Size { bytes, verdict });
        }
    }

    #[test]
    fn size_is_in_bytes() {
        assert_eq!(Size::of("ä").bytes, 2);
    }
}
