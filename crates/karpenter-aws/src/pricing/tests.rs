use jiff::Timestamp;
use serde_json::json;

use super::price_list::{Outcome, currency, endpoint_region, is_listed, outcome, price_of, queries};
use super::*;
use crate::api::AwsError;

#[test]
fn price_list_endpoint_depends_on_region() {
    let table = [
        ("us-east-1", "us-east-1"),
        ("us-west-2", "us-east-1"),
        ("us-gov-west-1", "us-east-1"),
        ("ca-central-1", "us-east-1"),
        ("sa-east-1", "us-east-1"),
        ("me-south-1", "us-east-1"),
        ("ap-northeast-1", "ap-south-1"),
        ("ap-southeast-5", "ap-south-1"),
        ("cn-north-1", "cn-northwest-1"),
        ("eu-west-1", "eu-central-1"),
        ("eusc-de-east-1", "us-east-1"),
        ("", "us-east-1"),
    ];
    for (region, expected) in table {
        assert_eq!(endpoint_region(region), expected, "{region}");
    }
}

#[test]
fn price_list_is_unavailable_in_isolated_vpc_and_govcloud() {
    assert!(is_listed("us-east-1", false));
    assert!(!is_listed("us-east-1", true));
    assert!(!is_listed("us-gov-east-1", false));
    assert_eq!((currency("cn-north-1"), currency("eu-west-1")), ("CNY", "USD"));
}

#[test]
fn two_queries_cover_shared_instances_and_bare_metal() {
    let [shared, metal] = queries("eu-west-1");
    for (query, tenancy, family) in
        [(&shared, "Shared", "Compute Instance"), (&metal, "Dedicated", "Compute Instance (bare metal)")]
    {
        let expected = [
            ("regionCode", "eu-west-1"),
            ("serviceCode", "AmazonEC2"),
            ("preInstalledSw", "NA"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
            ("marketoption", "OnDemand"),
            ("tenancy", tenancy),
            ("productFamily", family),
        ];
        assert_eq!(query.filters.len(), expected.len());
        for (field, value) in expected {
            assert_eq!(query.value(field), Some(value), "{field}");
        }
    }
}

fn product(instance_type: &str, prices: &[(&str, &str)]) -> String {
    let dimensions: serde_json::Map<String, serde_json::Value> = prices
        .iter()
        .enumerate()
        .map(|(number, (currency, price))| {
            (format!("K.{number}"), json!({"unit": "Hrs", "pricePerUnit": {*currency: price}}))
        })
        .collect();
    json!({
        "product": {"productFamily": "Compute Instance", "attributes": {"instanceType": instance_type, "vcpu": "2"}},
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {"K.T": {"priceDimensions": dimensions, "sku": "K"}},
            "Reserved": {"R": {"priceDimensions": {"R.1": {"pricePerUnit": {"USD": "0.01"}}}}},
        },
    })
    .to_string()
}

#[test]
fn lowest_price_in_currency_is_parsed() {
    let usd = |prices: &[(&str, &str)]| price_of(&product("m5.large", prices), "USD").expect("readable");
    let costs = |price| Some(("m5.large".to_owned(), price));
    assert_eq!(usd(&[("USD", "0.0960000000")]), costs(0.096));
    assert_eq!(usd(&[("USD", "1e-1")]), costs(0.1));
    assert_eq!(usd(&[("USD", "0.2"), ("USD", "0.1"), ("USD", "0.0000000000")]), costs(0.1));
    assert_eq!(usd(&[("CNY", "0.5"), ("USD", "0.1")]), costs(0.1));
    for nothing in ["0", "0.0000000000", "-1", "NaN", "inf", "", "free"] {
        assert_eq!(usd(&[("USD", nothing)]), None, "{nothing:?}");
    }
    assert_eq!(usd(&[("CNY", "0.5")]), None);
    assert_eq!(usd(&[]), None);
    let yuan = price_of(&product("m5.large", &[("CNY", "0.5")]), "CNY").expect("readable");
    assert_eq!(yuan, costs(0.5));
}

