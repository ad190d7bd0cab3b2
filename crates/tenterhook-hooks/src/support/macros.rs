//! Macros for the options of hooks.

/// Defines the options of a hook. The default of each field is used for `Default`, the configuration and the schema. If a
/// field has no default, it must be set, and `with_defaults` takes its value instead of `Default`.
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $( $(#[$field_attribute:meta])* pub $field:ident: $type:ty = $default:expr, )*
        }
    ) => {
        #[derive(Clone, Debug, PartialEq, ::schemars::JsonSchema, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(deny_unknown_fields, default)]
        $(#[$attribute])*
        pub struct $name {
            $( $(#[$field_attribute])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $( $field: $default, )* }
            }
        }
    };
    // Some fields must be set. The arms below take one field after the other.
    ($(#[$attribute:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $crate::support::options! {
            @ $name [$(#[$attribute])*] [] [] [] []
            // The functions of the defaults: serde needs their names as text, which a macro cannot make.
            [(d1 "d1") (d2 "d2") (d3 "d3") (d4 "d4") (d5 "d5") (d6 "d6") (d7 "d7") (d8 "d8") (d9 "d9")]
            $($fields)*
        }
    };
    (
        @ $name:ident $head:tt [$($fields:tt)*] [$($required:tt)*] [$($values:tt)*] $functions:tt $names:tt
        $(#[$attribute:meta])* pub $field:ident: $type:ty, $($rest:tt)*
    ) => {
        $crate::support::options! {
            @ $name $head [$($fields)* $(#[$attribute])* pub $field: $type,] [$($required)* $field: $type,]
            [$($values)* $field,] $functions $names $($rest)*
        }
    };
    (
        @ $name:ident $head:tt [$($fields:tt)*] $required:tt [$($values:tt)*] $functions:tt $names:tt
        $(#[$attribute:meta])* pub $field:ident: $type:ty = None, $($rest:tt)*
    ) => {
        $crate::support::options! {
            @ $name $head [$($fields)* $(#[$attribute])* pub $field: $type,] $required
            [$($values)* $field: None,] $functions $names $($rest)*
        }
    };
    (
        @ $name:ident $head:tt [$($fields:tt)*] $required:tt [$($values:tt)*] [$($functions:tt)*]
        [($function:ident $path:tt) $($names:tt)*]
        $(#[$attribute:meta])* pub $field:ident: $type:ty = $default:expr, $($rest:tt)*
    ) => {
        $crate::support::options! {
            @ $name $head [$($fields)* $(#[$attribute])* #[serde(default = $path)] pub $field: $type,] $required
            [$($values)* $field: $function(),] [$($functions)* fn $function() -> $type { $default }]
            [$($names)*] $($rest)*
        }
    };
    (
        @ $name:ident [$($head:tt)*] [$($fields:tt)*] [$($required:tt)*] [$($values:tt)*] [$($functions:tt)*]
        $names:tt
    ) => {
        #[derive(Clone, Debug, PartialEq, ::schemars::JsonSchema, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(deny_unknown_fields)]
        $($head)*
        pub struct $name { $($fields)* }

        impl $name {
            /// The options with these values and the defaults of the others.
            fn with_defaults($($required)*) -> $name {
                $name { $($values)* }
            }
        }

        $($functions)*
    };
}

/// Implements [`FromOptions`](tenterhook_core::FromOptions) for a hook that has `new(options)`.
macro_rules! from_options {
    ($hook:ident from $options:ident, purpose: $purpose:expr, example: $example:expr) => {
        impl ::tenterhook_core::FromOptions for $hook {
            type Options = $options;
            const PURPOSE: &str = $purpose;
            const EXAMPLE: &str = $example;

            fn from_options(options: $options) -> Result<$hook, ::tenterhook_core::OptionError> {
                $hook::new(options)
            }
        }
    };
}

pub(crate) use {from_options, options};
