//! What several hooks share.

pub(crate) mod byte_size;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod macros;
pub(crate) mod number_format;
pub(crate) mod output_path;
#[cfg(test)]
pub(crate) mod python;
#[cfg(feature = "http")]
pub(crate) mod secret;
pub(crate) mod sink;
pub(crate) mod text;
