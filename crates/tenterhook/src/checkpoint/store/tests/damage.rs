//! Checkpoints with truncated, changed or missing files.

use std::fs;

use super::faulty::Faulty;
use super::*;

/// Two checkpoints; tests damage the newer one.
fn two() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    save(&Faulty::never(), &root.path().join("older"), 1).unwrap();
    let newer = root.path().join("newer");
    save(&Faulty::never(), &newer, 2).unwrap();
    set_link(&Faulty::never(), &root.path().join("latest"), &newer).unwrap();
    (root, newer)
}

/// The newer checkpoint must be reported as damaged in this file, and the older one must be selected.
fn check(root: &Path, newer: &Path, file: &str, what: &str) {
    let error = verify(newer).expect_err(what).to_string();
    assert!(error.contains(&format!("newer/{file} is damaged: ")), "{file} {what}: {error}");
    let newest = newest_whole(root, OnUnreadable::Stop).unwrap();
    assert_eq!(newest.path.as_deref(), Some(&*root.join("older")), "{file} {what}");
    assert_eq!(newest.skipped, [(newer.to_owned(), error.clone())], "{file} {what}");
    let listed = list(root).unwrap().into_iter().find(|listed| listed.name == "newer").expect("it is listed");
    assert_eq!(listed.integrity, Integrity::Damaged(error), "{file} {what}");
}

#[test]
fn every_truncated_changed_or_missing_file_is_found_and_the_older_checkpoint_is_used() {
    let (root, newer) = two();
    assert_eq!(
        newest_whole(root.path(), OnUnreadable::Stop).unwrap(),
        NewestCheckpoint { path: Some(newer.clone()), ..NewestCheckpoint::default() }
    );
    for file in [WEIGHTS, OPTIMIZERS, STATE, MANIFEST] {
        let path = newer.join(file);
        let whole = fs::read(&path).unwrap();
        for length in [0, 1, 7, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            check(root.path(), &newer, file, &format!("cut to {length}"));
        }
        fs::write(&path, [&whole[..], b"\n"].concat()).unwrap();
        check(root.path(), &newer, file, "longer");
        fs::remove_file(&path).unwrap();
        check(root.path(), &newer, file, "gone");
        fs::write(&path, &whole).unwrap();
        verify(&newer).expect("as it was");
    }
}

#[test]
fn no_flipped_bit_of_any_byte_goes_unnoticed() {
    let (root, newer) = two();
    for file in [WEIGHTS, OPTIMIZERS, STATE, MANIFEST] {
        let path = newer.join(file);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).unwrap();
            // Every change is detected; the consequences are checked only for some, to save time.
            if at % 41 == 0 {
                check(root.path(), &newer, file, &format!("flipped at {at}"));
            }
            verify(&newer).expect_err("it is not what was written");
        }
        fs::write(&path, &whole).unwrap();
    }
    verify(&newer).expect("as it was");
}

#[test]
fn messages_say_what_is_wrong_and_what_to_do() {
    let (root, newer) = two();
    let said =
        |path: &Path| verify(path).unwrap_err().to_string().replace(&root.path().display().to_string(), "R");
    let bytes = fs::read(newer.join(WEIGHTS)).unwrap().len();
    fs::write(newer.join(WEIGHTS), "").unwrap();
    let length = format!("it has 0 bytes instead of {bytes}");
    assert_eq!(
        said(&newer),
        format!("checkpoint R/newer/weights.safetensors is damaged: {length}; use another one")
    );
    fs::remove_file(newer.join(MANIFEST)).unwrap();
    assert_eq!(said(&newer), "checkpoint R/newer/manifest.json is damaged: it is missing; use another one");
    assert_eq!(said(&root.path().join("none")), "there is no checkpoint R/none");
    assert_eq!(said(root.path()), "R is not a checkpoint: it is not a directory with a state.json");
    assert_eq!(
        said(&newer.join(STATE)),
        "R/newer/state.json is not a checkpoint: it is not a directory with a state.json"
    );
}

