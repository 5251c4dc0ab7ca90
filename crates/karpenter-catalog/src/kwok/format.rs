//! kwok's JSON format of instance types: a list of types with resources and priced offerings.
//!
//! Unknown fields are ignored; for missing fields, the kwok provider's defaults are used. Values that kwok accepts but
//! misinterprets (a negative price, an unknown operator, two types with one name) are errors that name the entry and
//! the field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::quantity::Quantity;
use karpenter_model::requirements::{Operator, Requirement};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_path_to_error::Segment;

use super::{Definition, OfferingDefinition};
use crate::CatalogError;
use crate::intern::Interner;

/// Parses a list of instance types and keeps the order of the file.
pub fn parse(json: &str) -> Result<Vec<InstanceType>, CatalogError> {
    // Tracking the path of the current field is slow, so only invalid input is parsed again with it.
    let entries: Vec<Entry<'_>> = serde_json::from_str(json).map_err(|error| locate(json, &error))?;
    let mut interner = Interner::default();
    let mut types = Vec::with_capacity(entries.len());
    let mut first_index_by_name: FxHashMap<&str, usize> = FxHashMap::default();
    for (index, entry) in entries.iter().enumerate() {
        let invalid = |field: String, message: String| CatalogError::Entry {
            index,
            name: entry.name.0.to_string(),
            field,
            message,
        };
        if entry.name.0.is_empty() {
            return Err(invalid("name".to_owned(), "is missing or empty".to_owned()));
        }
        if let Some(first_index) = first_index_by_name.insert(&entry.name.0, index) {
            return Err(CatalogError::DuplicateName { index, first_index, name: entry.name.0.to_string() });
        }
        let mut offerings = Vec::with_capacity(entry.offerings.len());
        for (position, offering) in entry.offerings.iter().enumerate() {
            let offering = define_offering(offering, &mut interner)
                .map_err(|(field, message)| invalid(format!("offerings[{position}].{field}"), message))?;
            offerings.push(offering);
        }
        for (resource, quantity) in &entry.resources {
            if quantity.is_negative() {
                return Err(invalid(format!("resources.{resource}"), format!("{quantity} is negative")));
            }
        }
        let definition = Definition {
            name: &entry.name.0,
            architecture: &entry.architecture.0,
            operating_systems: entry.operating_systems.iter().map(|system| &*system.0).collect(),
            resources: entry.resources.iter().map(|(name, quantity)| (&**name, *quantity)).collect(),
            offerings,
        };
        types.push(definition.resolve(&mut interner));
    }
    Ok(types)
}

fn define_offering(
    offering: &EntryOffering<'_>,
    interner: &mut Interner,
) -> Result<OfferingDefinition, (String, String)> {
    let price_per_hour = offering.price.unwrap_or(0.0);
    if price_per_hour < 0.0 {
        return Err(("Price".to_owned(), format!("{price_per_hour} is negative")));
    }
    let mut requirements = Vec::with_capacity(offering.requirements.len());
    for (position, given) in offering.requirements.iter().enumerate() {
        let invalid = |field: &str, message: String| (format!("Requirements[{position}].{field}"), message);
        if given.key.0.is_empty() {
            return Err(invalid("key", "is missing or empty".to_owned()));
        }
        let Some(operator) = Operator::parse(&given.operator.0) else {
            let known = "In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte";
            return Err(invalid("operator", format!("{:?} is none of {known}", given.operator.0)));
        };
        if matches!(operator, Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte)
            && !matches!(given.values.as_slice(), [bound] if bound.0.parse::<i64>().is_ok())
        {
            return Err(invalid("values", format!("{} needs one integer", operator.as_str())));
        }
        let key = interner.get(&given.key.0);
        let values: Vec<_> = given.values.iter().map(|value| interner.get(&value.0)).collect();
        requirements.push(Arc::new(Requirement::new(key, operator, values)));
    }
    let reservation_id_label = match &offering.reservation_id_label {
        Some(label) => Some(interner.get(&label.0)),
        None => reservation_id_label(&requirements),
    };
    Ok(OfferingDefinition {
        requirements,
        price_per_hour,
        reservation_capacity: offering.reservation_capacity,
        reservation_id_label,
    })
}

