//! Explains one NodeClaim: which phases of its launch are complete, when it times out, and how many others of its
//! NodePool registered.

use karpenter_view::{Attempt, Fix, NodeClaimDocument, ObjectRef, Phase, Resolution, TypicalSeconds};

use crate::format::{duration, money, time};
use crate::input::{ClaimFacts, ExplainInput};
use crate::{NotFound, meta};

/// A NodeClaim whose node has not registered after this time is deleted.
pub const REGISTRATION_TIMEOUT_SECS: i64 = 15 * 60;
/// A NodeClaim without a node after this time, or after twice the usual time if that is shorter, probably never gets a
/// node.
const UNUSUAL_AFTER_SECS: i64 = 5 * 60;

/// Explains the NodeClaim with this name.
pub fn explain_node_claim(input: &ExplainInput, name: &str) -> Result<NodeClaimDocument, NotFound> {
    match input.facts.claims.get(name) {
        Some(facts) => Ok(document(input, name, facts)),
        None => Err(NotFound { object: ObjectRef::cluster_scoped("NodeClaim", name) }),
    }
}

/// The NodeClaim of a node, or the NodeClaim with this name.
pub(crate) fn of_node(input: &ExplainInput, node: &str) -> Option<NodeClaimDocument> {
    let claims = &input.facts.claims;
    let found = claims.iter().find(|(name, facts)| facts.node.as_deref() == Some(node) || *name == node);
    found.map(|(name, facts)| document(input, name, facts))
}

fn document(input: &ExplainInput, name: &str, facts: &ClaimFacts) -> NodeClaimDocument {
    let others: Vec<&ClaimFacts> = input
        .facts
        .claims
        .iter()
        .filter(|(other, one)| *other != name && one.node_pool == facts.node_pool)
        .map(|(_, one)| one)
        .collect();
    let typical = typical(&others);
    let timeout_secs = facts
        .created_secs
        .or(facts.launched_secs)
        .filter(|_| facts.registered_secs.is_none() && !facts.is_deleting)
        .map(|from| from + REGISTRATION_TIMEOUT_SECS);
    let waited = timeout_secs.zip(input.now_secs).map(|(at, now)| now - at + REGISTRATION_TIMEOUT_SECS);
    let unusual_after = typical.map_or(UNUSUAL_AFTER_SECS, |typical| {
        UNUSUAL_AFTER_SECS.min(2 * i64::try_from(typical.p90).unwrap_or(i64::MAX).max(30))
    });
    let is_unusual = waited.is_some_and(|waited| waited >= unusual_after);
    let (summary, resolution) = if facts.is_deleting {
        ("is being deleted".to_owned(), Resolution::in_progress(None))
    } else if facts.initialized_secs.is_some() {
        ("initialized".to_owned(), Resolution::ok())
    } else if facts.registered_secs.is_some() {
        ("registered, not initialized".to_owned(), Resolution::in_progress(None))
    } else if facts.launched_secs.is_none() {
        ("not launched".to_owned(), Resolution::in_progress(None))
    } else {
        not_registered(input, waited, timeout_secs, is_unusual, typical)
    };
    let is_blocked = resolution.is == karpenter_view::ResolutionKind::Blocked;
    let phase = |name: &str, at: Option<i64>| Phase { name: name.to_owned(), at: at.map(time) };
    NodeClaimDocument {
        meta: meta(input),
        name: name.to_owned(),
        node_pool: facts.node_pool.clone(),
        instance_type: facts.instance_type.clone(),
        zone: facts.zone.clone(),
        capacity_type: facts.capacity_type.clone(),
        price_per_hour: facts.price_per_hour.map(money),
        provider_id: facts.provider_id.clone(),
        node: facts.node.clone(),
        nominated_pods: facts.nominated_pods,
        summary,
        resolution,
        phases: vec![
            phase("Created", facts.created_secs),
            phase("Launched", facts.launched_secs),
            phase("Registered", facts.registered_secs),
            phase("Initialized", facts.initialized_secs),
        ],
        timeout_at: timeout_secs.map(time),
        typical,
        others: Attempt {
            registered: others.iter().filter(|one| one.registered_secs.is_some()).count() as u64,
            all: others.len() as u64,
        },
        message: facts.message.clone().filter(|_| facts.initialized_secs.is_none()),
        fix: is_blocked.then(|| registration_fix(facts)),
    }
}

fn not_registered(
    input: &ExplainInput,
    waited: Option<i64>,
    timeout_secs: Option<i64>,
    is_unusual: bool,
    typical: Option<TypicalSeconds>,
) -> (String, Resolution) {
    let (Some(waited), Some(timeout), Some(now)) = (waited, timeout_secs, input.now_secs) else {
        return ("not registered".to_owned(), Resolution::in_progress(None));
    };
    if timeout <= now {
        let text = format!("not registered after {}, registration timeout", duration(waited));
        return (text, Resolution::blocked());
    }
    let until = duration(timeout - now);
    if is_unusual {
        let text = format!("not registered after {}, timeout in {until}", duration(waited));
        return (text, Resolution::blocked());
    }
    let text = match typical {
        Some(typical) => {
            let left = i64::try_from(typical.p50).unwrap_or(i64::MAX) - waited;
            match left > 0 {
                true => format!("registration is expected in about {}", duration(left)),
                false => format!("registration is expected soon, after {}", duration(waited)),
            }
        }
        None => format!("waiting for registration for {}", duration(waited)),
    };
    (text, Resolution::in_progress(Some(time(timeout))))
}

fn registration_fix(facts: &ClaimFacts) -> Fix {
    let object = facts.node_class.clone();
    let of = object.as_ref().map_or_else(String::new, |class| format!(" of {class}"));
    Fix {
        text: format!(
            "check why the instance does not join the cluster: user data, security groups and node role{of}, and the console output of the instance"
        ),
        object,
        patch: None,
        patch_type: None,
    }
}

/// The median and the 90th percentile of the time from launch to registration.
fn typical(claims: &[&ClaimFacts]) -> Option<TypicalSeconds> {
    let mut secs: Vec<u64> = claims
        .iter()
        .filter_map(|one| u64::try_from(one.registered_secs? - one.launched_secs?).ok())
        .collect();
    secs.sort_unstable();
    let at = |percent: usize| {
        let index = (secs.len() * percent).div_ceil(100).max(1) - 1;
        secs.get(index).copied()
    };
    Some(TypicalSeconds { p50: at(50)?, p90: at(90)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered_after(secs: i64) -> ClaimFacts {
        ClaimFacts { launched_secs: Some(100), registered_secs: Some(100 + secs), ..ClaimFacts::default() }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let claims: Vec<ClaimFacts> = [40, 10, 30, 20].into_iter().map(registered_after).collect();
        let claims: Vec<&ClaimFacts> = claims.iter().collect();
        assert_eq!(typical(&claims), Some(TypicalSeconds { p50: 20, p90: 40 }));
        assert_eq!(typical(&claims[..1]), Some(TypicalSeconds { p50: 40, p90: 40 }));
        assert_eq!(typical(&[]), None);
    }
}
