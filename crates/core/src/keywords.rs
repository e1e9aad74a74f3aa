//! Enumerations of a cloud's keywords.

/// Declares enumerations whose variants are keywords of an API, with `parse` and `as_str`.
///
/// ```
/// bowline_core::keywords! {
///     /// Size of a machine.
///     pub enum Size { Small = "S", Large = "L" }
/// }
/// assert_eq!((Size::parse("L"), Size::parse("M"), Size::Small.as_str()), (Some(Size::Large), None, "S"));
/// ```
#[macro_export]
macro_rules! keywords {
    ($($(#[$about:meta])* $visibility:vis enum $name:ident { $($(#[$each:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $name {
            $(
                $(#[$each])*
                #[doc = $text]
                $variant,
            )+
        }

        impl $name {
            /// Returns the value of this keyword; `None` for any other text.
            $visibility fn parse(text: &str) -> Option<$name> {
                match text {
                    $($text => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// Returns the keyword.
            $visibility fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }
        }
    )+};
}