/// The label that identifies the reservation, if the file does not state it: AWS's label, or else the only requirement
/// that is neither zone nor capacity type.
fn reservation_id_label(requirements: &[Arc<Requirement>]) -> Option<Arc<str>> {
    let is_single = |requirement: &&Arc<Requirement>| requirement.single_value().is_some();
    let reserved = Requirement::in_values(labels::CAPACITY_TYPE, [labels::CAPACITY_TYPE_RESERVED]);
    if !requirements.iter().any(|requirement| **requirement == reserved) {
        return None;
    }
    let singles = || requirements.iter().filter(is_single).map(|requirement| &requirement.key);
    let mut own = singles().filter(|key| ![labels::ZONE, labels::CAPACITY_TYPE].contains(&&***key));
    let first = own.next();
    let only = first.filter(|_| own.next().is_none());
    singles().find(|key| &***key == labels::AWS_CAPACITY_RESERVATION_ID).or(only).cloned()
}

/// Parses invalid JSON again, to find the entry and field of the error.
fn locate(json: &str, error: &serde_json::Error) -> CatalogError {
    let message = |error: &serde_json::Error| CatalogError::Format { message: error.to_string() };
    let reader = &mut serde_json::Deserializer::from_str(json);
    let Err(tracked) = serde_path_to_error::deserialize::<_, Vec<Entry<'_>>>(reader) else {
        // The second parse ends after the list. If the error is in text after the list, the original error is returned.
        return message(error);
    };
    let mut segments = tracked.path().iter();
    let Some(Segment::Seq { index }) = segments.next() else { return message(error) };
    let mut field = String::new();
    for segment in segments {
        match segment {
            Segment::Seq { index } => field.push_str(&format!("[{index}]")),
            Segment::Map { key } => {
                if !field.is_empty() {
                    field.push('.');
                }
                field.push_str(key);
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    if field.is_empty() {
        field.push_str("the entry");
    }
    let names: Vec<EntryName<'_>> = serde_json::from_str(json).unwrap_or_default();
    let name = names.get(*index).map(|entry| entry.name.0.to_string()).unwrap_or_default();
    CatalogError::Entry { index: *index, name, field, message: tracked.inner().to_string() }
}

/// A string that borrows from the input unless it contains escape sequences.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

// kwok ignores the case of field names. Here, the two spellings that are in use are accepted.
#[derive(Debug, Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default, alias = "Name")]
    name: Text<'a>,
    #[serde(borrow, default, alias = "Offerings", deserialize_with = "null_as_default")]
    offerings: Vec<EntryOffering<'a>>,
    #[serde(borrow, default, alias = "Architecture")]
    architecture: Text<'a>,
    #[serde(borrow, default, rename = "operatingSystems", alias = "OperatingSystems")]
    #[serde(deserialize_with = "null_as_default")]
    operating_systems: Vec<Text<'a>>,
    #[serde(borrow, default, alias = "Resources", deserialize_with = "null_as_default")]
    resources: BTreeMap<Cow<'a, str>, Quantity>,
}

#[derive(Debug, Deserialize)]
struct EntryOffering<'a> {
    #[serde(default, rename = "Price", alias = "price")]
    price: Option<f64>,
    #[serde(borrow, default, rename = "Requirements", alias = "requirements")]
    #[serde(deserialize_with = "null_as_default")]
    requirements: Vec<EntryRequirement<'a>>,
    #[serde(default, rename = "ReservationCapacity", alias = "reservationCapacity")]
    reservation_capacity: Option<u32>,
    #[serde(borrow, default, rename = "ReservationIDLabel", alias = "reservationIDLabel")]
    reservation_id_label: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
struct EntryRequirement<'a> {
    #[serde(borrow, default)]
    key: Text<'a>,
    #[serde(borrow, default)]
    operator: Text<'a>,
    #[serde(borrow, default, deserialize_with = "null_as_default")]
    values: Vec<Text<'a>>,
}

/// Parses only the name of an entry; error messages about invalid entries state it.
#[derive(Debug, Deserialize)]
struct EntryName<'a> {
    #[serde(borrow, default, alias = "Name")]
    name: Text<'a>,
}

/// Go encodes an empty list or map as null.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
