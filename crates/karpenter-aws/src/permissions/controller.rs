//! The controller role and its trust policy.

use serde_json::{Value, json};

use super::Target;

/// The controller's service account, and the way in which it gets the role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub trust: Trust,
    pub namespace: String,
    pub service_account: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// With IRSA, the service account names the role in an annotation, and IAM trusts the cluster's OIDC provider.
    Oidc(OidcProvider),
    /// EKS Pod Identity.
    PodIdentity,
}

/// An OIDC identity provider in IAM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcProvider {
    /// Without the scheme.
    pub issuer: String,
    /// The ARN of the provider if the user stated it; `None` means that the provider is in the target account.
    pub arn: Option<String>,
}

impl OidcProvider {
    /// Parses the URL of an OIDC issuer, or the ARN of a provider.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (issuer, arn) = match text.split_once(":oidc-provider/") {
            Some((_, issuer)) if text.starts_with("arn:") => (issuer, Some(text.to_owned())),
            _ => (text.strip_prefix("https://").unwrap_or_default(), None),
        };
        let issuer = issuer.trim_end_matches('/');
        let is_valid = issuer.contains('.')
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._:/".contains(letter));
        match is_valid {
            true => Ok(Self { issuer: issuer.to_owned(), arn }),
            false => Err(
                "valid: an issuer such as https://oidc.eks.us-west-2.amazonaws.com/id/0123, or the ARN of \
                          its provider in IAM"
                    .to_owned(),
            ),
        }
    }
}

impl Controller {
    pub(super) fn uses_pod_identity(&self) -> bool {
        self.trust == Trust::PodIdentity
    }

    /// The trust policy of the controller role.
    pub(super) fn trust_policy(&self, target: &Target) -> Value {
        let statement = match &self.trust {
            Trust::PodIdentity => json!({
                "Effect": "Allow",
                "Principal": {"Service": ["pods.eks.amazonaws.com"]},
                "Action": ["sts:AssumeRole", "sts:TagSession"],
            }),
            Trust::Oidc(provider) => {
                let issuer = &provider.issuer;
                let arn =
                    provider.arn.clone().unwrap_or_else(|| target.iam(&format!("oidc-provider/{issuer}")));
                let subject = format!("system:serviceaccount:{}:{}", self.namespace, self.service_account);
                json!({
                    "Effect": "Allow",
                    "Principal": {"Federated": [arn]},
                    "Action": ["sts:AssumeRoleWithWebIdentity"],
                    "Condition": {"StringEquals": {
                        format!("{issuer}:aud"): "sts.amazonaws.com",
                        format!("{issuer}:sub"): subject,
                    }},
                })
            }
        };
        json!({"Version": "2012-10-17", "Statement": [statement]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oidc_provider_is_parsed_from_url_or_arn() {
        let by_address =
            OidcProvider::parse("https://oidc.eks.us-west-2.amazonaws.com/id/AB12").expect("valid");
        assert_eq!(by_address.issuer, "oidc.eks.us-west-2.amazonaws.com/id/AB12");
        assert_eq!(by_address.arn, None);
        let arn = "arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-west-2.amazonaws.com/id/AB12";
        let by_arn = OidcProvider::parse(arn).expect("valid");
        assert_eq!((by_arn.issuer, by_arn.arn.as_deref()), (by_address.issuer, Some(arn)));
        for wrong in
            ["", "https://", "AB12", "http://oidc.example/id", "arn:aws:iam::1:role/x", "https://a.b/$(x)"]
        {
            assert!(OidcProvider::parse(wrong).is_err(), "{wrong}");
        }
    }
}
