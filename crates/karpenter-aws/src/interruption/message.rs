//! Parses the EventBridge messages of the interruption queue.
//!
//! A message body is untrusted input. The result is a message of a known kind, an irrelevant message ([`Kind::NoOp`]),
//! or an error. [`super::decide`] defines the reaction to each kind.

#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The maximum size of an SQS message.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of instances in one message; a health event has a few hundred at most.
pub const INSTANCES_MAX: usize = 10_000;
/// The maximum length of an instance id; those of EC2 have 19 characters.
const INSTANCE_ID_BYTES_MAX: usize = 40;

const VERSION: &str = "0";
const SOURCE_EC2: &str = "aws.ec2";
const SOURCE_HEALTH: &str = "aws.health";
const HEALTH_SERVICE: &str = "EC2";
const HEALTH_CATEGORY: &str = "scheduledChange";

/// The kind of an interruption message. The names are upstream's values of the metrics label `message_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    RebalanceRecommendation,
    ScheduledChange,
    SpotInterrupted,
    InstanceStopped,
    InstanceTerminated,
    CapacityReservationInterrupted,
    /// This kind and the next two do not come from the queue, but from [`crate::instance_status`].
    InstanceStatus,
    SystemStatus,
    EventStatus,
    /// Irrelevant for Karpenter.
    NoOp,
}

impl Kind {
    pub const ALL: [Self; 10] = [
        Self::RebalanceRecommendation,
        Self::ScheduledChange,
        Self::SpotInterrupted,
        Self::InstanceStopped,
        Self::InstanceTerminated,
        Self::CapacityReservationInterrupted,
        Self::InstanceStatus,
        Self::SystemStatus,
        Self::EventStatus,
        Self::NoOp,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::SpotInterrupted => "spot_interrupted",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::EventStatus => "event_status",
            Self::NoOp => "no_op",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// The instances that the message names, in its order and without duplicates.
    pub instance_ids: Vec<String>,
    /// The time of the event; `None` if the message does not state it.
    pub time: Option<Timestamp>,
}

impl Message {
    pub fn irrelevant(time: Option<Timestamp>) -> Self {
        Self { kind: Kind::NoOp, instance_ids: Vec::new(), time }
    }
}

/// Why a message body is malformed. The error does not quote the body, because it is untrusted and may be long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the body has {bytes} bytes, the maximum is {BODY_BYTES_MAX}")]
    TooLarge { bytes: usize },
    #[error("not an EventBridge message: {problem} at line {line}, column {column}")]
    NotAMessage { problem: &'static str, line: usize, column: usize },
    #[error("detail.{field} is missing or invalid")]
    Detail { field: &'static str },
    #[error("the message has more than {INSTANCES_MAX} instances")]
    TooManyInstances,
}

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        let problem = match error.classify() {
            serde_json::error::Category::Eof => "unexpected end",
            serde_json::error::Category::Data => "a value of the wrong type",
            serde_json::error::Category::Syntax | serde_json::error::Category::Io => "not JSON",
        };
        Self::NotAMessage { problem, line: error.line(), column: error.column() }
    }
}

/// The fields of a message that determine its kind.
#[derive(Debug, Deserialize)]
struct Envelope {
    #[serde(default)]
    version: String,
    #[serde(default)]
    source: String,
    #[serde(default, rename = "detail-type")]
    detail_type: String,
    #[serde(default)]
    time: Option<Timestamp>,
}

/// Deserializes only from a JSON object; by default, serde would accept a list for a struct as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyObjects<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyObjects<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(OnlyObjects(PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(bound = "D: Deserialize<'de>")]
struct Body<D> {
    detail: Object<D>,
}

