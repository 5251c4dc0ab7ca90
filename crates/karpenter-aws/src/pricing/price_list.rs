//! Requests to and responses of the AWS Price List. A product that cannot be parsed is counted and skipped.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::is_price;
use crate::api::AwsError;
use crate::api::pricing::ProductQuery;

/// The region whose Price List endpoint is called; only few regions have an endpoint.
pub fn endpoint_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// Whether the Price List has the on-demand prices of a region and can be reached.
pub fn is_listed(region: &str, is_isolated: bool) -> bool {
    !is_isolated && !region.starts_with("us-gov")
}

pub fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") { "CNY" } else { "USD" }
}

/// The two queries for instance prices: one for shared instances, and one for bare metal, which the list has only with
/// dedicated tenancy.
pub fn queries(region: &str) -> [ProductQuery; 2] {
    let query = |tenancy: &str, family: &str| {
        let filters = [
            ("preInstalledSw", "NA"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
            ("marketoption", "OnDemand"),
            ("tenancy", tenancy),
            ("productFamily", family),
        ];
        product_query(region, &filters)
    };
    [query("Shared", "Compute Instance"), query("Dedicated", "Compute Instance (bare metal)")]
}

/// A query for EC2 products in the region.
pub(super) fn product_query(region: &str, filters: &[(&str, &str)]) -> ProductQuery {
    let common = [("regionCode", region), ("serviceCode", "AmazonEC2")];
    let filters = common.iter().chain(filters);
    ProductQuery {
        filters: filters.map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect(),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Product {
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
    usagetype: String,
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
    unit: String,
    #[serde(rename = "pricePerUnit")]
    price_per_unit: BTreeMap<String, String>,
}

pub(super) fn read(product: &str) -> Result<Product, serde_json::Error> {
    serde_json::from_str(product)
}

impl Product {
    fn dimensions(&self) -> impl Iterator<Item = &PriceDimension> {
        self.terms.on_demand.values().flat_map(|term| term.price_dimensions.values())
    }

    /// The lowest price that the product has in the currency.
    pub(super) fn price(&self, currency: &str) -> Option<f64> {
        let prices = self
            .dimensions()
            .filter_map(|dimension| dimension.price_per_unit.get(currency)?.parse::<f64>().ok());
        prices.filter(|price| is_price(*price)).min_by(f64::total_cmp)
    }

    /// The unit for which the price is charged, such as `GB-Mo`.
    pub(super) fn unit(&self) -> Option<&str> {
        self.dimensions().next().map(|dimension| dimension.unit.as_str())
    }

    pub(super) fn usage_type(&self) -> &str {
        &self.product.attributes.usagetype
    }
}

/// The instance type and the price of a product; `None` if it has no price in the currency. If there are several
/// prices, the lowest is used.
pub fn price_of(product: &str, currency: &str) -> Result<Option<(String, f64)>, serde_json::Error> {
    let product = read(product)?;
    let price = product.price(currency);
    let instance_type = product.product.attributes.instance_type;
    Ok(price.filter(|_| !instance_type.is_empty()).map(|price| (instance_type, price)))
}

/// The merged responses to the two queries.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub prices: BTreeMap<String, f64>,
    /// Why the update must be retried although its prices are used; `None` if it need not be.
    pub problem: Option<String>,
    /// The number of products that could not be read.
    pub unreadable: usize,
}

/// Merges the responses to the two queries (shared instances, bare metal). If one query failed, the response to the
/// other is used. A region may have no bare metal instances, but an empty list of shared instances is an error.
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
