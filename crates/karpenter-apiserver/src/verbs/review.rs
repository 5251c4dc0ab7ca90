//! Review kinds (`SelfSubjectAccessReview`, `TokenReview`, …): the response contains the result, and nothing is stored.
//! Every request is allowed.

use serde_json::{Value, json};

use super::Call;
use super::pipeline::Ownership;
use crate::clock::rfc3339_seconds;
use crate::encode::Reply;
use crate::field::FieldError;
use crate::status::{ApiResult, Failure};

const USER: &str = "kubernetes-admin";

impl Call<'_> {
    /// The response to a review; `None` if the kind is not a review.
    pub(crate) fn review(&self) -> ApiResult<Option<Reply>> {
        let group = self.resource.group.as_str();
        if group != "authorization.k8s.io" && group != "authentication.k8s.io" {
            return Ok(None);
        }
        let user = json!({"username": USER, "groups": ["system:masters", "system:authenticated"]});
        let status = match self.resource.kind.as_str() {
            "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
                json!({"allowed": true})
            }
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            "SelfSubjectReview" => json!({"userInfo": user}),
            "TokenReview" => json!({"authenticated": true, "user": user}),
            _ => return Ok(None),
        };
        let mut review: Value = self.body_value()?;
        self.check_kind(&mut review)?;
        if self.resource.kind.ends_with("AccessReview") {
            let asked = |field: &str| review["spec"][field].is_object();
            if asked("resourceAttributes") == asked("nonResourceAttributes") {
                let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                let error = FieldError::invalid(
                    "spec.resourceAttributes",
                    review["spec"]["resourceAttributes"].clone(),
                    why,
                );
                return Err(Box::new(Failure::invalid(group, "", "", &[error])));
            }
        }
        if self.resource.kind == "SelfSubjectReview" {
            review["metadata"]["creationTimestamp"] = json!(rfc3339_seconds(self.now));
        }
        if group == "authorization.k8s.io" {
            let manager = self.incoming.field_manager();
            self.record(None, &mut review, Ownership::Manager(&manager));
        }
        review["status"] = status;
        Ok(Some(Reply::json(201, &review)))
    }
}
