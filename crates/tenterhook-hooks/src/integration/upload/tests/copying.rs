//! Copies of one checkpoint, with changes and failures at the source and the destination.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use serde_json::Value;

use super::store::{Watched, broken};
use super::write;
use crate::integration::upload::copy::{CopyError, CopyOutcome, PART, copy};

const SMALL: &[(&str, &[u8])] = &[("state.json", b"{}"), ("weights.safetensors", b"numbers")];

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it is made").block_on(work)
}

fn copied(store: &Watched, from: &Path) -> Result<CopyOutcome, CopyError> {
    run(copy(store, from, &Key::from("run/a")))
}

fn content(store: &Watched) -> BTreeMap<String, Vec<u8>> {
    run(store.content())
}

/// The expected content of the destination, read from the disk.
fn expected(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(directory).expect("it is there").map(|file| file.expect("it is listed"));
    let read = |file: fs::DirEntry| {
        let name = file.file_name().into_string().expect("a name");
        (format!("run/a/{name}"), fs::read(file.path()).expect("it is read"))
    };
    files.map(read).collect()
}

/// Whether the files match the manifest, or there is no manifest.
fn is_complete_or_absent(content: &BTreeMap<String, Vec<u8>>) -> bool {
    let Some(manifest) = content.get("run/a/manifest.json") else { return true };
    let manifest: Value = serde_json::from_slice(manifest).expect("it is JSON");
    manifest["files"].as_object().expect("files").iter().all(|(name, sum)| {
        content
            .get(&format!("run/a/{name}"))
            .is_some_and(|bytes| sum["blake3"] == *blake3::hash(bytes).to_hex())
    })
}

fn undisturbed() -> Watched {
    Watched::new(|_, _| Ok(()))
}

#[test]
fn all_files_arrive_byte_for_byte_and_the_manifest_last() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), SMALL);
    let store = undisturbed();
    assert_eq!(copied(&store, directory.path()).expect("nothing fails"), CopyOutcome::Complete);
    assert_eq!(content(&store), expected(directory.path()));
    let log = ["get run/a/manifest.json", "put run/a/state.json", "put run/a/weights.safetensors"];
    assert_eq!(store.log(), [&log[..], &["put run/a/manifest.json"]].concat());
}

#[test]
fn a_checkpoint_is_not_uploaded_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), SMALL);
    let store = undisturbed();
    copied(&store, directory.path()).expect("nothing fails");
    let again = store.undisturbed();
    assert_eq!(copied(&again, directory.path()).expect("nothing fails"), CopyOutcome::Complete);
    assert_eq!(again.log(), ["get run/a/manifest.json"]);
}

#[test]
fn an_older_checkpoint_of_the_same_name_loses_its_manifest_first() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), SMALL);
    let store = undisturbed();
    copied(&store, directory.path()).expect("nothing fails");
    write(directory.path(), &[("state.json", b"{}"), ("weights.safetensors", b"others")]);
    let again = store.undisturbed();
    copied(&again, directory.path()).expect("nothing fails");
    assert_eq!(content(&again), expected(directory.path()));
    assert_eq!(
        again.log()[..3],
        ["get run/a/manifest.json", "delete run/a/manifest.json", "put run/a/state.json"]
    );
}

#[test]
fn a_large_file_is_sent_in_parts_and_completed_only_if_it_matches() {
    let directory = tempfile::tempdir().expect("a directory");
    let large: Vec<u8> = (0..2 * PART + 5).map(|index| (index % 251) as u8).collect();
    write(directory.path(), &[("state.json", b"{}"), ("weights.safetensors", &large)]);
    let store = undisturbed();
    copied(&store, directory.path()).expect("nothing fails");
    assert_eq!(content(&store), expected(directory.path()));
    let parts: Vec<_> = store.log().into_iter().filter(|what| what.starts_with("part")).collect();
    let part = |bytes: u64| format!("part of {bytes} run/a/weights.safetensors");
    assert_eq!(parts, [part(PART), part(PART), part(5)]);

    // A file of the same length with a flipped bit never becomes visible.
    let mut wrong = large;
    wrong[17] ^= 1;
    fs::write(directory.path().join("weights.safetensors"), wrong).expect("it can be written");
    let store = undisturbed();
    let failure = copied(&store, directory.path()).expect_err("it is damaged");
    assert!(matches!(&failure, CopyError::Damaged(file) if file == "weights.safetensors"), "{failure:?}");
    let log = store.log();
    assert!(log.iter().any(|what| what.starts_with("abort")), "{log:?}");
    assert!(!log.iter().any(|what| what.starts_with("complete")), "{log:?}");
    assert_eq!(content(&store).keys().collect::<Vec<_>>(), ["run/a/state.json"]);
}

/// A checkpoint in two versions that can be exchanged.
struct Replaced {
    directory: tempfile::TempDir,
}

