//! The shapes of built-in kinds. They are derived from the types as kube-apiserver derives its merge schema from
//! OpenAPI.
//!
//! Of a recursive type (the JSON schema in a CustomResourceDefinition), only the first level is described. Below it,
//! lists are atomic and objects are merged field by field.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::{FieldInfo, FieldType, ListType, TypeForm, TypeId, types};
use crate::shape::{FieldShape, KeyedShape, ScalarType, Shape, StructShape};

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let mut builder = Builder::default();
    let count = u16::try_from(types().len()).unwrap_or(u16::MAX);
    (0..count).map(|index| builder.named(TypeId(index))).collect()
});

pub(super) fn shape_of(id: TypeId) -> &'static Shape {
    &SHAPES[usize::from(id.0)]
}

#[derive(Default)]
struct Builder {
    finished: HashMap<TypeId, Shape>,
    /// The types whose shape is being derived, to detect recursion.
    open: Vec<TypeId>,
}

impl Builder {
    fn named(&mut self, id: TypeId) -> Shape {
        if let Some(shape) = self.finished.get(&id) {
            return shape.clone();
        }
        let info = id.info();
        let shape = match info.form {
            TypeForm::Struct if self.open.contains(&id) => return Shape::Deduced,
            TypeForm::Struct if info.fields.is_empty() => Shape::Deduced,
            TypeForm::Struct if info.atomic => Shape::Atomic,
            TypeForm::Struct => self.fields_of(id),
            TypeForm::Time
            | TypeForm::MicroTime
            | TypeForm::Duration
            | TypeForm::Quantity
            | TypeForm::IntOrString
            | TypeForm::Raw => Shape::Atomic,
            _ => Shape::Deduced,
        };
        self.finished.insert(id, shape.clone());
        shape
    }

    fn fields_of(&mut self, id: TypeId) -> Shape {
        self.open.push(id);
        let fields = id.info().fields.iter().map(|field| self.field(field)).collect();
        self.open.pop();
        Shape::Struct(Arc::new(StructShape { fields, ..StructShape::default() }))
    }

    fn field(&mut self, field: &FieldInfo) -> FieldShape {
        let strategy = field.patch_strategy.unwrap_or("");
        let merges = strategy.split(',').any(|part| part == "merge");
        FieldShape {
            name: field.name.to_string(),
            shape: self.shape(&field.field_type, field),
            scalar: scalar(&field.field_type),
            patch_merge_key: merges.then(|| field.patch_merge_key.unwrap_or("").to_string()),
            patch_retains_keys: strategy.split(',').any(|part| part == "retainKeys"),
            patch_replaces: strategy == "replace",
        }
    }

    fn shape(&mut self, field_type: &FieldType, field: &FieldInfo) -> Shape {
        match field_type {
            FieldType::Named(id) => match field.map_atomic {
                Some(true) => Shape::Atomic,
                // The field is marked as granular although its type is atomic.
                Some(false) if id.info().form == TypeForm::Struct => self.fields_of(*id),
                _ => self.named(*id),
            },
            FieldType::Map(_) if field.map_atomic == Some(true) => Shape::Atomic,
            FieldType::Map(element) => Shape::Map(Arc::new(self.element(element))),
            FieldType::List(element) => match &field.list_type {
                Some(ListType::Set) => Shape::Set,
                Some(ListType::Map(keys)) => self.keyed(keys, element),
                _ => Shape::Atomic,
            },
            _ => Shape::Atomic,
        }
    }

    /// The shape of the items of a list or map. Markers of the field, such as its list type, do not apply to the items.
    fn element(&mut self, field_type: &FieldType) -> Shape {
        match field_type {
            FieldType::Named(id) => self.named(*id),
            FieldType::Map(element) => Shape::Map(Arc::new(self.element(element))),
            _ => Shape::Atomic,
        }
    }

    fn keyed(&mut self, keys: &[&str], element: &FieldType) -> Shape {
        let key_defaults = match element {
            FieldType::Named(id) => keys
                .iter()
                .filter_map(|key| Some((key.to_string(), id.info().field(key)?.default.clone()?)))
                .collect(),
            _ => Vec::new(),
        };
        let keys = keys.iter().map(ToString::to_string).collect();
        Shape::Keyed(Arc::new(KeyedShape { keys, key_defaults, element: self.element(element) }))
    }
}

fn scalar(field_type: &FieldType) -> Option<ScalarType> {
    match field_type {
        FieldType::String | FieldType::Bytes => Some(ScalarType::String),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => Some(ScalarType::Number),
        FieldType::Boolean => Some(ScalarType::Boolean),
        FieldType::List(_) | FieldType::Map(_) | FieldType::Named(_) => None,
    }
}
