//! The unit and the rounding of a reserved resource whose value is a bare number.

/// The cpu that an expression gives is rounded up to a multiple of this number of millicores. Without rounding, nearly
/// every instance type would need its own launch template.
const CPU_STEP_MILLICORES: i64 = 10;
/// The memory that an expression gives is rounded up to a multiple of this number of MiB, so that instance types can
/// share a launch template.
const MEMORY_STEP_MIB: i64 = 16;

/// Converts the value of an expression to a quantity: cpu is in millicores, memory in MiB, storage in GiB; other
/// resources have no unit.
pub(super) fn quantity(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" => format!("{}m", round_up(amount, CPU_STEP_MILLICORES)),
        "memory" => format!("{}Mi", round_up(amount, MEMORY_STEP_MIB)),
        "ephemeral-storage" => format!("{amount}Gi"),
        _ => amount.to_string(),
    }
}

/// Rounds up, because reserving too little harms the node, while reserving slightly too much does not. If rounding
/// would overflow, returns the amount unchanged.
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
    fn amounts_are_rounded_up_and_get_the_unit_of_the_resource() {
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
