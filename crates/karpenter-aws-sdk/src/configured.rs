//! Settings that the AWS SDK for Go supports and the SDK for Rust supports only partly: AWS_CA_BUNDLE, and the number
//! of attempts. Each is read from the environment, or else from the profile of the shared configuration.

use std::path::Path;

use aws_config::profile::{ProfileSet, load};
use aws_smithy_types::retry::{RetryConfig, RetryMode};
use aws_types::os_shim_internal::{Env, Fs};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::ConnectError;

const CA_BUNDLE: Setting = Setting { variable: "AWS_CA_BUNDLE", key: "ca_bundle" };
const MAX_ATTEMPTS: Setting = Setting { variable: "AWS_MAX_ATTEMPTS", key: "max_attempts" };
const RETRY_MODE: Setting = Setting { variable: "AWS_RETRY_MODE", key: "retry_mode" };

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// A setting with its environment variable and its key in a profile.
#[derive(Clone, Copy)]
struct Setting {
    variable: &'static str,
    key: &'static str,
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    place: String,
    value: String,
}

#[derive(Debug)]
pub(crate) struct Configured {
    /// CA certificates in PEM, used instead of the system's.
    pub(crate) ca_bundle: Option<Vec<u8>>,
    pub(crate) retry: RetryConfig,
}

/// A profile that cannot be read counts as absent; the SDK reports the error when it looks for credentials.
pub(crate) async fn read() -> Result<Configured, ConnectError> {
    let profiles = load(&Fs::real(), &Env::real(), &Default::default(), None).await.ok();
    let found = |setting: Setting| find(setting, std::env::var(setting.variable).ok(), profiles.as_ref());
    let ca_bundle = match found(CA_BUNDLE) {
        Some(file) => {
            let wrong = |reason: String| ConnectError::CaBundle {
                place: file.place.clone(),
                path: file.value.clone(),
                reason,
            };
            let text = std::fs::read(Path::new(&file.value)).map_err(|error| wrong(error.to_string()))?;
            Some(certificates(&text).map_err(|reason| wrong(reason.to_owned()))?)
        }
        None => None,
    };
    Ok(Configured { ca_bundle, retry: retry(found(MAX_ATTEMPTS), found(RETRY_MODE))? })
}

fn find(setting: Setting, variable: Option<String>, profiles: Option<&ProfileSet>) -> Option<Found> {
    if let Some(value) = variable.filter(|value| !value.is_empty()) {
        return Some(Found { place: setting.variable.to_owned(), value });
    }
    let profiles = profiles?;
    let place = format!("{} of profile {}", setting.key, profiles.selected_profile());
    profiles.get(setting.key).map(|value| Found { place, value: value.to_owned() })
}

/// The valid certificates of a bundle, as in Go; at least one is required.
fn certificates(bundle: &[u8]) -> Result<Vec<u8>, &'static str> {
    let text = str::from_utf8(bundle).map_err(|_| "the file is not valid UTF-8")?;
    let mut usable = String::new();
    for block in text.split(BEGIN).skip(1) {
        let Some((body, _)) = block.split_once(END) else { continue };
        let block = format!("{BEGIN}{body}{END}\n");
        let is_usable = CertificateDer::from_pem_slice(block.as_bytes())
            .is_ok_and(|certificate| RootCertStore::empty().add(certificate).is_ok());
        if is_usable {
            usable.push_str(&block);
        }
    }
    if usable.is_empty() { Err("the file holds no certificate in PEM") } else { Ok(usable.into_bytes()) }
}

/// The default is three attempts in the mode `standard`, as in Go.
fn retry(attempts: Option<Found>, mode: Option<Found>) -> Result<RetryConfig, ConnectError> {
    let mut config = RetryConfig::standard();
    if let Some(Found { place, value }) = mode {
        config = match value.to_ascii_lowercase().as_str() {
            "standard" => config.with_retry_mode(RetryMode::Standard),
            "adaptive" => config.with_retry_mode(RetryMode::Adaptive),
            _ => return Err(ConnectError::RetryMode { place, value }),
        };
    }
    if let Some(Found { place, value }) = attempts {
        config = match value.parse() {
            // 0 means no limit.
            Ok(0) => config.with_max_attempts(u32::MAX),
            Ok(attempts) => config.with_max_attempts(attempts),
            Err(_) => return Err(ConnectError::MaxAttempts { place, value }),
        };
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(value: &str) -> Option<Found> {
        (!value.is_empty()).then(|| Found { place: "AWS_X".to_owned(), value: value.to_owned() })
    }

    #[test]
    fn retry_attempts_and_mode_follow_configuration() {
        for (attempts, mode, expected) in [
            ("", "", (3, RetryMode::Standard)),
            ("7", "", (7, RetryMode::Standard)),
            ("1", "adaptive", (1, RetryMode::Adaptive)),
            ("", "Standard", (3, RetryMode::Standard)),
            ("0", "", (u32::MAX, RetryMode::Standard)),
        ] {
            let config = retry(found(attempts), found(mode)).expect("valid");
            assert_eq!((config.max_attempts(), config.mode()), expected, "{attempts:?} {mode:?}");
        }
        for (attempts, mode, named) in [("many", "", "many"), ("-1", "", "-1"), ("", "legacy", "legacy")] {
            let error = retry(found(attempts), found(mode)).expect_err("not valid").to_string();
            assert!(error.starts_with("AWS_X") && error.contains(named), "{error}");
        }
    }

    #[test]
    fn environment_has_priority_over_profile_and_empty_values_count_as_absent() {
        let setting = MAX_ATTEMPTS;
        assert_eq!(find(setting, Some("5".to_owned()), None).map(|found| found.value).as_deref(), Some("5"));
        assert_eq!(find(setting, Some(String::new()), None), None);
        assert_eq!(find(setting, None, None), None);
    }

    #[test]
    fn bundle_without_valid_certificate_is_rejected() {
        assert!(certificates(b"").is_err());
        assert!(certificates(b"no certificates here").is_err());
        assert!(certificates(format!("{BEGIN}\nbm90aGluZw==\n{END}\n").as_bytes()).is_err());
        assert!(certificates(&[0xff, 0xfe]).is_err());
    }
}
