//! What is asked of the price list, and what its answers say. Answers come from outside: whatever cannot be read is
//! counted and left out.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::is_price;
use crate::api::AwsError;
use crate::api::pricing::ProductQuery;

/// The price list has endpoints in few regions; this is the one to ask from a region.
pub fn endpoint_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// Whether a region's on-demand prices can be asked for at all.
pub fn is_listed(region: &str, is_isolated: bool) -> bool {
    !is_isolated && !region.starts_with("us-gov")
}

pub fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") { "CNY" } else { "USD" }
}

/// The two questions: shared machines, and bare metal, which the list has only as dedicated.
pub fn queries(region: &str) -> [ProductQuery; 2] {
    let query = |tenancy: &str, family: &str| ProductQuery {
        filters: [
            ("regionCode", region),
            ("serviceCode", "AmazonEC2"),
            ("preInstalledSw", "NA"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
            ("marketoption", "OnDemand"),
            ("tenancy", tenancy),
            ("productFamily", family),
        ]
        .map(|(field, value)| (field.to_owned(), value.to_owned()))
        .into(),
    };
    [query("Shared", "Compute Instance"), query("Dedicated", "Compute Instance (bare metal)")]
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Product {
    product: ProductBody,
    terms: Terms,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProductBody {
    attributes: Attributes,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attributes {
    #[serde(rename = "instanceType")]
    instance_type: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Terms {
    #[serde(rename = "OnDemand")]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Term {
    #[serde(rename = "priceDimensions")]
    price_dimensions: BTreeMap<String, PriceDimension>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PriceDimension {
    #[serde(rename = "pricePerUnit")]
    price_per_unit: BTreeMap<String, String>,
}

/// Type and price of one product; nothing where it states no price in the currency. Of several prices the lowest
/// counts.
pub fn price_of(product: &str, currency: &str) -> Result<Option<(String, f64)>, serde_json::Error> {
    let product: Product = serde_json::from_str(product)?;
    let prices = product.terms.on_demand.values().flat_map(|term| term.price_dimensions.values());
    let prices = prices.filter_map(|dimension| dimension.price_per_unit.get(currency)?.parse::<f64>().ok());
    let price = prices.filter(|price| is_price(*price)).min_by(f64::total_cmp);
    let instance_type = product.product.attributes.instance_type;
    Ok(price.filter(|_| !instance_type.is_empty()).map(|price| (instance_type, price)))
}

/// What the two answers come to together.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub prices: BTreeMap<String, f64>,
    /// Why it should be asked again soon, although what came is used.
    pub problem: Option<String>,
    /// Products that could not be read.
    pub unreadable: usize,
}

/// Shared machines first, then bare metal. One answer without the other is better than none. A region may be without
/// bare metal, but not without shared machines: that list is empty by mistake.
pub fn outcome(answers: [Result<Vec<String>, AwsError>; 2], currency: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut problems = Vec::new();
    for (answer, is_shared) in answers.into_iter().zip([true, false]) {
        match answer {
            Ok(products) => {
                if is_shared && products.is_empty() {
                    problems.push("no on-demand pricing found".to_owned());
                }
                for product in &products {
                    match price_of(product, currency) {
                        Ok(price) => outcome.prices.extend(price),
                        Err(_) => outcome.unreadable += 1,
                    }
                }
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    if outcome.prices.is_empty() && problems.is_empty() {
        problems.push("no on-demand pricing found".to_owned());
    }
    outcome.problem = (!problems.is_empty()).then(|| problems.join("; "));
    outcome
}