#[derive(Debug, Deserialize)]
struct AboutInstance {
    #[serde(default, rename = "instance-id")]
    instance_id: Option<String>,
    #[serde(default)]
    state: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AboutHealth {
    #[serde(default)]
    service: Option<String>,
    #[serde(default)]
    event_type_category: Option<String>,
    #[serde(default)]
    affected_entities: Option<Vec<Object<AffectedEntity>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AffectedEntity {
    #[serde(default)]
    entity_value: Option<String>,
}

/// The format of the field `detail`, which depends on source and detail type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Instance(Kind),
    StateChange,
    Health,
}

fn shape(envelope: &Envelope) -> Option<Shape> {
    if envelope.version != VERSION {
        return None;
    }
    Some(match (envelope.source.as_str(), envelope.detail_type.as_str()) {
        (SOURCE_EC2, "EC2 Spot Instance Interruption Warning") => Shape::Instance(Kind::SpotInterrupted),
        (SOURCE_EC2, "EC2 Instance Rebalance Recommendation") => {
            Shape::Instance(Kind::RebalanceRecommendation)
        }
        (SOURCE_EC2, "EC2 Capacity Reservation Instance Interruption Warning") => {
            Shape::Instance(Kind::CapacityReservationInterrupted)
        }
        (SOURCE_EC2, "EC2 Instance State-change Notification") => Shape::StateChange,
        (SOURCE_HEALTH, "AWS Health Event") => Shape::Health,
        _ => return None,
    })
}

/// Parses a message body. An empty body is an irrelevant message.
pub fn parse(body: &str) -> Result<Message, Malformed> {
    if body.is_empty() {
        return Ok(Message::irrelevant(None));
    }
    if body.len() > BODY_BYTES_MAX {
        return Err(Malformed::TooLarge { bytes: body.len() });
    }
    let Object(envelope) = serde_json::from_str::<Object<Envelope>>(body)?;
    match shape(&envelope) {
        None => Ok(Message::irrelevant(envelope.time)),
        Some(Shape::Instance(kind)) => {
            let detail: AboutInstance = detail(body)?;
            about_instance(kind, detail.instance_id, envelope.time)
        }
        Some(Shape::StateChange) => {
            let detail: AboutInstance = detail(body)?;
            match state_kind(detail.state.as_deref()) {
                None => Ok(Message::irrelevant(envelope.time)),
                Some(kind) => about_instance(kind, detail.instance_id, envelope.time),
            }
        }
        Some(Shape::Health) => about_health(detail(body)?, envelope.time),
    }
}

fn detail<D: DeserializeOwned>(body: &str) -> Result<D, Malformed> {
    Ok(serde_json::from_str::<Body<D>>(body)?.detail.0)
}

fn state_kind(state: Option<&str>) -> Option<Kind> {
    match state?.to_ascii_lowercase().as_str() {
        "stopping" | "stopped" => Some(Kind::InstanceStopped),
        "shutting-down" | "terminated" => Some(Kind::InstanceTerminated),
        _ => None,
    }
}

fn about_instance(kind: Kind, id: Option<String>, time: Option<Timestamp>) -> Result<Message, Malformed> {
    let id = id.filter(|id| is_instance_id(id)).ok_or(Malformed::Detail { field: "instance-id" })?;
    Ok(Message { kind, instance_ids: vec![id], time })
}

/// Parses a health event. Entities of the event that are not instances are ignored.
fn about_health(detail: AboutHealth, time: Option<Timestamp>) -> Result<Message, Malformed> {
    let is_ours = detail.service.as_deref() == Some(HEALTH_SERVICE)
        && detail.event_type_category.as_deref() == Some(HEALTH_CATEGORY);
    if !is_ours {
        return Ok(Message::irrelevant(time));
    }
    let entities = detail.affected_entities.unwrap_or_default();
    if entities.len() > INSTANCES_MAX {
        return Err(Malformed::TooManyInstances);
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut instance_ids = Vec::new();
    for id in entities.into_iter().filter_map(|Object(entity)| entity.entity_value) {
        if is_instance_id(&id) && seen.insert(id.clone()) {
            instance_ids.push(id);
        }
    }
    Ok(Message { kind: Kind::ScheduledChange, instance_ids, time })
}

/// Whether a text has the form of an EC2 instance id.
pub fn is_instance_id(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("i-") else { return false };
    !rest.is_empty()
        && text.len() <= INSTANCE_ID_BYTES_MAX
        && rest.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}
