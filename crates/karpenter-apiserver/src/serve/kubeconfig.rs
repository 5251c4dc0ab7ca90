//! Renders a kubeconfig.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Credentials;

pub(super) fn render(url: &str, credentials: Option<&Credentials>) -> String {
    let (cluster, user) = match credentials {
        None => (String::new(), "  user: {}\n".to_string()),
        Some(credentials) => {
            let authority = STANDARD.encode(&credentials.authority_certificate);
            (
                format!("    certificate-authority-data: {authority}\n"),
                format!("  user:\n    token: {}\n", credentials.token),
            )
        }
    };
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: embedded\n\
         \x20 cluster:\n\
         {cluster}\
         \x20   server: {url}\n\
         users:\n\
         - name: embedded\n\
         {user}\
         contexts:\n\
         - name: embedded\n\
         \x20 context:\n\
         \x20   cluster: embedded\n\
         \x20   user: embedded\n\
         current-context: embedded\n"
    )
}
