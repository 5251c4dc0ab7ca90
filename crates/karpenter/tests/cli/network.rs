//! Tests how the binary connects to Kubernetes and AWS: through a proxy, with custom CA certificates, and with
//! credentials from every source of the SDK's default chain.
//!
//! Everything runs in the test: an HTTP proxy, an API server, and a TLS server with its own CA for the hosts of AWS.

mod aws_hosts;
mod proxy;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use karpenter_apiserver::serve::{Credentials, Security};
use karpenter_apiserver::{ApiServer, Config};

use proxy::Proxy;

const KUBERNETES: &str = "kubernetes.example.internal";

/// A directory that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("karpenter-network-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the binary to its end. It gets exactly these environment variables.
async fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || command.output().expect("the binary starts")).await.expect("it ran")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_client_uses_proxy_of_environment() {
    let credentials = Credentials::generate(&[KUBERNETES.to_owned()]).expect("credentials");
    let server = ApiServer::new(Config::default());
    let security = Security::Tls(Arc::new(credentials));
    let serving = server.serve((Ipv4Addr::LOCALHOST, 0).into(), security).await.expect("an address");
    let proxy = Proxy::start(serving.address()).await;
    let folder = Folder::new("kubernetes");
    let kubeconfig =
        serving.kubeconfig().replace(&serving.address().to_string(), &format!("{KUBERNETES}:6443"));
    let file = folder.write("kubeconfig", &kubeconfig);
    let arguments = ["doctor", "--kubeconfig", text(&file)];

    let address = format!("http://user:secret@{}", proxy.address());
    let output = run(&arguments, &[("HTTPS_PROXY", &address)]).await;
    assert!(said(&output).contains("1.35"), "{}", said(&output));
    assert!(!said(&output).contains("secret"), "{}", said(&output));
    let seen = proxy.take();
    assert!(!seen.is_empty());
    for connection in seen {
        assert_eq!(connection.target, format!("{KUBERNETES}:6443"));
        // user:secret
        assert_eq!(connection.authorization.as_deref(), Some("Basic dXNlcjpzZWNyZXQ="));
    }

    // The variable in lower case has an effect as well. NO_PROXY is compared with the API server's address, not with
    // the proxy's.
    let output = run(&arguments, &[("https_proxy", &address), ("NO_PROXY", "127.0.0.1,.other")]).await;
    assert!(!proxy.take().is_empty(), "{}", said(&output));
    let output = run(&arguments, &[("HTTPS_PROXY", &address), ("NO_PROXY", ".internal")]).await;
    assert!(proxy.take().is_empty(), "{}", said(&output));

    // A proxy in the kubeconfig has priority over the environment.
    let own = kubeconfig.replace("server:", &format!("proxy-url: http://{}\n    server:", proxy.address()));
    let file = folder.write("own", &own);
    let variables = [("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", ".internal")];
    let output = run(&["doctor", "--kubeconfig", text(&file)], &variables).await;
    assert!(!proxy.take().is_empty(), "{}", said(&output));
    serving.shutdown().await;
}

#[cfg(feature = "aws")]
mod aws {
    use karpenter_api::crds;
    use kube::Client;
    use kube::api::{Api, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};

    use super::aws_hosts::{AwsHosts, Request};
    use super::*;

    /// Everything that `karpenter controller --provider aws` needs until EC2 rejects its first call, whereupon it
    /// exits.
    struct Surroundings {
        folder: Folder,
        hosts: AwsHosts,
        proxy: Proxy,
        _server: karpenter_apiserver::serve::Serving,
        kubeconfig: PathBuf,
    }

    impl Surroundings {
        async fn start(name: &str) -> Self {
            let server = ApiServer::new(Config::default());
            define_kinds(&Client::new(server.clone(), "default")).await;
            let serving = server.serve((Ipv4Addr::LOCALHOST, 0).into(), Security::Plain).await;
            let serving = serving.expect("an address");
            let folder = Folder::new(name);
            let kubeconfig = folder.write("kubeconfig", &serving.kubeconfig());
            let hosts = AwsHosts::start().await;
            folder.write("ca.pem", hosts.authority());
            folder.write("empty", "");
            let proxy = Proxy::start(hosts.address()).await;
            Self { folder, hosts, proxy, _server: serving, kubeconfig }
        }

