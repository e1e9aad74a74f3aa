//! Structure of types for field ownership: what is owned as one field (atomic), and what field by field (granular).

use serde_json::Value;

use super::element::{self, ElementError};
use crate::schema::{Field, ListKind, Struct, Ty, TypeId, schema};

/// Structure of a type for field ownership.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Scalar(Scalar),
    /// Any JSON, owned as a whole.
    Untyped,
    List(ListShape),
    Object(ObjectShape),
}

/// Accepted values of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    String,
    Number,
    Bool,
    /// Quantities, times and ports: string or number.
    Any,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ListShape {
    pub(super) kind: &'static ListKind,
    item: &'static Ty,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectShape {
    /// Owned as a whole.
    pub(super) atomic: bool,
    members: Members,
}

#[derive(Debug, Clone, Copy)]
enum Members {
    Fields(&'static Struct),
    /// The root object, which also has `kind` and `apiVersion`.
    Root(&'static Struct),
    Values(&'static Ty),
}

impl Shape {
    /// Returns the shape of a root object.
    pub(super) fn root(id: TypeId) -> Shape {
        Shape::Object(ObjectShape { atomic: false, members: Members::Root(schema().get(id)) })
    }

    fn of_field(field: &'static Field) -> Shape {
        Shape::new(&field.ty, &field.list, field.atomic_map)
    }

    /// Returns the shape of a list item or map value, which has no field declaration.
    fn of_value(ty: &'static Ty) -> Shape {
        Shape::new(ty, &ListKind::Atomic, false)
    }

    fn new(ty: &'static Ty, kind: &'static ListKind, atomic: bool) -> Shape {
        match ty {
            Ty::String | Ty::Bytes => Shape::Scalar(Scalar::String),
            Ty::Int32 | Ty::Int64 | Ty::Double => Shape::Scalar(Scalar::Number),
            Ty::Bool => Shape::Scalar(Scalar::Bool),
            Ty::Quantity | Ty::IntOrString | Ty::Time | Ty::MicroTime => Shape::Scalar(Scalar::Any),
            Ty::Raw | Ty::Fields => Shape::Untyped,
            Ty::Strings => Shape::List(ListShape { kind: &ListKind::Atomic, item: &Ty::String }),
            Ty::List(item) => Shape::List(ListShape { kind, item }),
            Ty::Map(value) => Shape::Object(ObjectShape { atomic, members: Members::Values(value) }),
            Ty::Struct(id) => {
                let ty = schema().get(*id);
                Shape::Object(ObjectShape { atomic: atomic || ty.atomic, members: Members::Fields(ty) })
            }
        }
    }

    /// Returns the shape of the value at this path element, if there is one.
    pub(super) fn child(&self, element: &str) -> Option<Shape> {
        match (self, element::name_of(element)) {
            (Shape::Object(object), Some(name)) => object.member(name),
            (Shape::List(list), None) if element.starts_with("k:") => Some(list.item_shape()),
            _ => None,
        }
    }

    /// Whether the type is a struct that declares this element.
    pub(super) fn declares(&self, element: &str) -> bool {
        match (self, element::name_of(element)) {
            (Shape::Object(object), Some(name)) => object.declares(name),
            _ => false,
        }
    }
}

impl ListShape {
    /// True if the list is owned as a whole, because its items have no identity.
    pub(super) fn is_atomic(&self) -> bool {
        *self.kind == ListKind::Atomic
    }

    pub(super) fn item_shape(&self) -> Shape {
        Shape::of_value(self.item)
    }

    /// Returns the path element that identifies this item in the list.
    pub(super) fn element(&self, item: &Value) -> Result<String, ElementError> {
        element::of_item(self.kind, self.item, item)
    }
}

impl ObjectShape {
    /// Returns the shape of a field or entry; `None` for an undeclared field.
    pub(super) fn member(&self, name: &str) -> Option<Shape> {
        match self.members {
            Members::Values(ty) => Some(Shape::of_value(ty)),
            Members::Root(_) if is_type_meta(name) => Some(Shape::Scalar(Scalar::String)),
            Members::Fields(ty) | Members::Root(ty) => ty.field(name).map(Shape::of_field),
        }
    }

    /// True if this is a struct with a field of this name.
    pub(super) fn declares(&self, name: &str) -> bool {
        !matches!(self.members, Members::Values(_)) && self.member(name).is_some()
    }
}

fn is_type_meta(name: &str) -> bool {
    matches!(name, "kind" | "apiVersion")
}