#[test]
fn another_format_is_refused_and_says_so() {
    for (format, version) in [(1, "the older"), (FORMAT - 1, "the older"), (FORMAT + 1, "a newer")] {
        let (root, newer) = two();
        let refusal = format!(
            "checkpoint {} has format {format}, and this program reads format {FORMAT}; use {version} version",
            newer.display()
        );
        let refused = || {
            assert_eq!(verify(&newer).unwrap_err().to_string(), refusal);
            let newest = newest_whole(root.path(), OnUnreadable::Stop).unwrap();
            assert_eq!(newest.path, Some(root.path().join("older")));
            assert_eq!(newest.skipped, [(newer.clone(), refusal.clone())]);
            let integrity = Integrity::OtherFormat(refusal.clone());
            assert!(list(root.path()).unwrap().iter().any(|listed| listed.integrity == integrity));
        };
        // With a manifest of that format.
        let text = manifest::Manifest::text(format, std::collections::BTreeMap::new()).unwrap();
        fs::write(newer.join(MANIFEST), text).unwrap();
        refused();
        // Without a manifest, but with the format in `state.json`.
        fs::remove_file(newer.join(MANIFEST)).unwrap();
        let text = fs::read_to_string(newer.join(STATE)).unwrap();
        let own = format!("\"format\": {FORMAT}");
        assert!(text.contains(&own), "{text}");
        fs::write(newer.join(STATE), text.replace(&own, &format!("\"format\": {format}"))).unwrap();
        refused();
    }
}

#[test]
fn a_manifest_leads_to_no_file_elsewhere() {
    let (_root, newer) = two();
    for name in ["../older/state.json", "/etc/hostname", ".", ""] {
        let sum = manifest::FileDigest { bytes: 0, blake3: String::new() };
        let text =
            manifest::Manifest::text(FORMAT, std::iter::once((name.to_owned(), sum)).collect()).unwrap();
        fs::write(newer.join(MANIFEST), text).unwrap();
        let error = verify(&newer).unwrap_err().to_string();
        assert!(error.contains("which is not a file name"), "{error}");
    }
}

#[test]
fn a_damaged_checkpoint_without_a_manifest_is_set_aside_and_everything_else_stays() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    let set_aside = || set_aside_damaged(&Faulty::never(), &path).unwrap();
    let write = |file: &str, text: &str| fs::write(path.join(file), text).unwrap();
    let gone = |file: &str| fs::remove_file(path.join(file)).unwrap();
    let ways: [(&str, bool, &dyn Fn()); 13] = [
        ("whole", false, &|| ()),
        ("only other files are damaged", false, &|| [STATE, WEIGHTS].iter().for_each(|file| write(file, ""))),
        ("the manifest is damaged", false, &|| {
            let text = fs::read_to_string(path.join(MANIFEST)).unwrap();
            write(MANIFEST, &text.replace("weights", "widgets"));
        }),
        ("the manifest cannot be read", false, &|| {
            gone(MANIFEST);
            fs::create_dir(path.join(MANIFEST)).unwrap();
        }),
        ("an older format without a manifest", false, &|| {
            gone(MANIFEST);
            write(STATE, "{\"format\": 1}");
        }),
        ("weights alone", false, &|| [MANIFEST, STATE].into_iter().for_each(gone)),
        ("another program's files", false, &|| {
            write(MANIFEST, "{\"name\": \"a web app\"}");
            write(STATE, "{}");
            write("index.html", "");
        }),
        ("a state that nothing else speaks for", false, &|| {
            [MANIFEST, WEIGHTS, OPTIMIZERS].into_iter().for_each(gone);
            write(STATE, "{}");
        }),
        ("the manifest is gone", true, &|| gone(MANIFEST)),
        ("the manifest is cut", true, &|| write(MANIFEST, "{\n  \"format\": 3")),
        ("only the state is left, with a note", true, &|| {
            [MANIFEST, WEIGHTS, OPTIMIZERS].into_iter().for_each(gone);
            write("note.txt", "why?");
        }),
        ("the manifest is cut and the state is gone", true, &|| {
            write(MANIFEST, "{");
            gone(STATE);
        }),
        ("everything is empty", true, &|| {
            for file in [MANIFEST, STATE, WEIGHTS, OPTIMIZERS] {
                write(file, "");
            }
        }),
    ];
    for (what, goes, damage) in ways {
        save(&Faulty::never(), &path, 1).unwrap();
        damage();
        let files = names(&path);
        assert_eq!(set_aside().is_some(), goes, "{what}");
        let now = if goes { root.path().join(".a.unreadable") } else { path.clone() };
        assert_eq!(names(&now), files, "{what}: nothing is lost");
        fs::remove_dir_all(now).unwrap();
        assert_eq!(names(root.path()), [""; 0], "{what}");
    }
    assert_eq!(set_aside(), None, "nothing is there");
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("b");
    save(&Faulty::never(), &target, 1).unwrap();
    fs::remove_file(target.join(MANIFEST)).unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert_eq!(set_aside(), None, "a link to a damaged checkpoint is replaced and not followed");
    assert_eq!((names(elsewhere.path()).as_slice(), path.is_symlink()), (["b".to_owned()].as_slice(), true));
}
