//! Directories, files and links of other programs, and unreadable checkpoints.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::faulty::Faulty;
use super::*;

/// A directory of another user, with a file in it.
fn foreign(path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("thesis.txt"), "mine").unwrap();
}

fn is_untouched(path: &Path) -> bool {
    fs::read_to_string(path.join("thesis.txt")).is_ok_and(|text| text == "mine")
}

#[test]
fn only_checkpoints_and_links_are_removed_or_replaced() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    foreign(&at("theirs"));
    // Weights alone are no proof: many programs write such files.
    fs::write(at("theirs").join(WEIGHTS), "").unwrap();
    save(&Faulty::never(), &at("ours"), 1).unwrap();
    let disk = Faulty::never();
    for error in [
        remove(&disk, &at("theirs")).unwrap_err(),
        save(&disk, &at("theirs"), 2).unwrap_err(),
        set_link(&disk, &at("theirs"), &at("ours")).unwrap_err(),
    ] {
        assert!(error.to_string().contains("a directory without the manifest of a checkpoint; move it away"));
    }
    fs::write(at("theirs").join(MANIFEST), "{\"name\": \"a web app\"}").unwrap();
    remove(&disk, &at("theirs")).unwrap_err();
    fs::write(at("file"), "mine").unwrap();
    remove(&disk, &at("file")).unwrap_err();
    assert!(is_untouched(&at("theirs")));
    assert_eq!(names(root.path()), ["file", "ours", "theirs"]);
    remove(&disk, &at("ours")).unwrap();
    assert_eq!(names(root.path()), ["file", "theirs"]);
}

#[test]
fn a_link_under_the_name_of_a_checkpoint_or_of_an_unfinished_one_is_replaced_and_not_followed() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    foreign(outside.path());
    let at = |name: &str| root.path().join(name);
    for hidden in [".a.unfinished", ".a.removed", ".a.replaced", "a"] {
        symlink(outside.path(), at(hidden)).unwrap();
        save(&Faulty::never(), &at("a"), 1).unwrap();
        assert_eq!(number_of(&at("a")), 1, "{hidden}");
        remove(&Faulty::never(), &at("a")).unwrap();
        symlink(outside.path(), at(hidden)).unwrap();
        clean_up(&Faulty::never(), root.path()).unwrap();
        remove(&Faulty::never(), &at("a")).unwrap();
        assert_eq!(names(root.path()), [""; 0], "{hidden}");
        assert_eq!(names(outside.path()), ["thesis.txt"], "{hidden}");
    }
}

/// Makes a file unreadable.
type Spoil = fn(&Path);

#[test]
fn a_checkpoint_that_cannot_be_read_stops_unless_it_is_skipped() {
    // Not even root can read these.
    let fifo = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let circle = |path: &Path| symlink(path, path).unwrap();
    let ways: [(&str, Spoil); 8] = [
        ("newer/manifest.json", |path| fs::create_dir(path).unwrap()),
        ("newer/manifest.json", fifo),
        ("newer/manifest.json", |path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap()),
        ("newer/state.json", fifo),
        ("newer/state.json", |path| symlink("/dev/zero", path).unwrap()),
        ("newer/weights.safetensors", fifo),
        ("newer/weights.safetensors", circle),
        ("newer", circle),
    ];
    for (what, make) in ways {
        let root = tempfile::tempdir().unwrap();
        let newer = root.path().join("newer");
        save(&Faulty::never(), &root.path().join("older"), 1).unwrap();
        save(&Faulty::never(), &newer, 2).unwrap();
        RealDisk.remove(&root.path().join(what)).unwrap();
        make(&root.path().join(what));
        let error = newest_whole(root.path(), OnUnreadable::Stop).expect_err(what).to_string();
        let named = format!("cannot read checkpoint {}: ", root.path().join(what).display());
        assert!(error.starts_with(&named), "{what}: {error}");
        let newest = newest_whole(root.path(), OnUnreadable::Skip).expect(what);
        assert_eq!(newest.path, Some(root.path().join("older")), "{what}");
        assert_eq!(newest.skipped, [(newer.clone(), error.clone())], "{what}");
        let listed = list(root.path()).unwrap();
        let listed = listed.iter().find(|listed| listed.name == "newer").expect(what);
        assert_eq!(listed.integrity, Integrity::Unreadable(error.clone()), "{what}");
        assert!(largest_number(root.path()).expect(what) >= 1, "{what}");
        fs::remove_dir_all(root.path().join("older")).unwrap();
        let left = newest_whole(root.path(), OnUnreadable::Skip).expect_err("none is left").to_string();
        assert_eq!(left, error, "{what}");
    }
}

#[test]
fn a_directory_of_checkpoints_that_cannot_be_read_is_not_an_empty_one() {
    let root = tempfile::tempdir().unwrap();
    let (file, circle) = (root.path().join("file"), root.path().join("circle"));
    fs::write(&file, "").unwrap();
    symlink(&circle, &circle).unwrap();
    for directory in [&file, &circle] {
        let named = format!("cannot read checkpoint {}: ", directory.display());
        for error in [
            newest_whole(directory, OnUnreadable::Stop).unwrap_err(),
            newest_whole(directory, OnUnreadable::Skip).unwrap_err(),
            list(directory).unwrap_err(),
            paths(directory).unwrap_err(),
            largest_number(directory).unwrap_err(),
        ] {
            assert!(error.to_string().starts_with(&named), "{error}");
        }
        clean_up(&Faulty::never(), directory).unwrap_err();
    }
}
