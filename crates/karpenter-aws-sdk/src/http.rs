//! The HTTP client of all AWS calls: TLS, trusted CA certificates and proxy.
//!
//! The process has one TLS stack, rustls with ring, which the Kubernetes client uses too; the SDK's default would add a
//! second crypto library in C. As in the SDK for Go, it trusts the CA certificates of the system (or of SSL_CERT_FILE),
//! or, if AWS_CA_BUNDLE is set, only those of AWS_CA_BUNDLE.

use std::net::IpAddr;
use std::sync::Arc;

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use http::Uri;
use karpenter_runtime::proxy::ProxyRules;

use crate::ConnectError;

/// `ca_bundle`: CA certificates in PEM, used instead of the system's.
pub(crate) fn client(
    rules: &ProxyRules,
    ca_bundle: Option<Vec<u8>>,
) -> Result<SharedHttpClient, ConnectError> {
    let trusted = match ca_bundle {
        Some(certificates) => TrustStore::empty().with_pem_certificate(certificates),
        None => TrustStore::default(),
    };
    let tls = TlsContext::builder().with_trust_store(trusted).build().map_err(ConnectError::tls)?;
    let mut proxied = Vec::new();
    for proxy in rules.proxies() {
        let config = proxy_config(proxy)?;
        proxied.push((proxy.clone(), hyper_client(&tls, config)));
    }
    let direct = hyper_client(&tls, ProxyConfig::disabled());
    Ok(SharedHttpClient::new(Routed { rules: Arc::new(rules.clone()), direct, proxied }))
}

fn proxy_config(proxy: &Uri) -> Result<ProxyConfig, ConnectError> {
    let scheme = proxy.scheme_str().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err(ConnectError::ProxyScheme { scheme: scheme.to_owned() });
    }
    ProxyConfig::all(proxy.clone()).map_err(|_| ConnectError::ProxyScheme { scheme: scheme.to_owned() })
}

/// A client with a connection pool, and optionally a proxy for all requests.
fn hyper_client(tls: &TlsContext, proxy: ProxyConfig) -> SharedHttpClient {
    let tls = tls.clone();
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut builder = Connector::builder();
        builder.set_connector_settings(settings.cloned());
        builder.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
        let builder = builder.proxy_config(proxy.clone());
        builder.tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(tls.clone()).build()
    })
}

/// The proxy of a request, if any.
fn proxy_for<'a>(rules: &'a ProxyRules, target: &str) -> Option<&'a Uri> {
    let target: Uri = target.parse().ok()?;
    if is_of_this_instance(&target) { None } else { rules.proxy_for(&target) }
}

/// Addresses that are local to an instance, container or pod and must not be reached through a proxy: the metadata
/// service and the credential agents.
fn is_of_this_instance(target: &Uri) -> bool {
    let host = target.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse() {
        Ok(IpAddr::V4(ip)) => ip.is_link_local(),
        // EC2's IPv6 addresses begin with fd00:ec2.
        Ok(IpAddr::V6(ip)) => ip.segments()[..2] == [0xfd00, 0xec2] || ip.is_unicast_link_local(),
        Err(_) => false,
    }
}

/// A client that selects one of several clients by the URL of each request.
#[derive(Debug)]
struct Routed<T> {
    rules: Arc<ProxyRules>,
    direct: T,
    proxied: Vec<(Uri, T)>,
}

impl HttpClient for Routed<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let of = |client: &SharedHttpClient| client.http_connector(settings, components);
        SharedHttpConnector::new(Routed {
            rules: Arc::clone(&self.rules),
            direct: of(&self.direct),
            proxied: self.proxied.iter().map(|(proxy, client)| (proxy.clone(), of(client))).collect(),
        })
    }
}

impl HttpConnector for Routed<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let proxy = proxy_for(&self.rules, request.uri());
        let of_proxy = proxy.and_then(|proxy| self.proxied.iter().find(|(known, _)| known == proxy));
        of_proxy.map_or(&self.direct, |(_, connector)| connector).call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_credentials_of_this_instance_bypass_every_proxy() {
        let rules =
            ProxyRules::from_variables(|name| name.ends_with("_PROXY").then(|| "proxy:3128".to_owned()));
        // NO_PROXY contains the host of the proxy itself.
        for (target, is_proxied) in [
            ("https://ec2.us-west-2.amazonaws.com/", true),
            ("http://ec2.us-west-2.amazonaws.com/", true),
            ("http://169.254.169.254/latest/meta-data/", false),
            ("http://169.254.170.2/v2/credentials", false),
            ("http://169.254.170.23/v1/credentials", false),
            ("http://[fd00:ec2::254]/latest/meta-data/", false),
            ("http://[fd00:ec2::23]/v1/credentials", false),
            ("http://127.0.0.1:8080/", false),
        ] {
            assert_eq!(proxy_for(&rules, target).is_some(), is_proxied, "{target}");
        }
    }

    #[test]
    fn unsupported_proxy_scheme_is_an_error() {
        let rules =
            ProxyRules::from_variables(|name| (name == "HTTPS_PROXY").then(|| "socks5://proxy".to_owned()));
        let error = client(&rules, None).expect_err("SOCKS");
        assert!(error.to_string().contains("socks5"), "{error}");
    }
}
