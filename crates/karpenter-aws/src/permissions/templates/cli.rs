//! A shell script of AWS CLI commands. The script can be run again: it keeps existing resources and updates their
//! settings.

use serde_json::{Value, json};

use super::super::queue::RETENTION_SECS;
use super::super::{
    Controller, RULES, ResourceOptions, Target, controller_role_name, names, policies, queue_policy,
};
use super::{SPOT_ROLE, SPOT_SERVICE, node_policy_arns, node_trust};

const BEGINNING: &str = r#"#!/bin/sh
set -eu
REGION=${AWS_REGION:-${AWS_DEFAULT_REGION:-$(aws configure get region || true)}}
: "${REGION:?set AWS_REGION to the region of the cluster}"
export AWS_REGION="$REGION" AWS_DEFAULT_REGION="$REGION"
ACCOUNT=$(aws sts get-caller-identity --query Account --output text)
PARTITION=$(aws sts get-caller-identity --query Arn --output text | cut -d: -f2)
case "$PARTITION" in aws-cn) URL_SUFFIX=amazonaws.com.cn ;; *) URL_SUFFIX=amazonaws.com ;; esac

# role NAME PATH TRUST
role() {
  aws iam get-role --role-name "$1" >/dev/null 2>&1 ||
    aws iam create-role --role-name "$1" --path "$2" --assume-role-policy-document "$3" >/dev/null
}

# policy NAME DOCUMENT: what is there gets another version, of which IAM keeps five
policy() {
  arn="arn:$PARTITION:iam::$ACCOUNT:policy/$1"
  if aws iam get-policy --policy-arn "$arn" >/dev/null 2>&1; then
    for version in $(aws iam list-policy-versions --policy-arn "$arn" --output text \
      --query 'sort_by(Versions[?!IsDefaultVersion], &CreateDate)[:-3].VersionId'); do
      aws iam delete-policy-version --policy-arn "$arn" --version-id "$version"
    done
    aws iam create-policy-version --policy-arn "$arn" --policy-document "$2" --set-as-default >/dev/null
  else
    aws iam create-policy --policy-name "$1" --policy-document "$2" >/dev/null
  fi
}

# queue NAME ATTRIBUTES
queue() {
  if url=$(aws sqs get-queue-url --queue-name "$1" --query QueueUrl --output text 2>/dev/null); then
    aws sqs set-queue-attributes --queue-url "$url" --attributes "$2"
  else
    aws sqs create-queue --queue-name "$1" --attributes "$2" >/dev/null
  fi
}
"#;

/// A JSON document quoted as one argument of a shell command; shell variables in it are replaced.
fn word(document: &Value) -> String {
    format!("\"$(cat <<EOF\n{document:#}\nEOF\n)\"")
}

/// Builds the shell script of AWS CLI commands.
pub fn cli(options: &ResourceOptions) -> String {
    let target = Target {
        options: options.clone(),
        partition: "${PARTITION}".to_owned(),
        region: "${REGION}".to_owned(),
        account: "${ACCOUNT}".to_owned(),
        url_suffix: "${URL_SUFFIX}".to_owned(),
    };
    let mut script = BEGINNING.to_owned();
    script.push_str(&format!(
        "\naws iam get-role --role-name {SPOT_ROLE} >/dev/null 2>&1 ||\n  \
         aws iam create-service-linked-role --aws-service-name {SPOT_SERVICE} >/dev/null\n"
    ));
    for policy in policies(&target) {
        script.push_str(&format!("\npolicy '{}' {}\n", policy.full_name(&target), word(&policy.document())));
    }
    let made = options.node_roles.iter().filter(|_| options.makes_node_roles);
    for role in made {
        script.push_str(&format!("\nrole '{}' '{}' {}\n", role.name, role.path, word(&node_trust(&target))));
        for arn in node_policy_arns(&target) {
            let name = &role.name;
            script.push_str(&format!(
                "aws iam attach-role-policy --role-name '{name}' --policy-arn \"{arn}\"\n"
            ));
        }
    }
    if let Some(controller) = &options.controller {
        controller_role(&target, controller, &mut script);
    }
    let attributes = json!({
        "MessageRetentionPeriod": RETENTION_SECS.to_string(),
        "SqsManagedSseEnabled": "true",
        "Policy": queue_policy(&target).to_string(),
    });
    script.push_str(&format!("\nqueue '{}' {}\n", options.queue, word(&attributes)));
    for rule in RULES {
        let name = names::rule(&rule, &options.cluster);
        script.push_str(&format!(
            "aws events put-rule --name '{name}' --event-pattern '{}' >/dev/null\n\
             aws events put-targets --rule '{name}' --targets \"Id=KarpenterInterruptionQueueTarget,Arn={}\" >/dev/null\n",
            rule.pattern(),
            target.queue_arn(),
        ));
    }
    let roles: Vec<&str> = options.node_roles.iter().map(|role| role.name.as_str()).collect();
    script.push_str(&format!(
        "\necho 'role of nodes: {}'\necho 'interruption queue: {}'\n",
        roles.join(", "),
        options.queue
    ));
    if options.controller.is_some() {
        script.push_str(&format!("echo \"role of the controller: {}\"\n", target.controller_role_arn()));
    }
    script
}

fn controller_role(target: &Target, controller: &Controller, script: &mut String) {
    let name = controller_role_name(&target.options.cluster);
    // If the role exists, its trust policy is updated, because it may have changed.
    script.push_str(&format!(
        "\ntrust={}\n\
         role '{name}' / \"$trust\"\n\
         aws iam update-assume-role-policy --role-name '{name}' --policy-document \"$trust\"\n",
        word(&controller.trust_policy(target))
    ));
    for policy in policies(target) {
        let arn = target.iam(&format!("policy/{}", policy.full_name(target)));
        script.push_str(&format!("aws iam attach-role-policy --role-name '{name}' --policy-arn \"{arn}\"\n"));
    }
    if controller.uses_pod_identity() {
        let account = format!(
            "--cluster-name '{}' --namespace '{}' --service-account '{}'",
            target.options.cluster, controller.namespace, controller.service_account
        );
        script.push_str(&format!(
            "if [ -z \"$(aws eks list-pod-identity-associations {account} --query 'associations[].associationId' \
             --output text)\" ]; then\n  \
             aws eks create-pod-identity-association {account} --role-arn \"{}\" >/dev/null\nfi\n",
            target.controller_role_arn()
        ));
    }
}
