use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Credentials, Security};
use crate::{ApiServer, Config};

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

async fn plain_request(address: SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn plain_http_requires_loopback_address() {
    let server = ApiServer::new(Config::default());
    let everywhere: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    assert!(server.serve(everywhere, Security::Plain).await.is_err());
    let serving = server.serve(loopback(), Security::Plain).await.unwrap();
    let answer = plain_request(serving.address(), "/version").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("v1.35"));
    serving.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_watches_and_closes_port() {
    let server = ApiServer::new(Config::default());
    let serving = server.serve(loopback(), Security::Plain).await.unwrap();
    let address = serving.address();
    let watching = tokio::spawn(async move { plain_request(address, "/api/v1/nodes?watch=1").await });
    // When the server has responded to a request on a later connection, it has also handled the start of the watch.
    plain_request(address, "/healthz").await;
    serving.shutdown().await;
    let answer = watching.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") || answer.is_empty(), "{answer}");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

mod with_kube {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use kube::{Api, Client};

    use super::*;

    async fn client(kubeconfig: &str) -> Client {
        let parsed = Kubeconfig::from_yaml(kubeconfig).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    #[tokio::test]
    async fn only_credentials_of_kubeconfig_are_accepted() {
        let server = ApiServer::new(Config::default());
        let credentials = Arc::new(Credentials::generate(&[]).unwrap());
        let serving = server.serve(loopback(), Security::Tls(credentials.clone())).await.unwrap();
        let kubeconfig = serving.kubeconfig();
        let namespaces: Api<Namespace> = Api::all(client(&kubeconfig).await);
        assert!(namespaces.get_opt("default").await.unwrap().is_some());

        let forged = kubeconfig.replace(&credentials.token, "guess");
        let namespaces: Api<Namespace> = Api::all(client(&forged).await);
        let refused = namespaces.get("default").await.unwrap_err();
        let kube::Error::Api(status) = refused else { panic!("{refused}") };
        assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));

        let mut parsed = Kubeconfig::from_yaml(&forged).unwrap();
        let user = parsed.auth_infos[0].auth_info.as_mut().unwrap();
        user.token = None;
        let encode = |pem: &str| {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.encode(pem)
        };
        user.client_certificate_data = Some(encode(&credentials.client_certificate));
        user.client_key_data = Some(encode(&credentials.client_key).into());
        let config =
            kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
        assert!(namespaces.get_opt("default").await.unwrap().is_some());
        serving.shutdown().await;
    }
}

#[test]
fn credentials_are_stored_in_file() {
    let directory = std::env::temp_dir().join(format!("karpenter-credentials-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("credentials.json");
    let first = Credentials::load_or_generate(&file, &[]).unwrap();
    let second = Credentials::load_or_generate(&file, &[]).unwrap();
    assert_eq!(first.token, second.token);
    std::fs::write(&file, "nonsense").unwrap();
    assert!(Credentials::load_or_generate(&file, &[]).is_err());
    std::fs::remove_dir_all(&directory).unwrap();
}
