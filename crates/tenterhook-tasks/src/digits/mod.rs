//! Handwritten digits, or any small greyscale images from CSV and IDX files.

pub mod data;
pub mod model;
mod steps;
mod task;

pub use steps::{Images, Predicted};
pub use task::{Digits, DigitsOptions};