#[test]
fn product_without_instance_type_has_no_price() {
    assert_eq!(price_of(&product("", &[("USD", "0.1")]), "USD").expect("readable"), None);
    for empty in ["{}", "[]", r#"{"product": {}}"#, r#"{"terms": {"OnDemand": {}}}"#, r#"{"terms": []}"#] {
        assert_eq!(price_of(empty, "USD").expect("readable"), None, "{empty}");
    }
    for broken in
        ["", "5", "null", r#"{"terms": 5}"#, r#"{"product": {"attributes": {"instanceType": 5}}}"#, "{"]
    {
        assert!(price_of(broken, "USD").is_err(), "{broken}");
    }
}

fn throttled() -> AwsError {
    AwsError::new("ThrottlingException", "slow down")
}

#[test]
fn one_response_is_used_if_the_other_fails() {
    let shared = || vec![product("m5.large", &[("USD", "0.1")]), "broken".to_owned()];
    let metal = || vec![product("m5.metal", &[("USD", "4.6")])];
    let prices = |listed: &[(&str, f64)]| -> BTreeMap<String, f64> {
        listed.iter().map(|(name, price)| ((*name).to_owned(), *price)).collect()
    };
    let both = outcome([Ok(shared()), Ok(metal())], "USD");
    let expected = prices(&[("m5.large", 0.1), ("m5.metal", 4.6)]);
    assert_eq!(both, Outcome { prices: expected, problem: None, unreadable: 1 });

    // If one of the two lists is empty or failed, the other is still used.
    let only_shared = outcome([Ok(shared()), Ok(Vec::new())], "USD");
    assert_eq!((only_shared.prices, only_shared.problem), (prices(&[("m5.large", 0.1)]), None));
    let only_metal = outcome([Ok(Vec::new()), Ok(metal())], "USD");
    assert!(!only_metal.prices.is_empty());
    assert_eq!(only_metal.problem.as_deref(), Some("no on-demand pricing found"), "retried soon");
    let failing = outcome([Err(throttled()), Ok(metal())], "USD");
    assert_eq!(failing.prices, prices(&[("m5.metal", 4.6)]));
    assert_eq!(failing.problem.as_deref(), Some("ThrottlingException: slow down"));

    let nothing = outcome([Ok(Vec::new()), Ok(Vec::new())], "USD");
    assert_eq!(nothing.problem.as_deref(), Some("no on-demand pricing found"));
    let all_failing = outcome([Err(throttled()), Err(throttled())], "USD");
    assert!(all_failing.prices.is_empty() && all_failing.problem.is_some());
}

fn spot(instance_type: &str, zone: &str, price_per_hour: f64, at_second: i64) -> SpotPrice {
    SpotPrice {
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        price_per_hour,
        at: Timestamp::from_second(at_second).ok(),
    }
}

#[test]
fn spot_price_defaults_to_on_demand_price() {
    let shipped = Prices::shipped("us-east-1");
    assert_eq!(shipped.on_demand("m5.large"), Some(0.096));
    assert_eq!(shipped.spot("m5.large", "us-east-1a"), Some(0.096));
    assert_eq!(shipped.spot("none.such", "us-east-1a"), None);
    let known = shipped.with_spot(&[spot("m5.large", "us-east-1a", 0.03, 1)]);
    assert_eq!(known.spot("m5.large", "us-east-1a"), Some(0.03));
    assert_eq!(known.spot("m5.large", "us-east-1b"), None, "no price, no offer");
    assert_eq!(known.spot("c5.large", "us-east-1a"), None);
    assert_eq!(known.on_demand("m5.large"), Some(0.096));
}

#[test]
fn built_in_prices_fall_back_to_us_east_1() {
    assert_eq!(Prices::shipped("eu-west-1").on_demand, Prices::shipped("us-east-1").on_demand);
    assert_eq!(Prices::shipped("nowhere-1"), Prices::shipped("us-east-1"));
    let gov = Prices::shipped("us-gov-west-1");
    assert!(gov.on_demand("m5.large") > Prices::shipped("us-east-1").on_demand("m5.large"));
    assert!(Prices::shipped("cn-north-1").on_demand("m5.large").is_some());
    assert!(Prices::shipped("us-east-1").on_demand("g4ad.xlarge").is_some(), "types outside the listing too");
}

#[test]
fn new_prices_are_merged_over_known_prices() {
    let before = Prices::shipped("us-east-1")
        .with_spot(&[spot("m5.large", "a", 0.03, 1), spot("m5.large", "b", 0.04, 1)]);
    let after = before
        .with_on_demand(&BTreeMap::from([("m5.large".to_owned(), 0.2), ("x99.large".to_owned(), 1.0)]))
        .with_spot(&[spot("m5.large", "b", 0.05, 2)]);
    assert_eq!(after.on_demand("m5.large"), Some(0.2));
    assert_eq!(after.on_demand("x99.large"), Some(1.0));
    assert_eq!(after.on_demand("c5.large"), before.on_demand("c5.large"));
    assert_eq!((after.spot("m5.large", "a"), after.spot("m5.large", "b")), (Some(0.03), Some(0.05)));
    assert_eq!(after.on_demand_count(), before.on_demand_count() + 1);
}

#[test]
fn newest_spot_price_wins_and_invalid_prices_are_ignored() {
    let prices = Prices::default();
    let newest = prices.with_spot(&[spot("m5.large", "a", 0.05, 20), spot("m5.large", "a", 0.03, 10)]);
    assert_eq!(newest.spot("m5.large", "a"), Some(0.05));
    let nonsense = [
        SpotPrice { at: None, ..spot("m5.large", "a", 0.05, 0) },
        spot("m5.large", "a", 0.0, 1),
        spot("m5.large", "a", -1.0, 1),
        spot("m5.large", "a", f64::NAN, 1),
        spot("m5.large", "", 0.1, 1),
    ];
    assert_eq!(prices.with_spot(&nonsense), prices, "not even the first answer");
}

#[test]
fn version_grows_only_with_changes() {
    let book = PriceBook::new("us-east-1");
    let shared = book.clone();
    let price = |price: f64| BTreeMap::from([("m5.large".to_owned(), price)]);
    assert!(book.update(|prices| prices.with_on_demand(&price(0.2))));
    assert_eq!(shared.current().version, 1);
    assert!(!book.update(|prices| prices.with_on_demand(&price(0.2))));
    assert_eq!(shared.current().version, 1);
    assert_eq!(shared.current().prices.on_demand("m5.large"), Some(0.2));
}
