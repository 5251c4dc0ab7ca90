//! Prices of EBS volumes in the AWS Price List, per month: storage, provisioned IOPS and provisioned throughput.
//!
//! A product is recognized by its usage type, such as `EUW2-EBS:VolumeUsage.gp3`; the region's prefix in it is ignored.

use karpenter_catalog::aws::{EbsPrices, VolumePrices};

use super::price_list::{Product, product_query, read};
use crate::api::AwsError;
use crate::api::pricing::ProductQuery;

const MIB_PER_GIB: f64 = 1024.0;

/// The three queries for volume prices: storage, IOPS and throughput.
pub fn queries(region: &str) -> [ProductQuery; 3] {
    [
        product_query(region, &[("productFamily", "Storage")]),
        product_query(region, &[("productFamily", "System Operation"), ("group", "EBS IOPS")]),
        product_query(region, &[("productFamily", "Provisioned Throughput")]),
    ]
}

/// The volume prices that the responses contain.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// The prices found, in the order of the responses.
    listed: Vec<(String, Component, f64)>,
    /// Why the update must be retried although its prices are used; `None` if it need not be.
    pub problem: Option<String>,
    /// The number of products that could not be read.
    pub unreadable: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Component {
    Storage,
    Iops,
    /// The second or the third price tier of IOPS.
    IopsTier(usize),
    Throughput,
}

impl Outcome {
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The known prices, with those in the responses replacing earlier ones. A price missing in the responses is kept.
    pub fn merge(&self, known: &EbsPrices) -> EbsPrices {
        let mut merged = known.clone();
        for (volume_type, component, price) in &self.listed {
            let prices: &mut VolumePrices = merged.get_or_insert(volume_type);
            match component {
                Component::Storage => prices.per_gib = *price,
                Component::Iops if volume_type == "io2" => prices.per_iops[0] = *price,
                Component::Iops => prices.per_iops = [*price; 3],
                Component::IopsTier(tier) => prices.per_iops[*tier] = *price,
                Component::Throughput => prices.per_mibps = *price,
            }
        }
        merged
    }
}

