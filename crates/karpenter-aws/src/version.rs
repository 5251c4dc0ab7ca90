//! The Kubernetes version of the cluster, on which AMIs and user data depend.
//!
//! The version is read at start and then every five minutes; if reading fails, the last version is used. A version with
//! which the provider was not tested is used as well, and a line is logged.
//!
//! Upstream: `pkg/providers/version`, `pkg/controllers/providers/version`

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::Client;

use crate::api::Eks;

/// The minor versions with which this provider is tested.
const MINOR_MIN: u32 = 26;
const MINOR_MAX: u32 = 36;
const PERIOD: Duration = Duration::from_secs(5 * 60);
const RETRY: Duration = Duration::from_secs(30);

/// A Kubernetes version, as major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let digits = |text: &str| {
            let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok()
        };
        Some(Self { major: digits(major)?, minor: digits(minor)? })
    }

    /// Parses `1.35` or `v1.35.2-eks-1`.
    pub fn parse_whole(text: &str) -> Option<Self> {
        let (major, rest) = text.trim().trim_start_matches('v').split_once('.')?;
        Self::parse(major, rest)
    }

    pub const fn is_supported(self) -> bool {
        self.major == 1 && self.minor >= MINOR_MIN && self.minor <= MINOR_MAX
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Why the version could not be read.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    #[error("cannot read the version of the API server: {0}")]
    ApiServer(#[source] kube::Error),
    #[error("cannot read the version of cluster {cluster} from EKS: {error}")]
    Eks { cluster: String, error: crate::api::AwsError },
    #[error("{text:?} is not a Kubernetes version")]
    Unreadable { text: String },
}

/// Where the version is read from.
#[derive(Clone)]
pub enum VersionSource {
    ApiServer(Client),
    Eks { eks: Arc<dyn Eks>, cluster: String },
}

impl VersionSource {
    pub async fn read(&self) -> Result<Version, VersionError> {
        match self {
            Self::ApiServer(client) => {
                let info = client.apiserver_version().await.map_err(VersionError::ApiServer)?;
                Version::parse(&info.major, &info.minor).ok_or_else(|| VersionError::Unreadable {
                    text: format!("{}.{}", info.major, info.minor),
                })
            }
            Self::Eks { eks, cluster } => {
                let answer = eks.describe_cluster(cluster).await;
                let answer = answer.map_err(|error| VersionError::Eks { cluster: cluster.clone(), error })?;
                let text = answer.version.unwrap_or_default();
                Version::parse_whole(&text).ok_or(VersionError::Unreadable { text })
            }
        }
    }
}

/// The version that was read last. All clones share it.
#[derive(Debug, Clone)]
pub struct KubernetesVersion {
    known: Arc<RwLock<Version>>,
}

impl KubernetesVersion {
    pub fn new(version: Version) -> Self {
        Self { known: Arc::new(RwLock::new(version)) }
    }

    pub fn get(&self) -> Version {
        *self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, version: Version) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = version;
    }
}

/// Updates the version.
pub struct VersionController {
    source: VersionSource,
    version: KubernetesVersion,
    logged: Mutex<Option<Version>>,
}

impl VersionController {
    pub fn new(source: VersionSource, version: KubernetesVersion) -> Self {
        Self { source, version, logged: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }
}

impl Reconcile for VersionController {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let version = match self.source.read().await {
            Ok(version) => version,
            Err(error) => {
                tracing::error!(%error, "failed to read kubernetes version, using last known version");
                return Ok(Requeue::After(RETRY));
            }
        };
        self.version.set(version);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if *logged != Some(version) {
            tracing::debug!(%version, "discovered kubernetes version");
            if !version.is_supported() {
                tracing::error!(
                    %version,
                    "karpenter is not compatible with kubernetes version; supported: 1.{MINOR_MIN} to 1.{MINOR_MAX}"
                );
            }
            *logged = Some(version);
        }
        Ok(Requeue::After(PERIOD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_strings_are_parsed() {
        let version = |minor| Some(Version { major: 1, minor });
        for (text, expected) in [
            ("1.35", version(35)),
            ("v1.35.2-eks-1a2b", version(35)),
            ("1.29+", version(29)),
            ("1", None),
            ("", None),
            ("one.two", None),
            ("1.", None),
        ] {
            assert_eq!(Version::parse_whole(text), expected, "{text}");
        }
        assert_eq!(Version::parse("1", "33+"), version(33));
    }

    #[test]
    fn unsupported_versions_are_detected() {
        let is_supported = |minor| Version { major: 1, minor }.is_supported();
        assert_eq!([25, 26, 36, 37].map(is_supported), [false, true, true, false]);
        assert!(!Version { major: 2, minor: 30 }.is_supported());
    }
}
