//! What metrics take from the stores: counts of changes ([`follow`]), series that are computed for each scrape
//! ([`page`]), and the price of NodePools ([`cost`]). The metrics are declared in [`crate::metrics`].

pub mod cost;
mod follow;
mod page;
