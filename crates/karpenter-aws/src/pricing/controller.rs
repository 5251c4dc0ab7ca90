//! Updates prices. Instance prices and volume prices from the Price List are updated every 12 hours, independently of
//! each other. Spot prices are updated every hour, because consolidation compares them. A failed update is retried
//! after a minute; until it succeeds, known prices stay.
//!
//! Upstream: pkg/controllers/providers/pricing (karpenter-provider-aws)

use std::sync::Arc;
use std::time::Duration;

use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::price_list::{currency, is_listed, outcome, queries};
use super::{PriceBook, volumes};
use crate::api::{Ec2, Pricing};

const PRICE_LIST_PERIOD: Duration = Duration::from_secs(12 * 60 * 60);
const SPOT_PERIOD: Duration = Duration::from_secs(60 * 60);
const RETRY: Duration = Duration::from_secs(60);

const ON_DEMAND: &str = "on-demand";
const SPOT: &str = "spot";
const VOLUMES: &str = "volumes";

pub struct PricingController {
    ec2: Arc<dyn Ec2>,
    pricing: Arc<dyn Pricing>,
    clock: Clock,
    region: String,
    is_isolated: bool,
    book: PriceBook,
}

impl PricingController {
    /// `is_isolated` states that the VPC is isolated, so that the Price List cannot be reached.
    pub fn new(
        ec2: Arc<dyn Ec2>,
        pricing: Arc<dyn Pricing>,
        clock: Clock,
        region: impl Into<String>,
        is_isolated: bool,
        book: PriceBook,
    ) -> Self {
        Self { ec2, pricing, clock, region: region.into(), is_isolated, book }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", ON_DEMAND));
        queue.add(ObjectKey::new("", SPOT));
        queue.add(ObjectKey::new("", VOLUMES));
    }

    /// Updates on-demand prices; returns whether the update succeeded.
    pub async fn update_on_demand(&self) -> bool {
        if !is_listed(&self.region, self.is_isolated) {
            tracing::debug!(
                region = self.region,
                "on-demand pricing is not available in this region, using built-in prices"
            );
            return true;
        }
        let [shared, metal] = queries(&self.region);
        let answers = futures::join!(self.pricing.get_products(&shared), self.pricing.get_products(&metal));
        let outcome = outcome([answers.0, answers.1], currency(&self.region));
        if outcome.unreadable > 0 {
            tracing::warn!(count = outcome.unreadable, "failed to parse products of the price list");
        }
        if self.book.update(|prices| prices.with_on_demand(&outcome.prices)) {
            let count = self.book.current().prices.on_demand_count();
            tracing::debug!(instance_type_count = count, "updated on-demand pricing");
        }
        if let Some(problem) = &outcome.problem {
            tracing::error!(
                error = problem,
                "failed to update on-demand pricing, using existing pricing data"
            );
        }
        outcome.problem.is_none()
    }

    /// Updates the prices of volumes; returns whether the update succeeded.
    pub async fn update_volumes(&self) -> bool {
        if !is_listed(&self.region, self.is_isolated) {
            return true;
        }
        let [storage, iops, throughput] = volumes::queries(&self.region);
        let answers = futures::join!(
            self.pricing.get_products(&storage),
            self.pricing.get_products(&iops),
            self.pricing.get_products(&throughput)
        );
        let outcome = volumes::outcome([answers.0, answers.1, answers.2], currency(&self.region));
        if outcome.unreadable > 0 {
            tracing::warn!(count = outcome.unreadable, "failed to parse products of the price list");
        }
        if self.book.update(|prices| prices.with_volumes(&outcome)) {
            tracing::debug!("updated volume pricing");
        }
        if let Some(problem) = &outcome.problem {
            tracing::error!(error = problem, "failed to update volume pricing, using existing pricing data");
        }
        outcome.problem.is_none()
    }

    /// Updates spot prices; returns whether the update succeeded.
    pub async fn update_spot(&self) -> bool {
        match self.ec2.describe_spot_price_history(self.clock.now()).await {
            Ok(history) if history.is_empty() => {
                tracing::error!("no spot pricing found, using existing pricing data");
                false
            }
            Ok(history) => {
                if self.book.update(|prices| prices.with_spot(&history)) {
                    tracing::debug!(price_count = history.len(), "updated spot pricing");
                }
                true
            }
            Err(error) => {
                tracing::error!(%error, "failed to update spot pricing, using existing pricing data");
                false
            }
        }
    }
}

impl Reconcile for PricingController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let (is_updated, period) = match key.name.as_str() {
            ON_DEMAND => (self.update_on_demand().await, PRICE_LIST_PERIOD),
            VOLUMES => (self.update_volumes().await, PRICE_LIST_PERIOD),
            _ => (self.update_spot().await, SPOT_PERIOD),
        };
        Ok(Requeue::After(if is_updated { period } else { RETRY }))
    }
}
