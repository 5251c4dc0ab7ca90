//! A TLS server with its own CA that responds like AWS: credentials from STS and SSO, and an error from EC2.
#![cfg(feature = "aws")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

const HOSTS: [&str; 3] =
    ["ec2.us-west-2.amazonaws.com", "sts.us-west-2.amazonaws.com", "portal.sso.us-east-1.amazonaws.com"];

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) host: String,
    pub(crate) authorization: String,
    /// A parameter of the form or the query.
    parameters: String,
}

impl Request {
    /// Whether the request is this EC2 action and not a dry run of it.
    pub(crate) fn does(&self, action: &str) -> bool {
        self.parameters.contains(&format!("Action={action}&")) && !self.is_dry_run()
    }

    fn is_dry_run(&self) -> bool {
        self.parameters.contains("DryRun=true")
    }
}

pub(crate) struct AwsHosts {
    address: SocketAddr,
    authority: String,
    requests: Arc<Mutex<Vec<Request>>>,
    is_busy: Arc<AtomicBool>,
}

impl AwsHosts {
    pub(crate) async fn start() -> Self {
        let (config, authority) = tls();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let is_busy = Arc::<AtomicBool>::default();
        let (list, busy) = (Arc::clone(&requests), Arc::clone(&is_busy));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (acceptor, list, busy) = (acceptor.clone(), Arc::clone(&list), Arc::clone(&busy));
                tokio::spawn(async move {
                    let Ok(mut connection) = acceptor.accept(connection).await else { return };
                    let Some(request) = read(&mut connection).await else { return };
                    let answer = answer(&request, busy.load(Ordering::Relaxed));
                    list.lock().expect("no panic").push(request);
                    let _ = connection.write_all(answer.as_bytes()).await;
                    let _ = connection.shutdown().await;
                });
            }
        });
        Self { address, authority, requests, is_busy }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The CA certificate in PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// If set, EC2 accepts all credentials, and then responds with a status after which clients retry.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// The requests since the last call.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock().expect("no panic"))
    }
}

fn tls() -> (ServerConfig, String) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&authority_key).expect("a certificate");
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(HOSTS.map(str::to_owned)).expect("names");
    let leaf = names.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a certificate and its key");
    (config, certificate.pem())
}

async fn read(connection: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    let parameters = format!("{path} {}", String::from_utf8_lossy(&body));
    let (host, authorization) = (header("host")?, header("authorization").unwrap_or_default());
    Some(Request { host, authorization, parameters })
}

fn answer(request: &Request, is_busy: bool) -> String {
    let has = |text: &str| request.parameters.contains(text);
    let (status, body) = if request.host.starts_with("portal.sso.") {
        ("200 OK", sso(request))
    } else if has("Action=AssumeRoleWithWebIdentity") {
        ("200 OK", sts("AssumeRoleWithWebIdentity", "AKIDWEBIDENTITY"))
    } else if has("Action=AssumeRole") {
        ("200 OK", sts("AssumeRole", "AKIDROLE"))
    } else {
        match (is_busy, request.is_dry_run()) {
            (true, true) => ("412 Precondition Failed", refusal("DryRunOperation")),
            (true, false) => ("503 Service Unavailable", refusal("UnauthorizedOperation")),
            (false, _) => ("403 Forbidden", refusal("UnauthorizedOperation")),
        }
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn refusal(code: &str) -> String {
    format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>no</Message></Error></Errors>\
         <RequestID>r</RequestID></Response>"
    )
}

fn sts(action: &str, key: &str) -> String {
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials>\
         <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken>\
         <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials><AssumedRoleUser><AssumedRoleId>a:b</AssumedRoleId>\
         <Arn>arn:aws:sts::111122223333:assumed-role/karpenter/b</Arn></AssumedRoleUser></{action}Result>\
         <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"
    )
}

fn sso(request: &Request) -> String {
    assert!(request.parameters.contains("role_name=karpenter"), "{request:?}");
    r#"{"roleCredentials": {"accessKeyId": "AKIDSSO", "secretAccessKey": "secret", "sessionToken": "session",
        "expiration": 4102444800000}}"#
        .to_owned()
}
