//! Suggests how the administrator of the cluster can fix an AWS error.

use crate::api::{AwsError, ErrorKind};

use super::conditions::Failure;

/// `action` is the call by its name in IAM policies, such as `ec2:DescribeSubnets`.
pub(crate) fn failure(action: &str, error: &AwsError) -> Failure {
    Failure { error: format!("{action}: {error}"), remedy: remedy(action, error) }
}

fn remedy(action: &str, error: &AwsError) -> String {
    if error.code == "AuthFailure" {
        return "check the controller's credentials, and that the region is correct and enabled for the account; if \
            both are, allow the call in the policies of the controller role"
            .to_owned();
    }
    match error.kind {
        ErrorKind::BadCredentials => "credentials are missing, wrong or expired; give the controller valid credentials: \
            IRSA, an EKS Pod Identity association, an instance profile or AWS_* variables"
            .to_owned(),
        ErrorKind::Unauthorized => {
            format!("allow {action} in the policies of the controller role")
        }
        ErrorKind::Throttled => {
            "none: AWS throttles calls, and the call is retried; if it persists, look for other callers of the same \
             API in this account"
                .to_owned()
        }
        ErrorKind::Transient => "check that the region is correct and that its endpoints can be reached from this \
            pod; the call is retried"
            .to_owned(),
        ErrorKind::NotFound | ErrorKind::LaunchTemplateNotFound => {
            "check that the names and ids in the nodeclass exist in this account and region".to_owned()
        }
        ErrorKind::AlreadyExists
        | ErrorKind::Unfulfillable
        | ErrorKind::SpotRoleMissing
        | ErrorKind::DryRunOk
        | ErrorKind::Other => "correct the nodeclass as the error says; the call is retried".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_remedy() {
        let table = [
            ("ExpiredToken", "valid credentials"),
            ("UnauthorizedOperation", "allow ec2:DescribeSubnets"),
            ("AuthFailure", "enabled for the account"),
            ("RequestLimitExceeded", "the call is retried"),
            ("InternalError", "region"),
            ("NoSuchEntity", "names and ids"),
            ("InvalidParameterValue", "as the error says"),
        ];
        for (code, expected) in table {
            let found = failure("ec2:DescribeSubnets", &AwsError::new(code, "words"));
            assert!(found.remedy.contains(expected), "{code}: {}", found.remedy);
            assert_eq!(found.error, format!("ec2:DescribeSubnets: {code}: words"));
        }
        let unreachable = failure("ec2:DescribeSubnets", &AwsError::unreachable("no route to host"));
        assert!(unreachable.remedy.contains("endpoints can be reached"));
    }
}
