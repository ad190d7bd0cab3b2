//! Macros for the options of hooks.

/// Defines the options of a hook. The default of each field is used for `Default`, the configuration and the schema.
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
