//! Implements the Price List calls; only few regions have an endpoint.

use aws_sdk_pricing::Client;
use aws_sdk_pricing::types::{Filter, FilterType};
use aws_smithy_types::error::operation::BuildError;
use karpenter_aws::api::pricing::{Pricing, ProductQuery};
use karpenter_aws::api::{AwsError, AwsFuture};

use crate::convert::all_pages;

const SERVICE: &str = "AmazonEC2";
const PAGE_SIZE: i32 = 100;

pub(crate) struct SdkPricing(pub(crate) Client);

impl Pricing for SdkPricing {
    fn get_products<'a>(&'a self, query: &'a ProductQuery) -> AwsFuture<'a, Vec<String>> {
        Box::pin(async move {
            let filters: Result<Vec<Filter>, BuildError> = query
                .filters
                .iter()
                .map(|(field, value)| {
                    Filter::builder().r#type(FilterType::TermMatch).field(field).value(value).build()
                })
                .collect();
            let filters = filters.map_err(|error| AwsError::new("", error.to_string()))?;
            let call = self.0.get_products().service_code(SERVICE).set_filters(Some(filters));
            let pages = call.into_paginator().page_size(PAGE_SIZE).send();
            all_pages(pages, |page| page.price_list.unwrap_or_default()).await
        })
    }
}
