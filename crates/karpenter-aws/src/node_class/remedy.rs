//! What to do about an error of AWS, in words for whoever runs the cluster.

use crate::api::{AwsError, ErrorKind};

use super::conditions::Trouble;

/// `action`: the call as policies name it, such as `ec2:DescribeSubnets`.
pub(crate) fn trouble(action: &str, error: &AwsError) -> Trouble {
    Trouble { error: format!("{action}: {error}"), remedy: remedy(action, error) }
}

fn remedy(action: &str, error: &AwsError) -> String {
    if error.code == "AuthFailure" {
        return "check the credentials of this process, and that the region is right and enabled for the account; if \
            both are, allow the call in the policies of its role"
            .to_owned();
    }
    match error.kind {
        ErrorKind::BadCredentials => "give this process valid credentials: the role of its service account, a pod \
            identity association, the instance's profile or AWS_* variables; they are missing, wrong or expired"
            .to_owned(),
        ErrorKind::Unauthorized => {
            format!("allow {action} in the policies of the role that this process runs with")
        }
        ErrorKind::Throttled => {
            "nothing: AWS asks for fewer calls, and it is tried again later; if it stays, look for others who call \
             the same API in this account"
                .to_owned()
        }
        ErrorKind::Transient => "check that the region is right and that its endpoints can be reached from this \
            pod; it is tried again later"
            .to_owned(),
        ErrorKind::NotFound | ErrorKind::LaunchTemplateNotFound => {
            "check the names and ids in the class, and that they are of this account and region".to_owned()
        }
        ErrorKind::AlreadyExists
        | ErrorKind::Unfulfillable
        | ErrorKind::SpotRoleMissing
        | ErrorKind::DryRunOk
        | ErrorKind::Other => "check the class against what AWS says; it is tried again later".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_says_what_to_do() {
        let table = [
            ("ExpiredToken", "valid credentials"),
            ("UnauthorizedOperation", "allow ec2:DescribeSubnets"),
            ("AuthFailure", "enabled for the account"),
            ("RequestLimitExceeded", "tried again later"),
            ("InternalError", "region"),
            ("NoSuchEntity", "names and ids"),
            ("InvalidParameterValue", "what AWS says"),
        ];
        for (code, expected) in table {
            let found = trouble("ec2:DescribeSubnets", &AwsError::new(code, "words"));
            assert!(found.remedy.contains(expected), "{code}: {}", found.remedy);
            assert_eq!(found.error, format!("ec2:DescribeSubnets: {code}: words"));
        }
        let unreachable = trouble("ec2:DescribeSubnets", &AwsError::unreachable("no route to host"));
        assert!(unreachable.remedy.contains("endpoints can be reached"));
    }
}
