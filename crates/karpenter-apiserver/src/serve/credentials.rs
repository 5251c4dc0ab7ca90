//! The credentials of a listening server and of its clients: certificates and a bearer token.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

const TOKEN_BYTES: usize = 32;

/// A certificate authority, the certificates for server and client that it signed, and a token. Certificates and keys
/// are in PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    pub authority_certificate: String,
    server_certificate: String,
    server_key: String,
    pub client_certificate: String,
    pub client_key: String,
    pub token: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials { .. }")
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Credentials {
    /// Generates credentials. The server certificate is valid for `localhost`, the loopback addresses and `names`.
    pub fn generate(names: &[String]) -> io::Result<Self> {
        Self::try_generate(names).map_err(io::Error::other)
    }

    fn try_generate(names: &[String]) -> Result<Self, Failed> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "embedded-kubernetes-ca");
        let authority_certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);

        let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default.svc"]
            .map(String::from)
            .to_vec();
        all.extend(names.iter().filter(|name| !name.is_empty()).cloned());
        let mut server = CertificateParams::new(all)?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        let server_key = KeyPair::generate()?;
        let server_certificate = server.signed_by(&server_key, &issuer)?;

        let mut client = CertificateParams::new(Vec::new())?;
        client.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        client.distinguished_name.push(DnType::OrganizationName, "system:masters");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        client.use_authority_key_identifier_extension = true;
        let client_key = KeyPair::generate()?;
        let client_certificate = client.signed_by(&client_key, &issuer)?;

        let mut token = [0_u8; TOKEN_BYTES];
        ring::default_provider()
            .secure_random
            .fill(&mut token)
            .map_err(|_| "cannot generate random bytes")?;
        Ok(Self {
            authority_certificate: authority_certificate.pem(),
            server_certificate: server_certificate.pem(),
            server_key: server_key.serialize_pem(),
            client_certificate: client_certificate.pem(),
            client_key: client_key.serialize_pem(),
            token: URL_SAFE_NO_PAD.encode(token),
        })
    }

    /// Reads the credentials from `file`. If the file does not exist, generates credentials and writes them to the
    /// file, which only its owner can read.
    pub fn load_or_generate(file: &Path, names: &[String]) -> io::Result<Self> {
        match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let why = format!("{} is not a credentials file: {error}", file.display());
                io::Error::new(io::ErrorKind::InvalidData, why)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let credentials = Self::generate(names)?;
                write_private(file, &serde_json::to_vec_pretty(&credentials)?)?;
                Ok(credentials)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the request has the bearer token.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, token) = given.split_once(' ').unwrap_or_default();
        scheme.eq_ignore_ascii_case("bearer") && equal(token.trim().as_bytes(), self.token.as_bytes())
    }

    pub(super) fn server_config(&self) -> Result<Arc<ServerConfig>, Failed> {
        let certificates = |pem: &str| -> Result<Vec<CertificateDer<'static>>, Failed> {
            Ok(CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?)
        };
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority_certificate)? {
            roots.add(certificate)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let key = PrivateKeyDer::from_pem_slice(self.server_key.as_bytes())?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&self.server_certificate)?, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Compares two values in constant time, so that the duration does not reveal where they differ.
fn equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(unix)]
fn write_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(file)?.write_all(bytes)
}

#[cfg(not(unix))]
fn write_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::write(file, bytes)
}
