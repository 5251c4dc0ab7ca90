//! The AWS Price List service.

use super::AwsFuture;

/// The Price List calls in use.
pub trait Pricing: Send + Sync {
    /// `pricing:GetProducts` of the service AmazonEC2. Returns the products of all pages, each as AWS's JSON text.
    fn get_products<'a>(&'a self, query: &'a ProductQuery) -> AwsFuture<'a, Vec<String>>;
}

/// Selects products. Every filter is a field with the exact value that it must have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProductQuery {
    /// The filters as field and value, such as `("regionCode", "us-east-1")`.
    pub filters: Vec<(String, String)>,
}

impl ProductQuery {
    pub fn value(&self, field: &str) -> Option<&str> {
        self.filters.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
    }
}
