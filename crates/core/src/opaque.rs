//! Type-erased values of providers.
//!
//! A provider's own types are erased once, at the boundary of the provider traits, and downcast by the same provider. Code in
//! between can clone, compare and print the values.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A type-erased value that only the provider that created it can read. Cheap to clone. The default holds no value.
#[derive(Clone, Default)]
pub struct Opaque(Option<Arc<dyn Value>>);

/// Operations that an erased value still supports.
trait Value: Any + fmt::Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn equals(&self, other: &dyn Value) -> bool;
}

impl<T: Any + fmt::Debug + PartialEq + Send + Sync> Value for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Value) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }
}

impl Opaque {
    /// Erases the type of a value.
    pub fn new<T: Any + fmt::Debug + PartialEq + Send + Sync>(value: T) -> Opaque {
        Opaque(Some(Arc::new(value)))
    }

    /// Returns the value if it is of type `T`.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.as_any().downcast_ref()
    }
}

/// Two values are equal if they have the same type and compare as equal.
impl PartialEq for Opaque {
    fn eq(&self, other: &Opaque) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.equals(&**other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => (**value).fmt(f),
            None => f.write_str("None"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_only_returned_as_its_own_type() {
        let value = Opaque::new(7_u32);
        assert_eq!((value.get::<u32>(), value.get::<u64>()), (Some(&7), None));
        assert_eq!(Opaque::default().get::<u32>(), None);
        assert_eq!(format!("{value:?} {:?}", Opaque::default()), "7 None");
    }

    #[test]
    fn values_are_equal_if_they_have_the_same_type_and_compare_as_equal() {
        assert_eq!(Opaque::new("a".to_owned()), Opaque::new("a".to_owned()));
        assert_ne!(Opaque::new(7_u32), Opaque::new(8_u32));
        assert_ne!(Opaque::new(7_u32), Opaque::new(7_u64));
        assert_ne!(Opaque::new(7_u32), Opaque::default());
        assert_eq!(Opaque::default(), Opaque::default());
        // NaN does not equal itself; a clone of the same Opaque is equal nevertheless.
        let value = Opaque::new(f64::NAN);
        assert_eq!(value, value.clone());
    }
}
