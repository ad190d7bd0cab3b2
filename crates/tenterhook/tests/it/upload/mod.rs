//! Uploads of checkpoints: the files arrive, and failures of the storage do not affect training.

mod directory;
mod job;
mod s3;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Every file below a directory, by its relative path. Links are skipped, because their targets are listed.
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

/// Compares files, and reports only the names of those that differ, because their content is large.
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
