//! Macros for the options of hooks.

/// Defines the options of a hook: each field with its default, from which `Default`, the configuration and its schema
/// are made.
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

pub(crate) use options;
