//! The pages of the metrics port and the health port.

use std::sync::{Arc, PoisonError};

use super::Operator;
use super::http::{Page, Pages};

/// The content type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Operator {
    /// The pages of the metrics port: `/metrics`, and if the decision journal is enabled, `/debug/decisions` and
    /// `/debug/standings`.
    pub fn metrics_pages(&self) -> Pages {
        let context = self.context.clone();
        let queues = self.queues.clone();
        let in_detail = !self.options.disable_cluster_state_observability;
        let journal = self.options.enable_decision_journal.then(|| self.context.journal.clone());
        Arc::new(move |path, query| match (path, &journal) {
            ("/metrics", _) => {
                context.metrics.refresh_bindings(context.state.bindings());
                context.metrics.runtime.refresh(&queues.lock().unwrap_or_else(PoisonError::into_inner));
                let body = context.metrics.page(&context.stores, context.clock, in_detail);
                Page { status: 200, content_type: METRICS_TYPE, body: body.into_bytes() }
            }
            ("/debug/decisions", Some(journal)) => match serde_json::to_string(&journal.entries_after(0)) {
                Ok(entries) => Page::json(entries),
                Err(error) => Page::text(500, format!("{error}\n")),
            },
            ("/debug/standings", Some(_)) => {
                let node = query.split('&').find_map(|pair| pair.strip_prefix("node="));
                if let Some(node) = node {
                    context.verdicts.request(node, context.clock.now());
                }
                match serde_json::to_string(&context.verdicts.entries(node)) {
                    Ok(entries) => Page::json(entries),
                    Err(error) => Page::text(500, format!("{error}\n")),
                }
            }
            _ => Page::not_found(),
        })
    }

    /// The pages of the health port. `/healthz` shows that the process responds. `/readyz` shows that all stores are
    /// synced, which requires that the CRDs are installed.
    pub fn health_pages(&self) -> Pages {
        let stores = self.context.stores.clone();
        Arc::new(move |path, _| match path {
            "/healthz" => Page::text(200, "ok"),
            "/readyz" => match stores.unsynced().as_slice() {
                [] => Page::text(200, "ok"),
                unsynced => Page::text(500, not_listed(unsynced)),
            },
            _ => Page::not_found(),
        })
    }
}

/// The kinds that are not synced, with the last error if there is one.
fn not_listed(unsynced: &[(&'static str, Option<String>)]) -> String {
    let line = |(kind, why): &(&'static str, Option<String>)| match why {
        Some(why) => format!("not listed yet: {kind}: {why}\n"),
        None => format!("not listed yet: {kind}\n"),
    };
    unsynced.iter().map(line).collect()
}
