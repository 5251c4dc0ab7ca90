//! Compares the user data of every AMI family with recordings of upstream.
//!
//! `cases.json` has the inputs, each as its difference from `defaults`. `<name>.txt` is the decoded user data that
//! upstream returned for the input (karpenter-provider-aws, main at 1d927085d, package bootstrap; upstream joins some
//! lists in random order, so it is the smallest result of many runs). A case with `fails` has no such file, because
//! upstream returns an error. Shell and PowerShell are compared byte by byte; YAML and TOML are compared by value,
//! because writers differ in quoting and order.

mod cases;
mod hostile;

use karpenter_userdata::{AmiFamily, UserDataError, Warning, render};

use cases::{Case, all};

#[test]
fn rendered_user_data_equals_recordings() {
    let cases = all();
    assert!(cases.len() >= 80, "{} cases were read", cases.len());
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|case| !case.fails) {
        match render(&case.input()) {
            Err(error) => wrong.push(format!("{}: {error}", case.name)),
            Ok(answer) => {
                if let Some(difference) = difference(case, &answer.text, &case.expected()) {
                    wrong.push(format!("{}: {difference}", case.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn difference(case: &Case, actual: &str, expected: &str) -> Option<String> {
    match case.family() {
        AmiFamily::Al2023 => {
            let (actual_head, actual_config) = node_config(actual);
            let (expected_head, expected_config) = node_config(expected);
            texts(actual_head, expected_head).or_else(|| values(&actual_config, &expected_config))
        }
        AmiFamily::Bottlerocket => {
            let parse = |text: &str| text.parse::<toml::Table>().expect("TOML");
            values(&parse(actual), &parse(expected))
        }
        _ => texts(actual, expected),
    }
}

fn texts(actual: &str, expected: &str) -> Option<String> {
    (actual != expected).then(|| format!("got\n{actual}\nexpected\n{expected}"))
}

fn values<T: PartialEq + std::fmt::Debug>(actual: &T, expected: &T) -> Option<String> {
    (actual != expected).then(|| format!("got\n{actual:#?}\nexpected\n{expected:#?}"))
}

/// Splits user data into the text before the generated YAML document, and the document.
fn node_config(text: &str) -> (&str, serde_json::Value) {
    let start = text.rfind("# Karpenter Generated NodeConfig\n").expect("a generated part");
    let (head, rest) = text.split_at(start);
    let yaml = rest.strip_suffix("\n--//--\n").expect("an end");
    (head, serde_saphyr::from_str(yaml).expect("YAML"))
}

#[test]
fn inputs_that_upstream_rejects_are_errors() {
    let mut shown = Vec::new();
    for case in all().iter().filter(|case| case.fails) {
        let error = render(&case.input()).expect_err(&case.name);
        shown.push(format!("{}: {error}", case.name));
    }
    assert_eq!(
        shown,
        [
            "al2_mime_cut_off: parsing custom user data: the part that starts at line 11 has no closing boundary",
            "al2_mime_bad_header: parsing custom user data: line 2 is not a header: missing colon",
            "al2_mime_not_multipart: parsing custom user data: the content type is text/plain, not multipart",
            "al2023_bad_ca: decoding the cluster's CA bundle: Invalid symbol 32, offset 3.",
            "al2023_no_cidr: resolving cluster CIDR",
            "al2023_mime_cut_off: parsing custom user data: the part that starts at line 11 has no closing boundary",
            "al2023_mime_not_multipart: parsing custom user data: the content type is text/plain, not multipart",
            "bottlerocket_bad_toml: invalid user data: line 2: extra `=`, expected nothing",
            "bottlerocket_not_toml: invalid user data: line 2: key with no value, expected `=`",
            "bottlerocket_wrong_type: invalid user data: settings.kubernetes.registry-qps must be an integer, not text",
            "bottlerocket_integer_for_text: invalid user data: settings.kubernetes.image-gc-high-threshold-percent must be text, not an integer",
            "bottlerocket_float_for_integer: invalid user data: settings.kubernetes.registry-qps must be an integer, not a float",
            "bottlerocket_negative_log_level: invalid user data: settings.kubernetes.log-level must be a non-negative integer, not an integer",
            "bottlerocket_settings_is_no_table: invalid user data: settings must be a table, not an integer",
            "bottlerocket_wrong_type_in_a_map: invalid user data: settings.kubernetes.node-labels.a must be text, not an integer",
        ]
    );
}

#[test]
fn ignored_settings_give_warnings() {
    let mut warnings = Vec::new();
    for case in all().iter().filter(|case| !case.fails) {
        let answer = render(&case.input()).expect(&case.name);
        for warning in answer.warnings {
            let what = match warning {
                Warning::UnknownSetting { path } => path,
                Warning::EmptyArchive => "empty archive".to_owned(),
            };
            warnings.push(format!("{}: {what}", case.name));
        }
    }
    assert_eq!(
        warnings,
        [
            "al2_mime_without_boundary_lines: empty archive",
            "bottlerocket_merged: settings.kubernetes.standalone-mode",
            "bottlerocket_merged: settings.kubernetes.static-pods.logger.color",
            "bottlerocket_merged_every_kubelet_setting: settings.kubernetes.standalone-mode",
            "bottlerocket_merged_every_kubelet_setting: settings.kubernetes.static-pods.logger.color",
            "bottlerocket_user_commands_and_raid0: settings.bootstrap-commands.001-mine.extra",
            "bottlerocket_other_top_level: other",
            "bottlerocket_other_top_level: version",
        ]
    );
}

#[test]
fn parse_error_does_not_quote_user_data() {
    let mut input = cases::plain(AmiFamily::Bottlerocket);
    input.custom_user_data = Some("[settings]\npassword = hunter2\n".to_owned());
    let error = render(&input).expect_err("no TOML");
    assert!(matches!(error, UserDataError::Toml { line: 2, .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

/// An expression without a value must not reach the kubelet as text, and an empty map must stay an empty map.
#[test]
fn resolved_settings_replace_expressions() {
    let mut input = cases::plain(AmiFamily::Al2023);
    let written = serde_json::json!({ "maxPods": "vcpus * 2", "kubeReserved": { "cpu": "vcpus" }, "systemReserved": {} });
    input.kubelet.raw = written.as_object().expect("an object").clone();
    input.kubelet.max_pods = Some(8);
    let text = render(&input).expect("user data").text;
    let (_, document) = node_config(&text);
    let config = &document["spec"]["kubelet"]["config"];
    assert_eq!(config, &serde_json::json!({ "maxPods": 8, "registerWithTaints": [], "systemReserved": {} }));
}

#[test]
fn equal_inputs_give_equal_bytes_and_base64() {
    use base64::Engine as _;
    for case in all().iter().filter(|case| !case.fails) {
        let first = render(&case.input()).expect(&case.name);
        assert_eq!(first, render(&case.input()).expect(&case.name));
        let decoded = base64::engine::general_purpose::STANDARD.decode(first.base64()).expect("base64");
        assert_eq!(decoded, first.text.as_bytes(), "{}", case.name);
        assert_eq!(first.size().bytes, first.text.len());
    }
}

/// User data that this crate rendered for an instance must be valid as custom user data of a node class.
#[test]
fn rendered_user_data_is_valid_custom_user_data() {
    for case in
        all().iter().filter(|case| !case.fails && matches!(case.family(), AmiFamily::Al2 | AmiFamily::Al2023))
    {
        let mut input = case.input();
        let first = render(&input).expect(&case.name);
        input.custom_user_data = Some(first.text.clone());
        let second = render(&input).expect(&case.name);
        let head = first.text.strip_suffix("\n--//--\n").expect("an end");
        assert!(second.text.starts_with(head), "{}: {}", case.name, second.text);
    }
}
