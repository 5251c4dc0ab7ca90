use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ID: &str = "i-0123456789abcdef0";

fn envelope(source: &str, detail_type: &str, detail: Value) -> Value {
    json!({
        "version": "0", "id": "7bf73129-1428-4cd3-a780-95db273d1602", "account": "123456789012",
        "region": "us-west-2", "time": "2026-01-02T03:04:05Z", "resources": [],
        "source": source, "detail-type": detail_type, "detail": detail,
    })
}

fn time() -> Option<Timestamp> {
    "2026-01-02T03:04:05Z".parse().ok()
}

#[test]
fn every_message_kind_is_parsed() {
    let state = "EC2 Instance State-change Notification";
    let health = |service: &str, category: &str, ids: &[&str]| {
        let entities: Vec<Value> = ids.iter().map(|id| json!({"entityValue": id})).collect();
        let detail = json!({"service": service, "eventTypeCategory": category, "affectedEntities": entities});
        envelope("aws.health", "AWS Health Event", detail)
    };
    let of_state = |value: &str| envelope("aws.ec2", state, json!({"instance-id": ID, "state": value}));
    let about = |detail_type: &str| {
        envelope("aws.ec2", detail_type, json!({"instance-id": ID, "instance-action": "terminate"}))
    };
    let table: Vec<(Value, Kind, &[&str])> = vec![
        (about("EC2 Spot Instance Interruption Warning"), Kind::SpotInterrupted, &[ID]),
        (about("EC2 Instance Rebalance Recommendation"), Kind::RebalanceRecommendation, &[ID]),
        (
            about("EC2 Capacity Reservation Instance Interruption Warning"),
            Kind::CapacityReservationInterrupted,
            &[ID],
        ),
        (of_state("stopping"), Kind::InstanceStopped, &[ID]),
        (of_state("STOPPED"), Kind::InstanceStopped, &[ID]),
        (of_state("shutting-down"), Kind::InstanceTerminated, &[ID]),
        (of_state("terminated"), Kind::InstanceTerminated, &[ID]),
        (of_state("running"), Kind::NoOp, &[]),
        (of_state("pending"), Kind::NoOp, &[]),
        (health("EC2", "scheduledChange", &[ID, "i-1", ID]), Kind::ScheduledChange, &[ID, "i-1"]),
        (health("EC2", "scheduledChange", &["vol-1", "UNKNOWN", ID]), Kind::ScheduledChange, &[ID]),
        (health("EC2", "scheduledChange", &[]), Kind::ScheduledChange, &[]),
        (health("EC2", "issue", &[ID]), Kind::NoOp, &[]),
        (health("RDS", "scheduledChange", &[ID]), Kind::NoOp, &[]),
        // A message with a known detail type is irrelevant if it comes from another source.
        (envelope("aws.health", state, json!({"instance-id": ID, "state": "stopped"})), Kind::NoOp, &[]),
        (envelope("custom", "AWS Health Event", json!({})), Kind::NoOp, &[]),
        (envelope("aws.s3", "Object Created", json!({"deep": [[[1]]]})), Kind::NoOp, &[]),
    ];
    for (body, kind, ids) in table {
        let message = parse(&body.to_string()).unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(message.kind, kind, "{body}");
        assert_eq!(message.instance_ids, ids, "{body}");
        assert_eq!(message.time, time(), "{body}");
    }
}

