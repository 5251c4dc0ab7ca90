//! Which images a class selects: aliases by way of published parameters, ids, names, tags and owners.
//!
//! `alias`, `queries` and `selection` decide over plain values; [`Amis`] asks EC2 and SSM, remembers, and keeps what
//! was last known good when a parameter cannot be read. Which of a class's images a type boots is
//! [`crate::node_class::image_of_type`], what becomes of the answer is the class's status.

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
use karpenter_cluster::clock::Clock;
use karpenter_model::requirements::Requirements;

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

/// Why a class's images are not known. The images that were known before still hold, except for an alias that is not
/// supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmiError {
    #[error("getting AMI queries, {0}")]
    UnsupportedAlias(#[from] UnsupportedAlias),
    /// None of the alias's parameters exists: the version is wrong, or the family ended before this Kubernetes.
    #[error("getting AMI queries, failed to discover any AMIs for alias (alias={alias})")]
    NothingForAlias { alias: String },
    #[error("getting AMI queries, {text:?} is no alias; valid: family@version")]
    BadAlias { text: String },
    #[error("getting AMI queries, resolving ssm parameter, {error} (parameter={name})")]
    Parameter { name: String, error: AwsError },
    #[error("describing images, {error}")]
    Images { error: AwsError },
}

impl AmiError {
    /// What AWS said, if it is AWS that said no.
    pub fn aws_error(&self) -> Option<&AwsError> {
        match self {
            Self::Parameter { error, .. } | Self::Images { error } => Some(error),
            _ => None,
        }
    }
}

/// What is known about images beyond what EC2 says, by id.
type Known = BTreeMap<String, Vec<Requirements>>;

type Answer = Result<Arc<Vec<Ami>>, AmiError>;

/// A class as its images depend on it: a change of anything else must not ask again.
#[derive(Debug, Clone, Copy)]
pub struct AmiRequest<'a> {
    pub class_uid: &'a str,
    pub class_generation: i64,
    pub terms: &'a [AmiSelectorTerm],
    pub kubernetes: Version,
}

/// A class and its generation, and the version that an alias was looked up for.
type Key = (String, i64, Version);

/// Images of classes. Clones share everything.
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
    /// `refresh_interval` is the administrator's AMI_REFRESH_INTERVAL.
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

    /// The images of a class as its status lists them.
    pub async fn statuses(&self, request: AmiRequest<'_>) -> Result<Vec<AmiStatus>, AmiError> {
        Ok(statuses(&self.list(request).await?))
    }

    /// The images of a class, newest first.
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

    /// One query for all images of an alias, and what is known about each beyond what EC2 says.
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
            return Err(refused.unwrap_or_else(|| AmiError::NothingForAlias { alias: text.to_owned() }));
        }
        Ok((ImageQuery { ids: known.keys().cloned().collect(), ..ImageQuery::default() }, known))
    }

    /// A variant that is not published for this version, or whose parameter may not be read, is left out; the other
    /// variants of the alias are used.
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
