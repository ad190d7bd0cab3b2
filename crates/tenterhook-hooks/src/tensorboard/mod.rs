//! Writes what is logged into event files for TensorBoard.

mod event;
mod file;
mod image;
mod record;
