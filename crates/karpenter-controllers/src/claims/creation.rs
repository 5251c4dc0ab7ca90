//! Creating a claim so that it is created once, whatever becomes of the answer.
//!
//! Claims are named here and not by the API server: whoever knows the name can ask whether a request whose answer was
//! lost was carried out. Until that is known nobody plans, because the plan would buy the same machine again. Where asking
//! is not allowed, the watch has to tell, and what it does not bring within a while was not carried out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::clock::since;
use karpenter_cluster::controllers::context::{label, name_of};
use kube::api::{Api, PostParams};

use crate::context::Context;
use crate::logs;

/// What generated names end in: nothing that could be read as a word.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// With the suffix, a name must still do as a label's value.
const PREFIX_LENGTH_MAX: usize = 58;
/// A name that is taken is replaced this often.
const ATTEMPTS_MAX: usize = 4;
/// A watch brings what was created earlier than this long ago.
const CREATE_VISIBLE_WITHIN: Duration = Duration::from_secs(15);

/// Claims that may or may not exist, and since when. Clones share them.
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
        named(prefix, now, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

/// Creates the claim; the store shows it at once. What becomes of it is counted for its pool's back-off.
pub async fn create(context: &Context, claim: &NodeClaim) -> kube::Result<NodeClaim> {
    let mut claim = claim.clone();
    context.overlays.annotate(&mut claim);
    let prefix = claim.metadata.generate_name.clone().unwrap_or_default();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let name = context.unconfirmed_creates.next_name(&prefix, context.clock.now());
        claim.metadata.name = Some(name.clone());
        // Before anybody can know how it ends.
        context.launch_backoff.lock().created(&name, label(&claim, labels::NODEPOOL).unwrap_or_default());
        let api = Api::<NodeClaim>::all(context.client.clone());
        match api.create(&PostParams::default(), &claim).await {
            Ok(created) => {
                context.stores.node_claims.apply(created.clone());
                log_created(&created);
                return Ok(created);
            }
            Err(error) if is_taken(&error) && attempts < ATTEMPTS_MAX => {
                context.launch_backoff.lock().forget(&name)
            }
            Err(error) if may_have_been_applied(&error) => {
                context.unconfirmed_creates.names().insert(name.clone(), context.clock.now());
                let found = look(context, &name).await?;
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

/// The message and the keys are upstream's; programs read the life of a node from here on.
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

/// The values of a label that a claim may have; empty if it does not say.
pub(crate) fn values<'a>(claim: &'a NodeClaim, key: &str) -> &'a [String] {
    let found = claim.spec.requirements.iter().find(|one| one.key == key && one.operator == "In");
    found.map(|one| one.values.as_slice()).unwrap_or_default()
}

/// Finds out about every claim that may or may not exist. An error as long as one of them cannot be asked about.
pub async fn resolve_unconfirmed_creates(context: &Context) -> kube::Result<()> {
    let names: Vec<String> = context.unconfirmed_creates.names().keys().cloned().collect();
    for name in names {
        look(context, &name).await?;
    }
    Ok(())
}

async fn look(context: &Context, name: &str) -> kube::Result<Option<NodeClaim>> {
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

/// What the watch says where the server may not be asked: the refusal while it may still bring the claim.
fn find_in_store(context: &Context, name: &str, refusal: kube::Error) -> kube::Result<Option<NodeClaim>> {
    let now = context.clock.now();
    if context.log_throttle.is_due("asking about nodeclaims", "", now) {
        tracing::error!(
            nodeclaim = name,
            error = %refusal,
            "nodeclaims may not be read: the role lacks the verb get; waiting for the watch to tell"
        );
    }
    if let Some(found) = context.stores.node_claims.get("", name) {
        return Ok(Some((*found).clone()));
    }
    let asked = context.unconfirmed_creates.names().get(name).copied();
    match asked.is_some_and(|asked| since(now, asked) < CREATE_VISIBLE_WITHIN) {
        true => Err(refusal),
        false => Ok(None),
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn is_taken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether the request may have been carried out all the same.
fn may_have_been_applied(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::BuildRequest(_) => false,
        _ => true,
    }
}

/// A name that no other moment and no other call gives.
fn named(prefix: &str, now: Timestamp, count: u64) -> String {
    let kept = prefix
        .char_indices()
        .map(|(at, one)| at + one.len_utf8())
        .take_while(|end| *end <= PREFIX_LENGTH_MAX);
    let kept = &prefix[..kept.last().unwrap_or(0)];
    // Only the low bits of the time differ between neighbours, and only some bits make a suffix: mix them well.
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
    fn names_differ_and_fit_into_a_label() {
        let now = Timestamp::UNIX_EPOCH;
        let names: BTreeSet<String> = (0..1_000).map(|count| named("default-", now, count)).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.starts_with("default-") && name.len() == 13));
        let long = "x".repeat(80);
        assert_eq!(named(&long, now, 0).len(), 63);
    }

    #[test]
    fn only_answers_that_say_no_leave_no_doubt() {
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
