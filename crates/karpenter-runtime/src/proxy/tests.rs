use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

/// The recorded results of Go's httpproxy; see tools/proxy.
#[derive(Deserialize)]
struct Table {
    requests: Vec<String>,
    answers: Vec<Answer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    http: String,
    https: String,
    no_proxy: String,
    /// The selected proxy, by scheme of the request.
    chosen: BTreeMap<String, String>,
    /// The indexes of the requests for which the proxy is used.
    proxied: Vec<usize>,
}

fn rules(variables: &[(&str, &str)]) -> ProxyRules {
    ProxyRules::from_variables(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn proxies_are_those_of_go() {
    let Table { requests, answers } =
        serde_json::from_str(include_str!("../../testdata/proxy.json")).expect("answers");
    let (mut compared, mut through) = (0, 0);
    for Answer { http, https, no_proxy, chosen, proxied } in &answers {
        let rules = rules(&[("HTTP_PROXY", http), ("HTTPS_PROXY", https), ("NO_PROXY", no_proxy)]);
        for (place, request) in requests.iter().enumerate() {
            let uri: Uri = request.parse().expect("a URL");
            let expected =
                proxied.contains(&place).then(|| chosen[uri.scheme_str().unwrap_or_default()].clone());
            let found = rules.proxy_for(&uri).map(|proxy| proxy.to_string().trim_end_matches('/').to_owned());
            assert_eq!(found, expected, "{request}: {http:?} {https:?} {no_proxy:?}");
            compared += 1;
            through += usize::from(found.is_some());
        }
    }
    assert!(compared > 4_000 && through > 1_000, "{compared} {through}");
}

#[test]
fn lower_case_has_priority_and_an_empty_value_is_none() {
    let target: Uri = "https://ec2.us-west-2.amazonaws.com".parse().expect("a URL");
    let host = |variables: &[(&str, &str)]| {
        rules(variables).proxy_for(&target).and_then(|proxy| proxy.host().map(str::to_owned))
    };
    assert_eq!(host(&[("HTTPS_PROXY", "upper"), ("https_proxy", "lower")]).as_deref(), Some("lower"));
    assert_eq!(host(&[("HTTPS_PROXY", "upper"), ("https_proxy", "")]).as_deref(), Some("upper"));
    assert_eq!(host(&[("HTTPS_PROXY", "upper"), ("no_proxy", "*")]), None);
    // Only curl uses the variable `ALL_PROXY`; Go does not.
    assert_eq!(host(&[("ALL_PROXY", "all")]), None);
}

#[test]
fn value_that_is_no_address_is_ignored_by_name() {
    let rules = rules(&[("HTTPS_PROXY", "http://user:secret@ho st"), ("HTTP_PROXY", "http://proxy")]);
    assert_eq!(rules.ignored_variables(), ["HTTPS_PROXY"]);
    assert_eq!(rules.proxies().count(), 1);
}

#[test]
fn debug_output_holds_no_password() {
    let text = format!("{:?}", rules(&[("HTTPS_PROXY", "http://user:secret@proxy:3128")]));
    assert!(text.contains("proxy") && !text.contains("secret") && !text.contains("user"), "{text}");
}
