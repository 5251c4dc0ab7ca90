//! Creates each NodeClaim exactly once, even if the response to the request is lost.
//!
//! The name is generated here and not by the API server, so that a GET shows whether a request without a response
//! succeeded. Until that is known, no plan is made, because the plan could launch the same instance again. If the role
//! lacks the verb `get`, the watch decides: a NodeClaim that does not appear within a time limit was not created.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{label, name_of};
use kube::api::{Api, PostParams};

use crate::context::Context;
use crate::logs;

/// The alphabet of generated suffixes, without vowels so that they form no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// The maximum length of the prefix: the name with its suffix must be a valid label value.
const PREFIX_LENGTH_MAX: usize = 58;
/// The number of attempts to find a name that is not in use.
const ATTEMPTS_MAX: usize = 4;
/// A created NodeClaim appears in the watch within this time.
const CREATE_VISIBLE_WITHIN: Duration = Duration::from_secs(15);

/// NodeClaims whose create request got no clear response, and since when. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct UnconfirmedCreates {
    names: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    count: Arc<AtomicU64>,
}

impl UnconfirmedCreates {
    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_name(&self, prefix: &str, now: Timestamp) -> String {
        generate_name(prefix, now, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

/// Creates the NodeClaim and adds it to the store at once. Whether it launches counts towards the launch back-off of
/// its NodePool.
pub async fn create(context: &Context, claim: &NodeClaim) -> kube::Result<NodeClaim> {
    let mut claim = claim.clone();
    context.overlays.annotate(&mut claim);
    let prefix = claim.metadata.generate_name.clone().unwrap_or_default();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let name = context.unconfirmed_creates.next_name(&prefix, context.clock.now());
        claim.metadata.name = Some(name.clone());
        // Recorded before the request, because the watch may report the outcome before the response arrives.
        context.launch_backoff.lock().created(&name, label(&claim, labels::NODEPOOL).unwrap_or_default());
        let api = Api::<NodeClaim>::all(context.client.clone());
        match api.create(&PostParams::default(), &claim).await {
            Ok(created) => {
                context.stores.node_claims.apply(created.clone());
                log_created(&created);
                return Ok(created);
            }
            Err(error) if is_name_in_use(&error) && attempts < ATTEMPTS_MAX => {
                context.launch_backoff.lock().forget(&name)
            }
            Err(error) if may_have_been_applied(&error) => {
                context.unconfirmed_creates.names().insert(name.clone(), context.clock.now());
                let found = resolve(context, &name).await?;
                found.iter().for_each(log_created);
                return found.ok_or(error);
            }
            Err(error) => {
                context.launch_backoff.lock().forget(&name);
                return Err(error);
            }
        }
    }
}

/// The message and keys are upstream's; tools parse this line.
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

/// The values that a NodeClaim allows for a label; empty without a requirement.
pub(crate) fn values<'a>(claim: &'a NodeClaim, key: &str) -> &'a [String] {
    let found = claim.spec.requirements.iter().find(|one| one.key == key && one.operator == "In");
    found.map(|one| one.values.as_slice()).unwrap_or_default()
}

/// Checks whether unconfirmed NodeClaims were created. Fails if one of them cannot be checked.
pub async fn resolve_unconfirmed_creates(context: &Context) -> kube::Result<()> {
    let names: Vec<String> = context.unconfirmed_creates.names().keys().cloned().collect();
    for name in names {
        resolve(context, &name).await?;
    }
    Ok(())
}

async fn resolve(context: &Context, name: &str) -> kube::Result<Option<NodeClaim>> {
    let found = match Api::<NodeClaim>::all(context.client.clone()).get_opt(name).await {
        Err(error) if is_forbidden(&error) => find_in_store(context, name, error)?,
        answer => answer?,
    };
    match &found {
        Some(found) => context.stores.node_claims.apply(found.clone()),
        None => context.launch_backoff.lock().forget(name),
    }
    context.unconfirmed_creates.names().remove(name);
    Ok(found)
}

/// Looks for the NodeClaim in the store, because GET is forbidden. Returns the error while the watch may still
/// deliver it.
fn find_in_store(context: &Context, name: &str, error: kube::Error) -> kube::Result<Option<NodeClaim>> {
    let now = context.clock.now();
    if context.log_throttle.is_due("getting nodeclaims", "", now) {
        tracing::error!(
            nodeclaim = name,
            error = %error,
            "cannot get nodeclaims, the role lacks the verb get, waiting for the watch"
        );
    }
    if let Some(found) = context.stores.node_claims.get("", name) {
        return Ok(Some((*found).clone()));
    }
    let sent = context.unconfirmed_creates.names().get(name).copied();
    match sent.is_some_and(|sent| since(now, sent) < CREATE_VISIBLE_WITHIN) {
        true => Err(error),
        false => Ok(None),
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn is_name_in_use(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether the request may have been applied despite the error.
fn may_have_been_applied(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::BuildRequest(_) => false,
        _ => true,
    }
}

/// Generates a name from the time and a counter.
fn generate_name(prefix: &str, now: Timestamp, count: u64) -> String {
    let kept = prefix
        .char_indices()
        .map(|(at, one)| at + one.len_utf8())
        .take_while(|end| *end <= PREFIX_LENGTH_MAX);
    let kept = &prefix[..kept.last().unwrap_or(0)];
    // Only the low bits of the time differ between calls, and the suffix uses few bits, so the bits are mixed.
    let mut mixed = (now.as_nanosecond() as u64) ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let letters = ALPHABET.len() as u64;
    let suffix = (0..SUFFIX_LENGTH).map(|_| {
        let letter = ALPHABET[(mixed % letters) as usize];
        mixed /= letters;
        char::from(letter)
    });
    format!("{kept}{}", suffix.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn generated_names_differ_and_are_valid_label_values() {
        let now = Timestamp::UNIX_EPOCH;
        let names: BTreeSet<String> = (0..1_000).map(|count| generate_name("default-", now, count)).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.starts_with("default-") && name.len() == 13));
        let long = "x".repeat(80);
        assert_eq!(generate_name(&long, now, 0).len(), 63);
    }

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
