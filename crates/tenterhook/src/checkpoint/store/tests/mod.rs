//! The store under damage, faults and crashes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod basics;
mod damage;
mod faults;
mod faulty;
mod foreign;
mod jobs;
mod listing;
mod model;
mod power;
mod power_cuts;
mod small_disks;

use std::path::Path;

use serde_json::json;
use tenterhook_core::BoxError;

use super::*;
use crate::tensors::TensorMap;

/// The `state.json` of the test checkpoint with this number.
fn state(number: u64) -> Vec<u8> {
    let progress = json!({ "epoch": number / 2, "step": 10 * number });
    let metrics = json!({ "latest": { "val/loss": 1.0 / number.max(1) as f64 } });
    let state = json!({ "format": FORMAT, "number": number, "progress": progress, "metrics": metrics });
    serde_json::to_vec_pretty(&state).unwrap()
}

/// Writes the test checkpoint with this number.
fn save(disk: &dyn Disk, path: &Path, number: u64) -> Result<(), BoxError> {
    let mut weights = TensorMap::default();
    weights.insert_f32("weight", [100], &[number as f32; 100]);
    let optimizer = TensorMap::default();
    let state = state(number);
    let files = [
        (WEIGHTS, FileContent::tensors(&path.join(WEIGHTS), &weights)?),
        (OPTIMIZERS, FileContent::tensors(&path.join(OPTIMIZERS), &optimizer)?),
        (STATE, FileContent::Bytes(&state)),
    ];
    write(disk, path, &files)
}

/// The number of the checkpoint at this path, which must be whole.
fn number_of(path: &Path) -> u64 {
    let files = open(path).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&files.bytes(STATE).unwrap()).unwrap();
    let number = state["number"].as_u64().unwrap();
    assert_eq!(files.tensors(WEIGHTS).unwrap().f32("weight", &[100]).unwrap(), [number as f32; 100]);
    number
}

/// All names in a directory, including hidden ones, sorted.
fn names(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
