//! Checkpoints that are uploaded: what arrives, whatever the other side does, and that training never minds.

mod directory;
mod job;
mod s3;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Every file below a directory, by its path from there; what links lead to is there by its own name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let below = self::files(&entry.path());
            files.extend(below.into_iter().map(|(path, bytes)| (format!("{name}/{path}"), bytes)));
        } else if !entry.path().is_symlink() {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

/// Compares, and names what differs; the bytes would fill pages.
#[track_caller]
fn assert_same(there: &BTreeMap<String, Vec<u8>>, here: &BTreeMap<String, Vec<u8>>) {
    let differs = |file: &&String| there.get(*file) != here.get(*file);
    let differ: std::collections::BTreeSet<_> = there.keys().chain(here.keys()).filter(differs).collect();
    let (there, here): (Vec<_>, Vec<_>) = (there.keys().collect(), here.keys().collect());
    assert!(differ.is_empty(), "these differ: {differ:?}\nthere: {there:?}\nhere: {here:?}");
}

/// The checkpoints that have a manifest.
fn whole(files: &BTreeMap<String, Vec<u8>>) -> Vec<&str> {
    files.keys().filter_map(|file| file.strip_suffix("/manifest.json")).collect()
}
