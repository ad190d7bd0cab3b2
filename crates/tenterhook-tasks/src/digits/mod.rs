//! The task `digits`: classifies handwritten digits, or other small greyscale images from CSV and IDX files.

pub mod data;
pub mod model;
mod steps;
mod task;

pub use steps::{ImageBatch, Prediction};
pub use task::{Digits, DigitsOptions};
