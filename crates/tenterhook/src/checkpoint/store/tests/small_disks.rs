//! A full and a read-only file system, both mounted by `.ci/run`.

use std::fs;

use super::*;

/// The directory in an environment variable, which CI sets.
fn directory(variable: &str, what: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_dir());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI must have a {what} (name one in {variable})");
        eprintln!("SKIPPED: there is no {what} (name one in {variable})");
    }
    found
}

#[test]
fn a_full_disk_is_reported_and_existing_files_are_kept() {
    let Some(disk) = directory("TENTERHOOK_SMALL_DISK", "directory on a disk of 1 MiB") else { return };
    let root = tempfile::tempdir_in(disk).unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    save(&RealDisk, &a, 1).unwrap();
    let large = vec![7; 4 << 20];
    for path in [&b, &a] {
        let files = [(STATE, FileContent::Bytes(&large))];
        let error = write(&RealDisk, path, &files).expect_err("it does not fit").to_string();
        assert!(error.contains("state.json: No space left on device"), "{error}");
        assert!(error.ends_with("; make room there, or choose another directory"), "{error}");
        assert_eq!((number_of(&a), names(root.path())), (1, vec!["a".to_owned()]), "it made room again");
    }
    // Another program has filled the disk to the last byte.
    let filler = root.path().join("filler");
    fs::write(&filler, &large).expect_err("it does not fit");
    let error = save(&RealDisk, &b, 2).expect_err("there is no room").to_string();
    assert!(error.contains("No space left on device"), "{error}");
    assert_eq!(newest_whole(root.path(), OnUnreadable::Stop).unwrap().path.as_ref(), Some(&a));
    fs::remove_file(filler).unwrap();
    save(&RealDisk, &b, 2).expect("there is room again");
    assert_eq!(newest_whole(root.path(), OnUnreadable::Stop).unwrap().path.as_ref(), Some(&b));
}

#[test]
fn a_read_only_disk_is_reported() {
    let what = "directory that is mounted read-only";
    let Some(root) = directory("TENTERHOOK_READ_ONLY", what) else { return };
    for (what, done) in [
        ("write checkpoint", save(&RealDisk, &root.join("a"), 1)),
        ("link checkpoint", set_link(&RealDisk, &root.join("latest"), &root.join("a"))),
    ] {
        let error = done.expect_err(what).to_string();
        assert!(error.starts_with(&format!("cannot {what} {}", root.display())), "{error}");
        let fix =
            "Read-only file system (os error 30); let this program write there, or choose another directory";
        assert!(error.ends_with(fix), "{error}");
    }
    clean_up(&RealDisk, &root).expect("there is nothing to tidy");
    assert_eq!(newest_whole(&root, OnUnreadable::Stop).unwrap(), NewestCheckpoint::default());
}
