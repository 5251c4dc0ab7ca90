//! Resolves the AMIs that an EC2NodeClass selects by alias (SSM parameters), id, name, tags or owner.
//!
//! The modules [`alias`], [`queries`] and [`selection`] are pure. [`Amis`] calls EC2 and SSM and caches the results; if
//! an SSM parameter cannot be read, its last value is used. [`crate::node_class::image_of_type`] decides which of the
//! AMIs an instance type boots.
//!
//! Upstream: `pkg/providers/amifamily/ami.go`

mod alias;
mod invalidation;
mod parameters;
mod queries;
mod selection;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use karpenter_api::types::{AmiSelectorTerm, AmiStatus};
use karpenter_model::requirements::Requirements;
use karpenter_runtime::clock::Clock;

pub use alias::{Alias, AliasParameter, UnsupportedAlias, Variant};
pub use invalidation::AmiInvalidation;
pub use parameters::{Lifetime, Parameters};
pub use queries::{Plan, plan};
pub use selection::{Ami, Candidate, select, statuses};

use crate::api::ec2::{Image, ImageQuery};
use crate::api::{AwsError, Ec2, Ssm};
use crate::cache::Cache;
use crate::single_flight::SingleFlight;
use crate::version::Version;

/// Why the AMIs of a node class could not be resolved. AMIs that were resolved before remain in use, except after the
/// error of an unsupported alias.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmiError {
    #[error("getting AMI queries, {0}")]
    UnsupportedAlias(#[from] UnsupportedAlias),
    /// None of the alias's SSM parameters exists: the alias has a wrong version, or the family has no AMIs for this
    /// Kubernetes version.
    #[error("getting AMI queries, failed to discover any AMIs for alias (alias={alias})")]
    NoAmiForAlias { alias: String },
    #[error("getting AMI queries, {text:?} is not a valid alias; valid: family@version")]
    BadAlias { text: String },
    #[error("getting AMI queries, resolving ssm parameter, {error} (parameter={name})")]
    Parameter { name: String, error: AwsError },
    #[error("describing images, {error}")]
    Images { error: AwsError },
}

impl AmiError {
    /// The AWS error; `None` if no AWS call failed.
    pub fn aws_error(&self) -> Option<&AwsError> {
        match self {
            Self::Parameter { error, .. } | Self::Images { error } => Some(error),
            _ => None,
        }
    }
}

/// For each AMI id: requirements that follow from the alias and not from `DescribeImages`.
type Known = BTreeMap<String, Vec<Requirements>>;

type Answer = Result<Arc<Vec<Ami>>, AmiError>;

/// The inputs of AMI resolution. Other changes of the node class do not cause a new resolution.
#[derive(Debug, Clone, Copy)]
pub struct AmiRequest<'a> {
    pub class_uid: &'a str,
    pub class_generation: i64,
    pub terms: &'a [AmiSelectorTerm],
    pub kubernetes: Version,
}

/// The cache key: name and generation of the node class, and the Kubernetes version for which the alias was resolved.
type Key = (String, i64, Version);

/// Resolves AMIs. All clones share the caches.
#[derive(Clone)]
pub struct Amis {
    shared: Arc<Shared>,
}

struct Shared {
    ec2: Arc<dyn Ec2>,
    parameters: Parameters,
    clock: Clock,
    cache: Cache<Key, Arc<Vec<Ami>>>,
    flights: SingleFlight<Key, Answer>,
}

impl Amis {
    /// `refresh_interval` is the value of the option `--ami-refresh-interval`.
    pub fn new(ec2: Arc<dyn Ec2>, ssm: Arc<dyn Ssm>, clock: Clock, refresh_interval: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                ec2,
                parameters: Parameters::new(ssm, clock),
                clock,
                cache: Cache::new(clock, refresh_interval),
                flights: SingleFlight::default(),
            }),
        }
    }

    /// The AMIs of a node class, in the form that its status lists.
    pub async fn statuses(&self, request: AmiRequest<'_>) -> Result<Vec<AmiStatus>, AmiError> {
        Ok(statuses(&self.list(request).await?))
    }

    /// The AMIs of a node class, newest first.
    pub async fn list(&self, request: AmiRequest<'_>) -> Answer {
        let key = (request.class_uid.to_owned(), request.class_generation, request.kubernetes);
        if let Some(known) = self.shared.cache.get(&key) {
            return Ok(known);
        }
        let shared = Arc::clone(&self.shared);
        let (terms, kubernetes) = (request.terms.to_vec(), request.kubernetes);
        let question = || {
            let key = key.clone();
            async move {
                let found = Arc::new(shared.find(&terms, kubernetes).await?);
                shared.cache.insert(key, Arc::clone(&found));
                Ok(found)
            }
        };
        self.shared.flights.run(key.clone(), question).await
    }
}

