//! AWS partitions (groups of regions), each with its own accounts, ARNs and prices.

use super::DEFAULT_REGION;

/// The names of all partitions, as in ARNs.
pub const PARTITIONS: [&str; 8] =
    ["aws", "aws-cn", "aws-eusc", "aws-iso", "aws-iso-b", "aws-iso-e", "aws-iso-f", "aws-us-gov"];

/// The partition of each prefix of region names; regions with other names are in the partition `aws`.
const REGION_PREFIXES: [(&str, &str); 7] = [
    ("cn-", "aws-cn"),
    ("eu-isoe-", "aws-iso-e"),
    ("eusc-", "aws-eusc"),
    ("us-gov-", "aws-us-gov"),
    ("us-iso-", "aws-iso"),
    ("us-isob-", "aws-iso-b"),
    ("us-isof-", "aws-iso-f"),
];

/// The partition that a region belongs to.
pub fn of_region(region: &str) -> &'static str {
    REGION_PREFIXES.iter().find(|(prefix, _)| region.starts_with(prefix)).map_or("aws", |(_, name)| name)
}

/// The region whose prices apply to regions of the partition that have no price table.
pub(super) fn fallback_price_region(partition: &str) -> &'static str {
    match partition {
        "aws-cn" => "cn-north-1",
        "aws-us-gov" => "us-gov-west-1",
        _ => DEFAULT_REGION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_belong_to_partitions() {
        for (region, expected) in [
            ("us-west-2", "aws"),
            ("eu-central-1", "aws"),
            ("cn-northwest-1", "aws-cn"),
            ("us-gov-east-1", "aws-us-gov"),
            ("us-iso-west-1", "aws-iso"),
            ("us-isob-east-1", "aws-iso-b"),
            ("eu-isoe-west-1", "aws-iso-e"),
            ("us-isof-south-1", "aws-iso-f"),
            ("eusc-de-east-1", "aws-eusc"),
            ("", "aws"),
        ] {
            assert_eq!(of_region(region), expected, "{region}");
            assert!(PARTITIONS.contains(&expected));
        }
    }
}
