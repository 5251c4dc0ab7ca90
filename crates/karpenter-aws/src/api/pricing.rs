//! The price list service.

use super::AwsFuture;

/// What is asked of the price list.
pub trait Pricing: Send + Sync {
    /// `pricing:GetProducts` of the service AmazonEC2, all pages: each product as the JSON text AWS sends.
    fn get_products<'a>(&'a self, query: &'a ProductQuery) -> AwsFuture<'a, Vec<String>>;
}

/// Which products: every filter is an exact match on a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProductQuery {
    /// Field and value, such as `("regionCode", "us-east-1")`.
    pub filters: Vec<(String, String)>,
}

impl ProductQuery {
    pub fn value(&self, field: &str) -> Option<&str> {
        self.filters.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
    }
}
