//! The AWS Price List service.

use super::AwsFuture;

/// The Price List calls in use.
pub trait Pricing: Send + Sync {
    /// `pricing:GetProducts` of the service AmazonEC2, all pages; each product is the JSON text that AWS returns.
    fn get_products<'a>(&'a self, query: &'a ProductQuery) -> AwsFuture<'a, Vec<String>>;
}

/// Selects products; every filter is an exact match on a field.
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