/// Merges the responses to [`queries`]. If a query failed, the responses to the others are used.
pub fn outcome(answers: [Result<Vec<String>, AwsError>; 3], currency: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut problems = Vec::new();
    for answer in answers {
        match answer {
            Ok(products) => {
                for product in &products {
                    match read(product) {
                        Ok(product) => outcome.listed.extend(listed(&product, currency)),
                        Err(_) => outcome.unreadable += 1,
                    }
                }
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    if outcome.listed.is_empty() && problems.is_empty() {
        problems.push("no volume pricing found".to_owned());
    }
    outcome.problem = (!problems.is_empty()).then(|| problems.join("; "));
    outcome
}

fn listed(product: &Product, currency: &str) -> Option<(String, Component, f64)> {
    let (volume_type, component) = component_of(product.usage_type())?;
    let price = product.price(currency)?;
    let is_per_gib = product.unit().is_some_and(|unit| unit.to_ascii_lowercase().starts_with("gib"));
    let price = match component {
        Component::Throughput if is_per_gib => price / MIB_PER_GIB,
        _ => price,
    };
    Some((volume_type, component, price))
}

fn component_of(usage_type: &str) -> Option<(String, Component)> {
    let (_, usage) = usage_type.split_once("EBS:Volume")?;
    let (kind, rest) = usage.split_once('.').unwrap_or((usage, ""));
    let (volume_type, tier) = rest.split_once('.').unwrap_or((rest, ""));
    let component = match (kind, tier) {
        ("Usage", "") => Component::Storage,
        ("P-IOPS", "") => Component::Iops,
        ("P-IOPS", "tier2") => Component::IopsTier(1),
        ("P-IOPS", "tier3") => Component::IopsTier(2),
        ("P-Throughput", "") => Component::Throughput,
        _ => return None,
    };
    // The Price List uses names from before io2 existed.
    let volume_type = match volume_type {
        "" => "standard",
        "piops" => "io1",
        name => name,
    };
    Some((volume_type.to_owned(), component))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn product(usage_type: &str, unit: &str, price: &str) -> String {
        json!({
            "product": {"attributes": {"usagetype": usage_type}},
            "terms": {"OnDemand": {"offer": {"priceDimensions": {"dimension": {
                "unit": unit, "pricePerUnit": {"USD": price},
            }}}}},
        })
        .to_string()
    }

    #[test]
    fn three_queries_cover_storage_iops_and_throughput() {
        let queries = queries("eu-west-1");
        let families = queries.each_ref().map(|query| query.value("productFamily"));
        let expected = ["Storage", "System Operation", "Provisioned Throughput"];
        assert_eq!(families, expected.map(Some));
        assert!(queries.iter().all(|query| query.value("regionCode") == Some("eu-west-1")));
        assert!(queries.iter().all(|query| query.value("serviceCode") == Some("AmazonEC2")));
        assert_eq!(queries[1].value("group"), Some("EBS IOPS"));
    }

    #[test]
    fn listed_prices_replace_embedded_ones() {
        let answers = [
            Ok(vec![
                product("EUW2-EBS:VolumeUsage.gp3", "GB-Mo", "0.2"),
                product("EUW2-EBS:VolumeUsage.piops", "GB-Mo", "0.3"),
                product("EUW2-EBS:VolumeUsage", "GB-Mo", "0.4"),
                product("EUW2-EBS:SnapshotUsage", "GB-Mo", "9"),
                product("EUW2-EBS:VolumeUsage.st1", "GB-Mo", "0.0"),
                "broken".to_owned(),
            ]),
            Ok(vec![
                product("EUW2-EBS:VolumeP-IOPS.gp3", "IOPS-Mo", "0.01"),
                product("EUW2-EBS:VolumeP-IOPS.io2.tier2", "IOPS-Mo", "0.05"),
                product("EUW2-EBS:VolumeP-IOPS.io2", "IOPS-Mo", "0.07"),
            ]),
            Ok(vec![product("EUW2-EBS:VolumeP-Throughput.gp3", "GiBps-mo", "51.2")]),
        ];
        let outcome = outcome(answers, "USD");
        assert_eq!((outcome.problem.as_deref(), outcome.unreadable), (None, 1));
        let known = EbsPrices::embedded("eu-west-2");
        let merged = outcome.merge(&known);
        let gp3 = VolumePrices { per_gib: 0.2, per_iops: [0.01; 3], per_mibps: 0.05 };
        assert_eq!(merged.find("gp3"), Some(&gp3));
        assert_eq!(merged.find("io1").map(|prices| prices.per_gib), Some(0.3));
        assert_eq!(merged.find("standard").map(|prices| prices.per_gib), Some(0.4));
        assert_eq!(merged.find("st1"), known.find("st1"), "a gap removes no price");
        let io2 = merged.find("io2").expect("known");
        assert_eq!(io2.per_iops[..2], [0.07, 0.05]);
        assert_eq!(io2.per_iops[2], known.find("io2").expect("known").per_iops[2]);
    }

    #[test]
    fn failed_query_is_retried_and_the_others_are_used() {
        let throttled = || Err(AwsError::new("ThrottlingException", "slow down"));
        let storage = || Ok(vec![product("EBS:VolumeUsage.gp3", "GB-Mo", "0.2")]);
        let partial = outcome([storage(), throttled(), Ok(Vec::new())], "USD");
        assert!(!partial.is_empty());
        assert_eq!(partial.problem.as_deref(), Some("ThrottlingException: slow down"));
        let none = outcome([Ok(Vec::new()), Ok(Vec::new()), Ok(Vec::new())], "USD");
        assert_eq!(none.problem.as_deref(), Some("no volume pricing found"));
        let wrong_currency = outcome([storage(), Ok(Vec::new()), Ok(Vec::new())], "CNY");
        assert!(wrong_currency.is_empty());
    }
}
