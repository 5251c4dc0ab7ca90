//! Starts the controllers of the v1alpha5 API.

use karpenter_legacy::Options;

use super::Operator;
use crate::legacy::adoption::Adoption;
use crate::legacy::emptiness::EmptinessTimestamps;
use crate::legacy::{LegacyApi, LegacyKinds};

/// The maximum number of nodes that a controller of the v1alpha5 API reconciles concurrently.
const CONCURRENT_NODES_MAX: usize = 10;

/// Starts the controllers of the v1alpha5 API after the operator has started; waits until their CRDs are installed.
pub async fn serve(operator: &mut Operator, options: Options) {
    let kinds = LegacyKinds::watch(&operator.context().client, &operator.context().stores);
    serve_kinds(operator, kinds, options).await;
}

/// Like [`serve`], with watches that are already running. A replica starts them before it is leader, so that its
/// readiness check names missing CRDs.
pub async fn serve_kinds(operator: &mut Operator, kinds: LegacyKinds, options: Options) {
    let context = operator.context().clone();
    let derived = LegacyApi::start(context.reads(), context.writes(), kinds, options).await;
    operator.spawn("legacy", derived, LegacyApi::watch, 1);
    let timestamps = EmptinessTimestamps { reads: context.reads(), client: context.client.clone() };
    operator.spawn("legacy.emptiness", timestamps, EmptinessTimestamps::watch, CONCURRENT_NODES_MAX);
    operator.spawn(
        "legacy.adoption",
        Adoption { stores: context.stores, client: context.client },
        Adoption::watch,
        CONCURRENT_NODES_MAX,
    );
}