        fn file(&self, name: &str) -> String {
            text(&self.folder.0.join(name)).to_owned()
        }

        /// The requests that AWS received, and the output of the binary.
        async fn run(&self, variables: &[(&str, &str)]) -> (Vec<Request>, String) {
            let (proxy, ca) = (format!("http://{}", self.proxy.address()), self.file("ca.pem"));
            let (empty, home) = (self.file("empty"), text(&self.folder.0).to_owned());
            let mut all = vec![
                ("HOME", home.as_str()),
                ("HTTPS_PROXY", &proxy),
                ("AWS_CA_BUNDLE", &ca),
                ("AWS_REGION", "us-west-2"),
                ("AWS_CONFIG_FILE", &empty),
                ("AWS_SHARED_CREDENTIALS_FILE", &empty),
                ("AWS_EC2_METADATA_DISABLED", "true"),
            ];
            all.retain(|(name, _)| variables.iter().all(|(other, _)| other != name));
            all.extend(variables.iter().copied().filter(|(_, value)| !value.is_empty()));
            let kubeconfig = text(&self.kubeconfig);
            let arguments =
                ["controller", "--provider", "aws", "--cluster-name", "shop", "--kubeconfig", kubeconfig];
            let output = run(&arguments, &all).await;
            assert!(!output.status.success());
            (self.hosts.take(), said(&output))
        }
    }

    async fn define_kinds(client: &Client) {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        for crd in crds::all() {
            let definition: serde_json::Value = serde_saphyr::from_str(crd.yaml).expect("YAML");
            let parameters = PatchParams::apply("test").force();
            api.patch(crd.name, &parameters, &Patch::Apply(&definition)).await.expect("defined");
        }
    }

    const KEYS: [(&str, &str); 2] =
        [("AWS_ACCESS_KEY_ID", "AKIDENVIRONMENT"), ("AWS_SECRET_ACCESS_KEY", "secret")];

