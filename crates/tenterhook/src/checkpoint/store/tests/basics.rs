//! The store without faults.

use super::faulty::Faulty;
use super::*;

#[test]
fn everything_is_synced_before_it_gets_its_name_and_the_older_one_is_removed_last() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    let fill = [
        "make .a.unfinished",
        "write weights.safetensors",
        "write optimizer.safetensors",
        "write state.json",
        "write manifest.json",
        "sync weights.safetensors",
        "sync optimizer.safetensors",
        "sync state.json",
        "sync manifest.json",
        "sync .a.unfinished",
    ];
    let root_name = root.path().file_name().unwrap().to_string_lossy();
    let sync_root = format!("sync {root_name}");
    for (number, then) in [
        (1, vec!["rename to a", &sync_root]),
        (2, vec!["exchange with a", &sync_root, "remove .a.unfinished"]),
    ] {
        let disk = Faulty::never();
        save(&disk, &path, number).unwrap();
        assert_eq!(disk.asked(), [&fill[..], &then].concat());
        assert_eq!(number_of(&path), number);
    }
    let disk = Faulty::never().without_exchange();
    save(&disk, &path, 3).unwrap();
    let then = vec!["rename to .a.replaced", "rename to a", &sync_root, "remove .a.replaced"];
    assert_eq!(disk.asked(), [&fill[..], &then].concat());
    assert_eq!((number_of(&path), names(root.path())), (3, vec!["a".to_owned()]));
    let disk = Faulty::never();
    remove(&disk, &path).unwrap();
    assert_eq!(disk.asked(), ["rename to .a.removed", &sync_root, "remove .a.removed"]);
    remove(&disk, &path).expect("that it is gone already is no error");
    assert!(names(root.path()).is_empty());
}

#[test]
fn the_current_name_is_synced_before_leftovers_of_a_killed_process_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    save(&RealDisk, &path, 2).unwrap();
    let sync_root = format!("sync {}", root.path().file_name().unwrap().to_string_lossy());
    for tidied in [false, true] {
        // The older checkpoint, right after the exchange of names.
        save(&RealDisk, &root.path().join(".a.unfinished"), 1).unwrap();
        let disk = Faulty::never();
        if tidied { clean_up(&disk, root.path()) } else { save(&disk, &path, 3) }.unwrap();
        assert_eq!(disk.asked()[..2], [&*sync_root, "remove .a.unfinished"]);
        assert_eq!(names(root.path()), ["a"]);
    }
}

#[test]
fn directories_on_the_way_are_made_and_synced_one_by_one() {
    let root = tempfile::tempdir().unwrap();
    let disk = Faulty::never();
    save(&disk, &root.path().join("x/y/a"), 1).unwrap();
    let root_name = root.path().file_name().unwrap().to_string_lossy();
    let expected = ["make y".to_owned(), format!("sync {root_name}"), "sync x".to_owned()];
    assert_eq!(disk.asked()[..3], expected);
    assert_eq!(number_of(&root.path().join("x/y/a")), 1);
}

#[test]
fn tensors_that_cannot_be_written_are_refused_before_anything_is_touched() {
    let root = tempfile::tempdir().unwrap();
    let mut tensors = TensorMap::default();
    let (dtype, shape, bytes) = (tenterhook_core::DType::F16, vec![2], vec![0; 3]);
    tensors.insert("w", crate::tensors::TensorBytes { dtype, shape, bytes: bytes.into() });
    let error = FileContent::tensors(&root.path().join("a").join(WEIGHTS), &tensors).err().unwrap();
    assert!(error.ends_with("a/weights.safetensors: tensor `w`: F16[2] cannot have 3 bytes"), "{error}");
}

#[test]
fn a_link_atomically_replaces_a_link_or_checkpoint_of_its_name() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for (name, number) in [("a", 1), ("x/b", 2), ("last", 3)] {
        save(&RealDisk, &at(name), number).unwrap();
    }
    let disk = Faulty::never();
    // A new name, an existing link, and an existing checkpoint.
    for (link, target, number) in [("latest", "a", 1), ("latest", "x/b", 2), ("last", "a", 1)] {
        set_link(&disk, &at(link), &at(target)).unwrap();
        assert_eq!(std::fs::read_link(at(link)).unwrap(), Path::new(target), "the directory can be moved");
        assert_eq!(number_of(&at(link)), number);
    }
    assert_eq!(names(root.path()), ["a", "last", "latest", "x"]);
    let switches: Vec<_> = disk.asked().into_iter().filter(|asked| asked.contains(" la")).collect();
    assert_eq!(switches, ["rename to latest", "rename to latest", "exchange with last"]);
    let elsewhere = tempfile::tempdir().unwrap();
    set_link(&RealDisk, &elsewhere.path().join("latest"), &at("a")).unwrap();
    assert_eq!(number_of(&elsewhere.path().join("latest")), 1);
    remove(&RealDisk, &at("last")).unwrap();
    assert_eq!(number_of(&at("a")), 1, "only the link is gone");
}

#[test]
fn the_manifest_says_what_every_file_is() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    save(&RealDisk, &path, 1).unwrap();
    let text = std::fs::read_to_string(path.join(MANIFEST)).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(manifest["format"], FORMAT);
    let files = manifest["files"].as_object().unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), [OPTIMIZERS, STATE, WEIGHTS]);
    for (name, sum) in files {
        let bytes = std::fs::read(path.join(name)).unwrap();
        assert_eq!(sum["bytes"], bytes.len());
        assert_eq!(sum["blake3"], blake3::hash(&bytes).to_hex().as_str());
    }
    let own = manifest["blake3"].as_str().unwrap();
    let zeroed = text.replace(own, &"0".repeat(64));
    assert_eq!(blake3::hash(zeroed.as_bytes()).to_hex().as_str(), own);
}

#[test]
fn a_clean_up_keeps_unknown_names() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let kept = [".gitignore", ".notes/.a.unfinished", "x/a", "unfinished"];
    for name in kept.iter().chain(&[".a.unfinished/junk", "x/.b.c.removed/junk", ".last.unfinished"]) {
        std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        std::fs::write(at(name), "").unwrap();
    }
    clean_up(&RealDisk, root.path()).unwrap();
    assert_eq!(names(root.path()), [".gitignore", ".notes", "unfinished", "x"]);
    assert_eq!(names(&at("x")), ["a"]);
    assert_eq!(names(&at(".notes")), [".a.unfinished"]);
    clean_up(&RealDisk, &at("nowhere")).expect("nothing to do");
}
