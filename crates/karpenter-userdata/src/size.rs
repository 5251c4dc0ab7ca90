//! Whether user data is small enough for EC2.

/// EC2 refuses to launch with more than this, counted before base64.
pub const LIMIT_BYTES: usize = 16_384;

/// Nine tenths of the limit: from here on an operator should hear of it, because labels and taints still grow.
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
    fn verdicts_change_exactly_at_the_two_bounds() {
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
    fn bytes_count_and_not_characters() {
        assert_eq!(Size::of("ä").bytes, 2);
    }
}
