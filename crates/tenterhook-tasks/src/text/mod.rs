//! The task `text`: a byte-level language model on any text.

pub mod corpus;
pub mod model;
mod steps;
mod task;

pub use steps::{Prompt, TextBatch};
pub use task::{GenerateOptions, Text, TextTaskOptions};