    #[tokio::test(flavor = "multi_thread")]
    async fn aws_calls_use_proxy_and_ca_bundle() {
        let surroundings = Surroundings::start("proxy").await;
        let (asked, said) = surroundings.run(&KEYS).await;
        assert_eq!(asked.len(), 1, "{said}");
        assert_eq!(asked[0].host, "ec2.us-west-2.amazonaws.com");
        assert!(said.contains("UnauthorizedOperation"), "{said}");
        assert_eq!(surroundings.proxy.take()[0].target, "ec2.us-west-2.amazonaws.com:443");

        // The client rejects a server certificate that no trusted authority signed.
        let (asked, said) =
            surroundings.run(&[KEYS[0], KEYS[1], ("AWS_CA_BUNDLE", ""), ("AWS_MAX_ATTEMPTS", "many")]).await;
        assert!(asked.is_empty() && said.contains("AWS_MAX_ATTEMPTS"), "{said}");
        let file = surroundings.file("empty");
        let (asked, said) = surroundings.run(&[KEYS[0], KEYS[1], ("AWS_CA_BUNDLE", &file)]).await;
        assert!(asked.is_empty() && said.contains("AWS_CA_BUNDLE"), "{said}");
        assert!(surroundings.proxy.take().is_empty());

        // The certificates of this variable replace the system's CA certificates, as in Go, and for connections to
        // Kubernetes as well.
        let ca = surroundings.file("ca.pem");
        let (asked, said) =
            surroundings.run(&[KEYS[0], KEYS[1], ("AWS_CA_BUNDLE", ""), ("SSL_CERT_FILE", &ca)]).await;
        assert_eq!(asked.len(), 1, "{said}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn number_of_attempts_follows_configuration() {
        let surroundings = Surroundings::start("attempts").await;
        surroundings.hosts.set_busy(true);
        let config =
            surroundings.folder.write("config", "[default]\nmax_attempts = 1\nretry_mode = adaptive\n");
        let endpoint = ("CLUSTER_ENDPOINT", "https://kubernetes.example.internal");
        for (variable, attempts) in [(("AWS_MAX_ATTEMPTS", "2"), 2), (("AWS_CONFIG_FILE", text(&config)), 1)]
        {
            let (asked, said) = surroundings.run(&[KEYS[0], KEYS[1], endpoint, variable]).await;
            let tried = asked.iter().filter(|request| request.does("DescribeInstanceTypes")).count();
            assert_eq!(tried, attempts, "{said}");
        }
        let (asked, said) = surroundings.run(&[KEYS[0], KEYS[1], ("AWS_RETRY_MODE", "often")]).await;
        assert!(asked.is_empty() && said.contains("standard, adaptive"), "{said}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn credentials_come_from_every_source_of_the_default_chain() {
        let surroundings = Surroundings::start("credentials").await;
        let folder = &surroundings.folder;
        let token = folder.write("token", "a-token");
        let process = folder.write(
            "process.json",
            r#"{"Version": 1, "AccessKeyId": "AKIDPROCESS", "SecretAccessKey": "secret"}"#,
        );
        // The name of the cached token file is the SHA-1 of the start URL, or of the session's name.
        let cached = r#"{"accessToken": "sso-token", "expiresAt": "2100-01-01T00:00:00Z", "region": "us-east-1",
            "startUrl": "https://example.awsapps.com/start"}"#;
        folder.write(".aws/sso/cache/d033e22ae348aeb5660fc2140aec35850c4da997.json", cached);
        folder.write(".aws/sso/cache/e8be5486177c5b5392bd9aa76563515b29358e6e.json", cached);
        let config = folder.write(
            "config",
            &format!(
                "[profile keys]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = secret\n\
                 [profile role]\nrole_arn = arn:aws:iam::111122223333:role/karpenter\nsource_profile = keys\n\
                 [profile process]\ncredential_process = /bin/cat {}\n\
                 [profile sso]\nsso_start_url = https://example.awsapps.com/start\nsso_region = us-east-1\n\
                 sso_account_id = 111122223333\nsso_role_name = karpenter\n\
                 [profile session]\nsso_session = admin\nsso_account_id = 111122223333\nsso_role_name = karpenter\n\
                 [sso-session admin]\nsso_start_url = https://example.awsapps.com/start\nsso_region = us-east-1\n",
                text(&process)
            ),
        );
        let (config, token) = (text(&config), text(&token));
        let role = ("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/karpenter");
        let table: [(&[(&str, &str)], &str, &[&str]); 7] = [
            (&KEYS, "AKIDENVIRONMENT", &[]),
            (&[("AWS_PROFILE", "keys")], "AKIDPROFILE", &[]),
            (&[("AWS_PROFILE", "role")], "AKIDROLE", &["sts.us-west-2.amazonaws.com"]),
            (&[("AWS_PROFILE", "process")], "AKIDPROCESS", &[]),
            (&[("AWS_PROFILE", "sso")], "AKIDSSO", &["portal.sso.us-east-1.amazonaws.com"]),
            (&[("AWS_PROFILE", "session")], "AKIDSSO", &["portal.sso.us-east-1.amazonaws.com"]),
            (
                &[("AWS_WEB_IDENTITY_TOKEN_FILE", token), role],
                "AKIDWEBIDENTITY",
                &["sts.us-west-2.amazonaws.com"],
            ),
        ];
        for (variables, key, before) in table {
            let mut all = vec![("AWS_CONFIG_FILE", config)];
            all.extend(variables);
            let (asked, said) = surroundings.run(&all).await;
            let hosts: Vec<&str> = asked.iter().map(|request| request.host.as_str()).collect();
            let expected: Vec<&str> = before.iter().copied().chain(["ec2.us-west-2.amazonaws.com"]).collect();
            assert_eq!(hosts, expected, "{key}: {said}");
            let signed = asked.last().map(|request| request.authorization.clone()).unwrap_or_default();
            assert!(signed.contains(&format!("Credential={key}/")), "{key}: {signed}");
        }

        // Without a cached SSO session no request is made, and the error message names SSO.
        std::fs::remove_dir_all(folder.0.join(".aws/sso/cache")).expect("a cache");
        let (asked, said) = surroundings.run(&[("AWS_CONFIG_FILE", config), ("AWS_PROFILE", "sso")]).await;
        assert!(asked.is_empty() && said.to_lowercase().contains("sso"), "{said}");
    }
}
