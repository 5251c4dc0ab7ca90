//! Creates each NodeClaim exactly once, even if the response to the request is lost.
//!
//! The name is generated here and not by the API server, so that after a lost response a GET shows whether the
//! NodeClaim was created. Until that is known, no plan is made, because another plan could launch an instance for the
//! same pods again. If the role lacks the verb `get`, the watch decides: a NodeClaim that does not appear within 15
//! seconds was not created.

use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{label, name_of};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::inputs::Reads;
use crate::log_throttle::LogThrottle;
use crate::logs;
use crate::offerings::OverlayStore;
use crate::state::launch_backoff::SharedLaunchBackoff;
use crate::state::unconfirmed_creates::UnconfirmedCreates;

/// The number of attempts to find a name that is not in use.
const ATTEMPTS_MAX: usize = 4;
/// How long to wait for the watch to deliver a created NodeClaim. If it does not appear in that time, it was not
/// created.
const CREATE_VISIBLE_WITHIN: Duration = Duration::from_secs(15);

/// Creates NodeClaims. Clones share all state.
#[derive(Clone)]
pub struct ClaimCreator {
    pub reads: Reads,
    pub client: Client,
    /// Limits how often the same error is logged.
    pub log_throttle: LogThrottle,
    /// NodeClaims whose create request failed without a clear answer.
    pub unconfirmed_creates: UnconfirmedCreates,
    /// Back-off of NodePools whose launches fail.
    pub launch_backoff: SharedLaunchBackoff,
    /// The result of evaluating NodeOverlays; new NodeClaims get an annotation if an overlay changed their instance
    /// types.
    pub overlays: OverlayStore,
}

impl ClaimCreator {
    /// Creates the NodeClaim and adds it to the store at once. The launch back-off of the NodePool is then updated by
    /// whether the NodeClaim launches.
    pub async fn create(&self, claim: &NodeClaim) -> kube::Result<NodeClaim> {
        let mut claim = claim.clone();
        self.overlays.annotate(&mut claim);
        let prefix = claim.metadata.generate_name.clone().unwrap_or_default();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let name = self.unconfirmed_creates.next_name(&prefix, self.reads.clock.now());
            claim.metadata.name = Some(name.clone());
            // The creation is recorded before the request is sent, because the watch may report that the launch
            // succeeded or failed before the response arrives.
            self.launch_backoff.lock().created(&name, label(&claim, labels::NODEPOOL).unwrap_or_default());
            let api = Api::<NodeClaim>::all(self.client.clone());
            match api.create(&PostParams::default(), &claim).await {
                Ok(created) => {
                    self.reads.stores.node_claims.apply(created.clone());
                    log_created(&created);
                    return Ok(created);
                }
                Err(error) if is_name_in_use(&error) && attempts < ATTEMPTS_MAX => {
                    self.launch_backoff.lock().forget(&name)
                }
                Err(error) if may_have_been_applied(&error) => {
                    self.unconfirmed_creates.names().insert(name.clone(), self.reads.clock.now());
                    let found = self.resolve(&name).await?;
                    found.iter().for_each(log_created);
                    return found.ok_or(error);
                }
                Err(error) => {
                    self.launch_backoff.lock().forget(&name);
                    return Err(error);
                }
            }
        }
    }

    /// Checks for each unconfirmed NodeClaim whether it was created. Returns an error if that cannot be determined for
    /// one of them.
    pub async fn resolve_unconfirmed_creates(&self) -> kube::Result<()> {
        let names: Vec<String> = self.unconfirmed_creates.names().keys().cloned().collect();
        for name in names {
            self.resolve(&name).await?;
        }
        Ok(())
    }

    async fn resolve(&self, name: &str) -> kube::Result<Option<NodeClaim>> {
        let found = match Api::<NodeClaim>::all(self.client.clone()).get_opt(name).await {
            Err(error) if is_forbidden(&error) => self.find_in_store(name, error)?,
            answer => answer?,
        };
        match &found {
            Some(found) => self.reads.stores.node_claims.apply(found.clone()),
            None => self.launch_backoff.lock().forget(name),
        }
        self.unconfirmed_creates.names().remove(name);
        Ok(found)
    }

    /// Looks for the NodeClaim in the store, because GET is forbidden. Returns `error` as long as the watch may still
    /// deliver the NodeClaim.
    fn find_in_store(&self, name: &str, error: kube::Error) -> kube::Result<Option<NodeClaim>> {
        let now = self.reads.clock.now();
        if self.log_throttle.is_due("getting nodeclaims", "", now) {
            tracing::error!(
                nodeclaim = name,
                error = %error,
                "cannot get nodeclaims, the role lacks the verb get, waiting for the watch"
            );
        }
        if let Some(found) = self.reads.stores.node_claims.get("", name) {
            return Ok(Some((*found).clone()));
        }
        let sent = self.unconfirmed_creates.names().get(name).copied();
        match sent.is_some_and(|sent| since(now, sent) < CREATE_VISIBLE_WITHIN) {
            true => Err(error),
            false => Ok(None),
        }
    }
}

/// Logs a created NodeClaim with upstream's message and keys, because tools parse this line.
fn log_created(claim: &NodeClaim) {
    let requests = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    tracing::info!(
        nodepool = label(claim, labels::NODEPOOL),
        nodeclaim = name_of(claim),
        requests = logs::json(requests),
        instance_types = logs::names(values(claim, labels::INSTANCE_TYPE).iter()),
        "created nodeclaim"
    );
}

/// The values that the requirements of a NodeClaim allow for a label; empty if the label has no requirement.
pub(crate) fn values<'a>(claim: &'a NodeClaim, key: &str) -> &'a [String] {
    let found = claim.spec.requirements.iter().find(|one| one.key == key && one.operator == "In");
    found.map(|one| one.values.as_slice()).unwrap_or_default()
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn is_name_in_use(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether the API server may have applied the request although the client got an error.
fn may_have_been_applied(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::BuildRequest(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_client_errors_mean_that_a_request_was_not_applied() {
        let status = |code: u16| {
            let status = kube::core::Status::failure("", "").with_code(code);
            kube::Error::Api(Box::new(status))
        };
        assert!(may_have_been_applied(&status(500)));
        assert!(may_have_been_applied(&status(504)));
        assert!(!may_have_been_applied(&status(403)));
        assert!(!may_have_been_applied(&status(429)));
        assert!(may_have_been_applied(&kube::Error::Service("the connection was lost".into())));
    }
}