impl Shared {
    async fn find(&self, terms: &[AmiSelectorTerm], kubernetes: Version) -> Result<Vec<Ami>, AmiError> {
        let queries =
            match terms.iter().find_map(|term| term.alias.as_deref().filter(|alias| !alias.is_empty())) {
                Some(alias) => vec![self.alias_query(alias, kubernetes).await?],
                None => self.term_queries(terms).await?,
            };
        let answers = try_join_all(queries.iter().map(|(query, _)| self.images(query))).await?;
        let mut candidates = Vec::new();
        for (images, (_, known)) in answers.into_iter().zip(&queries) {
            candidates.extend(
                images.into_iter().map(|image| Candidate {
                    known: known.get(&image.id).cloned().unwrap_or_default(),
                    image,
                }),
            );
        }
        Ok(select(&candidates, self.clock.now()))
    }

    async fn images(&self, query: &ImageQuery) -> Result<Vec<Image>, AmiError> {
        self.ec2.describe_images(query).await.map_err(|error| AmiError::Images { error })
    }

    /// One EC2 query for all AMIs of an alias, and the requirements of each AMI.
    async fn alias_query(&self, text: &str, kubernetes: Version) -> Result<(ImageQuery, Known), AmiError> {
        let alias = Alias::parse(text).ok_or_else(|| AmiError::BadAlias { text: text.to_owned() })?;
        let parameters = alias.parameters(kubernetes)?;
        let answers = join_all(parameters.iter().map(|parameter| {
            let lifetime = if parameter.is_mutable { Lifetime::Mutable } else { Lifetime::Fixed };
            self.parameters.get(&parameter.name, lifetime)
        }));
        let (mut known, mut refused) = (Known::new(), None);
        for (answer, parameter) in answers.await.into_iter().zip(&parameters) {
            let name = &parameter.name;
            match answer {
                Ok(Some(id)) => {
                    let requirements = parameter.variants.iter().map(Variant::requirements);
                    known.entry(id).or_default().extend(requirements);
                }
                Ok(None) => self.log_skipped(text, name, "not found"),
                Err(error) if error.is_temporary() => {
                    return Err(AmiError::Parameter { name: name.clone(), error });
                }
                Err(error) => {
                    self.log_skipped(text, name, &error);
                    refused = refused.or(Some(AmiError::Parameter { name: name.clone(), error }));
                }
            }
        }
        if known.is_empty() {
            return Err(refused.unwrap_or_else(|| AmiError::NoAmiForAlias { alias: text.to_owned() }));
        }
        Ok((ImageQuery { ids: known.keys().cloned().collect(), ..ImageQuery::default() }, known))
    }

    /// Logs that a variant of the alias is skipped because its SSM parameter does not exist or cannot be read. The
    /// other variants are used.
    fn log_skipped(&self, alias: &str, parameter: &str, error: impl Display) {
        if self.parameters.is_first_failure(parameter) {
            tracing::warn!(alias, parameter, %error, "skipping ami variant, its ssm parameter cannot be read");
        }
    }

    async fn term_queries(&self, terms: &[AmiSelectorTerm]) -> Result<Vec<(ImageQuery, Known)>, AmiError> {
        let Plan { mut ids, parameters, mut queries } = plan(terms);
        let values = try_join_all(parameters.iter().map(|name| self.parameter(name, Lifetime::Custom)));
        for (value, name) in values.await?.into_iter().zip(&parameters) {
            match value {
                None => tracing::debug!(parameter = name, "parameter not found"),
                Some(id) if !id.starts_with("ami-") => {
                    tracing::debug!(parameter = name, id, "parameter value is an invalid AMI ID");
                }
                Some(id) => ids.push(id),
            }
        }
        if !ids.is_empty() {
            ids.sort();
            ids.dedup();
            queries.push(ImageQuery { ids, ..ImageQuery::default() });
        }
        Ok(queries.into_iter().map(|query| (query, Known::new())).collect())
    }

    async fn parameter(&self, name: &str, lifetime: Lifetime) -> Result<Option<String>, AmiError> {
        let answer = self.parameters.get(name, lifetime).await;
        answer.map_err(|error| AmiError::Parameter { name: name.to_owned(), error })
    }
}
