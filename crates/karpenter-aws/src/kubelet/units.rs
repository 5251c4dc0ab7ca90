//! What a bare number means for a resource, and how coarse it may be.

/// Steps that nobody would write finer by hand; without them every instance type would need a launch template of its
/// own.
const CPU_STEP_MILLICORES: i64 = 10;
const MEMORY_STEP_MIB: i64 = 16;

/// A reservation that was worked out, as a quantity: cpu in millicores, memory in MiB, storage in GiB, the rest as is.
pub(super) fn quantity(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" => format!("{}m", round_up(amount, CPU_STEP_MILLICORES)),
        "memory" => format!("{}Mi", round_up(amount, MEMORY_STEP_MIB)),
        "ephemeral-storage" => format!("{amount}Gi"),
        _ => amount.to_string(),
    }
}

/// Up, because too little kept for the system harms a node and a little too much does not. What cannot be rounded
/// without overflowing stays as it is.
fn round_up(amount: i64, step: i64) -> i64 {
    match amount % step {
        rest if rest > 0 => amount.checked_add(step - rest).unwrap_or(amount),
        _ => amount,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_become_quantities() {
        for (resource, amount, expected) in [
            ("cpu", 0, "0m"),
            ("cpu", 1, "10m"),
            ("cpu", 10, "10m"),
            ("cpu", 11, "20m"),
            ("cpu", 480, "480m"),
            ("memory", 0, "0Mi"),
            ("memory", 1, "16Mi"),
            ("memory", 16, "16Mi"),
            ("memory", 630, "640Mi"),
            ("ephemeral-storage", 3, "3Gi"),
            ("pid", 1001, "1001"),
            ("cpu", i64::MAX, "9223372036854775807m"),
            ("cpu", i64::MAX - 8, "9223372036854775800m"),
        ] {
            assert_eq!(quantity(resource, amount), expected, "{resource} {amount}");
        }
    }
}
