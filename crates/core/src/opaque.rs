//! Values that pass through code which cannot read them.
//!
//! A provider's own types are erased once, at the boundary of the contract, and read back by the same provider. Everything in
//! between can clone, compare and print them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A value of a type that only its maker knows. Cheap to clone; the default is no value at all.
#[derive(Clone, Default)]
pub struct Opaque(Option<Arc<dyn Value>>);

/// What an erased value can still do.
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
    /// Erases the type of this value.
    pub fn new<T: Any + fmt::Debug + PartialEq + Send + Sync>(value: T) -> Opaque {
        Opaque(Some(Arc::new(value)))
    }

    /// The value, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.as_any().downcast_ref()
    }
}

/// Equal if both are of the same type and that type says so.
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
    fn a_value_is_read_as_the_type_that_it_was_made_of_and_no_other() {
        let value = Opaque::new(7_u32);
        assert_eq!((value.get::<u32>(), value.get::<u64>()), (Some(&7), None));
        assert_eq!(Opaque::default().get::<u32>(), None);
        assert_eq!(format!("{value:?} {:?}", Opaque::default()), "7 None");
    }

    #[test]
    fn values_are_equal_if_their_types_are_and_say_so() {
        assert_eq!(Opaque::new("a".to_owned()), Opaque::new("a".to_owned()));
        assert_ne!(Opaque::new(7_u32), Opaque::new(8_u32));
        assert_ne!(Opaque::new(7_u32), Opaque::new(7_u64));
        assert_ne!(Opaque::new(7_u32), Opaque::default());
        assert_eq!(Opaque::default(), Opaque::default());
        // One that equals nothing, itself included, is still the same value.
        let value = Opaque::new(f64::NAN);
        assert_eq!(value, value.clone());
    }
}