impl Replaced {
    fn new() -> Replaced {
        let replaced = Replaced { directory: tempfile::tempdir().expect("a directory") };
        write(&replaced.path(), &[("a.bin", b"old a"), ("b.bin", b"old b")]);
        write(&replaced.directory.path().join("new"), &[("a.bin", b"new a"), ("b.bin", b"new b")]);
        replaced
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("checkpoint")
    }

    /// Exchanges the two versions.
    fn exchange(directory: &Path) {
        let [here, new, old] = ["checkpoint", "new", "old"].map(|name| directory.join(name));
        fs::rename(&here, &old).expect("it is there");
        fs::rename(&new, &here).expect("it is there");
        fs::rename(&old, &new).expect("it is there");
    }
}

#[test]
fn a_checkpoint_replaced_during_the_copy_is_never_mixed_with_the_new_one() {
    // At every operation; before the first one, only the manifest is read.
    for at in 0..4 {
        let replaced = Replaced::new();
        let directory = replaced.directory.path().to_owned();
        let store = Watched::new(move |number, _| {
            if number == at {
                Replaced::exchange(&directory);
            }
            Ok(())
        });
        assert_eq!(copied(&store, &replaced.path()).expect("nothing fails"), CopyOutcome::Complete);
        assert!(is_complete_or_absent(&content(&store)), "replaced at {at}: {:?}", store.log());
        // The new version has its own upload.
        assert_eq!(
            copied(&store.undisturbed(), &replaced.path()).expect("nothing fails"),
            CopyOutcome::Complete
        );
        assert_eq!(content(&store), expected(&replaced.path()), "replaced at {at}");
    }
}

#[test]
fn a_checkpoint_that_is_replaced_repeatedly_is_gone() {
    let replaced = Replaced::new();
    let directory = replaced.directory.path().to_owned();
    let store = Watched::new(move |_, what| {
        if what.starts_with("put run/a/a.bin") {
            Replaced::exchange(&directory);
        }
        Ok(())
    });
    assert_eq!(copied(&store, &replaced.path()).expect("nothing fails"), CopyOutcome::Gone);
    assert_eq!(content(&store), BTreeMap::new());
}

#[test]
fn a_removed_checkpoint_is_gone_and_leaves_no_files_at_the_destination() {
    for at in 0..3 {
        let directory = tempfile::tempdir().expect("a directory");
        let checkpoint = directory.path().join("a");
        write(&checkpoint, SMALL);
        let path = checkpoint.clone();
        let store = Watched::new(move |number, _| {
            if number == at {
                fs::remove_dir_all(&path).expect("it is there");
            }
            Ok(())
        });
        // At operation 2 the last file is already read, so the copy can be completed.
        let expected = if at == 2 { CopyOutcome::Complete } else { CopyOutcome::Gone };
        assert_eq!(copied(&store, &checkpoint).expect("nothing fails"), expected, "removed at {at}");
        assert_eq!(content(&store).len(), if at == 2 { 3 } else { 0 }, "removed at {at}");
    }
}

#[test]
fn an_incomplete_copy_never_has_a_manifest_whichever_operation_fails() {
    let directory = tempfile::tempdir().expect("a directory");
    let large = vec![7; usize::try_from(PART + 1).expect("it fits")];
    let versions: [&[(&str, &[u8])]; 2] =
        [&[("a.bin", b"old"), ("b.bin", b"old")], &[("a.bin", &large), ("b.bin", b"new")]];
    // All operations from `from` on fail, until `from` exceeds the number of operations.
    for from in 0.. {
        write(directory.path(), versions[0]);
        let before = undisturbed();
        copied(&before, directory.path()).expect("nothing fails");
        write(directory.path(), versions[1]);
        let store =
            before.undisturbed().with(move |number, _| if number >= from { Err(broken()) } else { Ok(()) });
        let done = copied(&store, directory.path());
        let content = content(&store);
        assert!(is_complete_or_absent(&content), "broken from {from}: {:?}", store.log());
        if done.is_ok() {
            assert!(from > 6, "too few operations: {:?}", store.log());
            assert_eq!(content, expected(directory.path()));
            return;
        }
        // The next attempt completes the copy.
        copied(&store.undisturbed(), directory.path()).expect("nothing fails");
        assert_eq!(run(store.content()), expected(directory.path()), "broken from {from}");
    }
}

#[test]
fn without_permission_to_read_the_manifest_is_deleted_first() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), SMALL);
    let store = Watched::new(|_, what| {
        let denied =
            |path: &str| object_store::Error::PermissionDenied { path: path.into(), source: "no".into() };
        if what.starts_with("get") { Err(denied(what)) } else { Ok(()) }
    });
    assert_eq!(copied(&store, directory.path()).expect("nothing fails"), CopyOutcome::Complete);
    assert_eq!(store.log()[1], "delete run/a/manifest.json");
}

#[test]
fn keys_are_the_unescaped_names() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), SMALL);
    let store = undisturbed();
    let to = Key::parse("run/a~b {c}%").expect("a key");
    run(copy(&store, directory.path(), &to)).expect("nothing fails");
    assert!(run(store.get(&Key::parse("run/a~b {c}%/state.json").expect("a key"))).is_ok());
}