#[test]
fn message_of_unknown_version_or_type_is_irrelevant() {
    for body in
        ["", "{}", r#"{"version":"1","source":"aws.ec2"}"#, r#"{"Type":"Notification","Message":"x"}"#]
    {
        assert_eq!(parse(body), Ok(Message::irrelevant(None)), "{body}");
    }
    let mut other = envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", json!({"instance-id": ID}));
    other["version"] = json!("1");
    assert_eq!(parse(&other.to_string()), Ok(Message::irrelevant(time())));
}

#[test]
fn parse_error_does_not_quote_the_body() {
    let spot = "EC2 Spot Instance Interruption Warning";
    let with_time = |time: Value| {
        let mut body = envelope("aws.ec2", spot, json!({"instance-id": ID}));
        body["time"] = time;
        body
    };
    let table = [
        "secret".to_owned(),
        "[]".to_owned(),
        "\"text\"".to_owned(),
        "17".to_owned(),
        "null".to_owned(),
        "{\"version\":\"0\"".to_owned(),
        "{\"version\":0}".to_owned(),
        envelope("aws.ec2", spot, json!(null)).to_string(),
        envelope("aws.ec2", spot, json!("secret")).to_string(),
        envelope("aws.ec2", spot, json!({})).to_string(),
        envelope("aws.ec2", spot, json!([ID, "stopped"])).to_string(),
        envelope("aws.health", "AWS Health Event", json!({"affectedEntities": [[ID]]})).to_string(),
        envelope("aws.ec2", spot, json!({"instance-id": 7})).to_string(),
        envelope("aws.ec2", spot, json!({"instance-id": ""})).to_string(),
        envelope("aws.ec2", spot, json!({"instance-id": "secret"})).to_string(),
        envelope("aws.ec2", spot, json!({"instance-id": "i-secret/../x"})).to_string(),
        envelope("aws.ec2", spot, json!({"instance-id": format!("i-{}", "a".repeat(100))})).to_string(),
        with_time(json!("secret")).to_string(),
        with_time(json!(12)).to_string(),
        envelope("aws.health", "AWS Health Event", json!({"affectedEntities": "secret"})).to_string(),
        envelope("aws.health", "AWS Health Event", json!({"affectedEntities": [3]})).to_string(),
    ];
    for body in table {
        let error = parse(&body).expect_err(&body);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn oversized_and_deeply_nested_bodies_are_survived() {
    let huge = format!("{{\"version\":\"{}\"}}", "x".repeat(BODY_BYTES_MAX));
    assert_eq!(parse(&huge), Err(Malformed::TooLarge { bytes: huge.len() }));
    let deep = 200_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = format!("{}1{}", open.repeat(deep), close.repeat(deep));
        // The result does not matter; the test checks that the parser returns.
        let _ = parse(&nested);
        let _ = parse(&format!("{{\"version\":\"0\",\"detail\":{nested}}}"));
        let typed = format!(
            "{{\"version\":\"0\",\"source\":\"aws.ec2\",\
             \"detail-type\":\"EC2 Spot Instance Interruption Warning\",\"detail\":{nested}}}"
        );
        assert!(parse(&typed).is_err());
    }
    let entities: Vec<Value> =
        (0..=INSTANCES_MAX).map(|number| json!({"entityValue": format!("i-{number}")})).collect();
    let detail =
        json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": entities});
    let body = envelope("aws.health", "AWS Health Event", detail).to_string();
    assert_eq!(parse(&body), Err(Malformed::TooManyInstances));
}

#[test]
fn instance_id_format_is_checked() {
    for good in ["i-0", ID, "i-12345678"] {
        assert!(is_instance_id(good), "{good}");
    }
    for bad in ["", "i-", "I-012", "i-0A", "vol-1", "i-0 1", "i-0/1", "xi-1", "i-é"] {
        assert!(!is_instance_id(bad), "{bad}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(Value::from("0")),
        Just(Value::from("aws.ec2")),
        Just(Value::from("aws.health")),
        Just(Value::from("EC2")),
        Just(Value::from("scheduledChange")),
        Just(Value::from("terminated")),
        Just(Value::from(ID)),
        Just(Value::from("2026-01-02T03:04:05Z")),
        Just(Value::from("AWS Health Event")),
        Just(Value::from("EC2 Instance State-change Notification")),
        Just(Value::from("EC2 Spot Instance Interruption Warning")),
    ];
    let key = prop_oneof![
        Just("version"),
        Just("source"),
        Just("detail-type"),
        Just("detail"),
        Just("time"),
        Just("instance-id"),
        Just("state"),
        Just("service"),
        Just("eventTypeCategory"),
        Just("affectedEntities"),
        Just("entityValue"),
        Just("other"),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..8).prop_map(|pairs| {
                Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// Checks that, for any body, the result has only well-formed instance ids and no duplicates.
fn check(body: &str) {
    if let Ok(message) = parse(body) {
        let mut ids = message.instance_ids.clone();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), message.instance_ids.len());
        assert!(ids.iter().all(|id| is_instance_id(id)));
        assert!(message.kind != Kind::NoOp || ids.is_empty());
    }
}

proptest! {
    #[test]
    fn parser_survives_any_text(body in ".{0,400}") {
        check(&body);
    }

    #[test]
    fn parser_survives_any_json(value in json_value()) {
        check(&value.to_string());
    }

    #[test]
    fn parser_survives_damaged_messages(
        which in 0usize..3, at in any::<prop::sample::Index>(), cut in 0usize..40, put in "[\\x00-\\x7f]{0,12}",
    ) {
        let bodies = [
            envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", json!({"instance-id": ID})),
            envelope("aws.ec2", "EC2 Instance State-change Notification", json!({"instance-id": ID, "state": "stopped"})),
            envelope("aws.health", "AWS Health Event", json!({
                "service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": [{"entityValue": ID}],
            })),
        ];
        let whole = bodies[which].to_string();
        let from = at.index(whole.len());
        let until = (from + cut).min(whole.len());
        check(&format!("{}{put}{}", &whole[..from], &whole[until..]));
    }

    #[test]
    fn parser_survives_unexpected_field_values(value in json_value(), field in 0usize..5) {
        let mut body = envelope("aws.ec2", "EC2 Instance State-change Notification", json!({"instance-id": ID, "state": "stopped"}));
        match field {
            0 => body["detail"] = value,
            1 => body["time"] = value,
            2 => body["detail"]["instance-id"] = value,
            3 => body["detail"]["state"] = value,
            _ => body["detail-type"] = value,
        }
        check(&body.to_string());
    }
}
