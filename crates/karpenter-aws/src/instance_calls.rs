//! The calls on instances that background controllers make, as a small trait; its implementation decides about caching.

use std::sync::Arc;

use crate::api::ec2::Ec2Instance;
use crate::api::{AwsFuture, Tags};
use crate::instances::{Freshness, Instances};

pub trait InstanceCalls: Send + Sync + 'static {
    /// Lists all instances of this cluster that are not terminated.
    fn list(&self) -> AwsFuture<'_, Vec<Ec2Instance>>;

    /// Reads one instance from EC2, not from the cache.
    fn get<'a>(&'a self, instance_id: &'a str) -> AwsFuture<'a, Ec2Instance>;

    fn terminate<'a>(&'a self, instance_id: &'a str) -> AwsFuture<'a, ()>;

    fn create_tags<'a>(&'a self, instance_id: &'a str, tags: &'a Tags) -> AwsFuture<'a, ()>;
}

impl InstanceCalls for Instances {
    fn list(&self) -> AwsFuture<'_, Vec<Ec2Instance>> {
        Box::pin(async move {
            let found = Instances::list(self).await?;
            Ok(found.into_iter().map(Arc::unwrap_or_clone).collect())
        })
    }

    fn get<'a>(&'a self, instance_id: &'a str) -> AwsFuture<'a, Ec2Instance> {
        Box::pin(async move {
            Instances::get(self, instance_id, Freshness::Fresh).await.map(Arc::unwrap_or_clone)
        })
    }

    fn terminate<'a>(&'a self, instance_id: &'a str) -> AwsFuture<'a, ()> {
        Box::pin(Instances::terminate(self, instance_id))
    }

    fn create_tags<'a>(&'a self, instance_id: &'a str, tags: &'a Tags) -> AwsFuture<'a, ()> {
        Box::pin(Instances::create_tags(self, instance_id, tags))
    }
}

/// The `spec.providerID` of the Node of an instance.
pub fn provider_id(instance: &Ec2Instance) -> String {
    format!("aws:///{}/{}", instance.zone, instance.id)
}

/// The instance id that a provider id contains; `None` if it is not an AWS provider id.
pub fn instance_id(provider_id: &str) -> Option<&str> {
    let (_, id) = provider_id.strip_prefix("aws:///")?.rsplit_once('/')?;
    Some(id).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_id_has_zone_and_instance_id() {
        let instance =
            Ec2Instance { id: "i-1".to_owned(), zone: "us-east-1a".to_owned(), ..Ec2Instance::default() };
        let id = provider_id(&instance);
        assert_eq!(id, "aws:///us-east-1a/i-1");
        assert_eq!(instance_id(&id), Some("i-1"));
        for other in ["", "aws:///", "aws:///us-east-1a/", "kwok://x/i-1", "i-1"] {
            assert_eq!(instance_id(other), None, "{other}");
        }
    }
}
