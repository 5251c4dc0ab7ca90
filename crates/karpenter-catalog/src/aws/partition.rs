//! The partitions of AWS: worlds of their own, with their own accounts, names and prices.

use super::DEFAULT_REGION;

/// All of them, as ARNs name them.
pub const PARTITIONS: [&str; 8] =
    ["aws", "aws-cn", "aws-eusc", "aws-iso", "aws-iso-b", "aws-iso-e", "aws-iso-f", "aws-us-gov"];

/// By how the names of its regions begin.
const BEGINNINGS: [(&str, &str); 7] = [
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
    BEGINNINGS.iter().find(|(beginning, _)| region.starts_with(beginning)).map_or("aws", |(_, name)| name)
}

/// The region whose prices stand in for those of others in the partition.
pub(super) fn region_of_prices(partition: &str) -> &'static str {
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
