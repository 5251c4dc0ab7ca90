//! Computes metrics from the stores: [`follow`] counts changes of objects, [`page`] computes series at each scrape, and
//! [`cost`] sets the price of NodePools. The metrics are declared in [`crate::metrics`].

pub mod cost;
mod follow;
mod page;
