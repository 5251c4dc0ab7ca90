use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: AwsOptions,
}

fn read(arguments: &[&str]) -> Result<AwsOptions, String> {
    let line = std::iter::once("karpenter").chain(arguments.iter().copied());
    Line::try_parse_from(line).map(|line| line.options).map_err(|error| error.to_string())
}

#[test]
fn flags_and_variables_equal_upstream() {
    let command = Line::command();
    command.clone().debug_assert();
    let found: Vec<(String, String)> = command
        .get_arguments()
        .filter_map(|argument| {
            let variable = argument.get_env()?.to_string_lossy().into_owned();
            Some((argument.get_long()?.to_owned(), variable))
        })
        .collect();
    for (flag, variable) in [
        ("cluster-ca-bundle", "CLUSTER_CA_BUNDLE"),
        ("cluster-name", "CLUSTER_NAME"),
        ("cluster-endpoint", "CLUSTER_ENDPOINT"),
        ("isolated-vpc", "ISOLATED_VPC"),
        ("eks-control-plane", "EKS_CONTROL_PLANE"),
        ("vm-memory-overhead-percent", "VM_MEMORY_OVERHEAD_PERCENT"),
        ("interruption-queue", "INTERRUPTION_QUEUE"),
        ("reserved-enis", "RESERVED_ENIS"),
        ("disable-dry-run", "DISABLE_DRY_RUN"),
        ("enable-zonal-shift", "ENABLE_ZONAL_SHIFT"),
        ("ami-refresh-interval", "AMI_REFRESH_INTERVAL"),
        ("subnet-refresh-interval", "SUBNET_REFRESH_INTERVAL"),
        ("aws-feature-gates", "AWS_FEATURE_GATES"),
    ] {
        assert!(found.contains(&(flag.to_owned(), variable.to_owned())), "{flag} {variable}: {found:?}");
    }
}

#[test]
fn defaults_equal_upstream() {
    assert_eq!(read(&[]), Ok(AwsOptions::default()));
}

#[test]
fn empty_value_is_default() {
    let empty = [
        "--cluster-endpoint=",
        "--vm-memory-overhead-percent=",
        "--reserved-enis=",
        "--isolated-vpc=",
        "--ami-refresh-interval=",
        "--aws-feature-gates=",
        "--interruption-queue=",
    ];
    let options = read(&empty).expect("read");
    assert_eq!(options, AwsOptions::default());
    assert_eq!(options.queue(), None);
}

#[test]
fn values_are_read() {
    let options = read(&[
        "--cluster-name=shop",
        "--isolated-vpc",
        "--eks-control-plane=true",
        "--vm-memory-overhead-percent=0",
        "--reserved-enis=1",
        "--ami-refresh-interval=5m",
        "--subnet-refresh-interval=1m30s",
        "--interruption-queue=shop",
        "--aws-feature-gates=Unheard=true,NodeClassCEL=true",
        "--region=eu-west-1",
    ])
    .expect("read");
    assert_eq!(options.cluster_name, "shop");
    assert!(options.isolated_vpc && options.eks_control_plane && !options.disable_dry_run);
    assert_eq!(options.vm_memory_overhead_percent, 0.0);
    assert_eq!(options.reserved_enis, 1);
    assert_eq!(options.ami_refresh_interval, Duration::from_secs(300));
    assert_eq!(options.subnet_refresh_interval, Duration::from_secs(90));
    assert_eq!(options.queue(), Some("shop"));
    assert!(options.aws_feature_gates.node_class_cel);
    assert_eq!(options.region, "eu-west-1");
    assert_eq!(options.check(), Ok(()));
}

#[test]
fn invalid_value_is_rejected_with_valid_values() {
    for (argument, valid) in [
        ("--vm-memory-overhead-percent=-0.1", "zero or more"),
        ("--vm-memory-overhead-percent=NaN", "zero or more"),
        ("--vm-memory-overhead-percent=some", "zero or more"),
        ("--reserved-enis=-1", "zero or more"),
        ("--reserved-enis=1.5", "zero or more"),
        ("--isolated-vpc=perhaps", "true, false"),
        ("--ami-refresh-interval=soon", "a duration"),
        ("--aws-feature-gates=NodeClassCEL", "Name=true"),
        ("--aws-feature-gates=NodeClassCEL=perhaps", "true, false"),
    ] {
        let error = read(&[argument]).expect_err(argument);
        assert!(error.contains(valid), "{argument}: {error}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let table = [
        (vec![], vec!["--cluster-name is missing"]),
        (vec!["--cluster-name=a", "--cluster-endpoint=shop"], vec!["--cluster-endpoint"]),
        (vec!["--cluster-name=a", "--cluster-endpoint=/x"], vec!["--cluster-endpoint"]),
        (vec!["--cluster-name=a", "--cluster-endpoint=https://"], vec!["--cluster-endpoint"]),
        (vec!["--cluster-name=a", "--cluster-endpoint=https://shop.example:443"], vec![]),
        (
            vec!["--ami-refresh-interval=59s", "--subnet-refresh-interval=1s"],
            vec!["--cluster-name is missing", "--ami-refresh-interval", "--subnet-refresh-interval"],
        ),
    ];
    for (arguments, expected) in table {
        let wrong = read(&arguments).expect("read").check().err().map(|wrong| wrong.0).unwrap_or_default();
        assert_eq!(wrong.len(), expected.len(), "{arguments:?}: {wrong:?}");
        for (line, beginning) in wrong.iter().zip(expected) {
            assert!(line.starts_with(beginning), "{line}");
        }
    }
}
