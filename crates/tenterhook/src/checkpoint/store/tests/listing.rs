//! Listing checkpoints and finding the newest.

use std::fs;

use super::faulty::Faulty;
use super::*;

/// Saves a checkpoint with these changes of `state.json`.
fn save_with(path: &Path, number: u64, changes: &serde_json::Value) {
    let mut state: serde_json::Value = serde_json::from_slice(&state(number)).unwrap();
    for (name, value) in changes.as_object().unwrap() {
        state[name] = value.clone();
    }
    let state = state.to_string().into_bytes();
    write(&Faulty::never(), path, &[(STATE, FileContent::Bytes(&state))]).unwrap();
}

#[test]
fn all_checkpoints_are_listed_newest_first() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    save(&Faulty::never(), &at("a"), 1).unwrap();
    save(&Faulty::never(), &at("emergency-epoch=1-step=30"), 3).unwrap();
    save(&Faulty::never(), &at("deep/er/b"), 2).unwrap();
    save_with(&at("light"), 4, &json!({ "weights_only": true, "metrics": { "latest": { "x": "nan" } } }));
    save(&Faulty::never(), &at(".hidden"), 5).unwrap();
    save(&Faulty::never(), &at("broken"), 6).unwrap();
    fs::write(at("broken").join(STATE), "{").unwrap();
    fs::create_dir(at("empty")).unwrap();
    set_link(&Faulty::never(), &at("latest"), &at("deep/er/b")).unwrap();
    set_link(&Faulty::never(), &at("last"), &at("deep/er/b")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
    let all = list(root.path()).unwrap();
    let names: Vec<_> = all.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names, ["light", "emergency-epoch=1-step=30", "deep/er/b", "a", "broken"]);
    assert_eq!(
        all.iter().map(|listed| listed.emergency).collect::<Vec<_>>(),
        [false, true, false, false, false]
    );
    assert_eq!(all[2].links, ["last", "latest"]);
    assert!(all.iter().enumerate().all(|(index, listed)| index == 2 || listed.links.is_empty()));
    let summary = all[2].summary.clone().unwrap();
    assert_eq!((summary.number, summary.step, summary.epoch, summary.weights_only), (2, 20, 1, false));
    assert_eq!(summary.metrics, [("val/loss".to_owned(), 0.5)].into());
    assert!(
        all[0].summary.as_ref().is_some_and(|summary| summary.weights_only && summary.metrics["x"].is_nan())
    );
    let files = [WEIGHTS, OPTIMIZERS, STATE, MANIFEST];
    let bytes: usize = files.iter().map(|file| fs::read(at("a").join(file)).unwrap().len()).sum();
    assert_eq!((all[3].bytes, &all[3].path), (bytes as u64, &at("a")));
    assert!(all[..4].iter().all(|listed| listed.integrity == Integrity::Whole));
    assert!(matches!(&all[4].integrity, Integrity::Damaged(why) if why.contains("broken/state.json")));
    assert_eq!(all[4].summary, None);
    assert!(list(&at("nowhere")).unwrap().is_empty());
}

#[test]
fn the_newest_has_the_largest_number_or_is_latest_if_there_are_no_numbers() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let newest = || newest_whole(root.path(), OnUnreadable::Stop).unwrap().path;
    assert_eq!(newest(), None);
    // As in format 1, which had no numbers.
    for (name, step) in [("a", 3), ("b", 1)] {
        save_with(&at(name), 0, &json!({ "progress": { "epoch": 0, "step": step } }));
    }
    assert_eq!(newest(), Some(at("a")), "the one with most steps");
    set_link(&Faulty::never(), &at("latest"), &at("b")).unwrap();
    assert_eq!(newest(), Some(at("b")), "or the one that is said to be");
    save(&Faulty::never(), &at("c"), 1).unwrap();
    assert_eq!(newest(), Some(at("c")), "but not when another was written later");
    save_with(&at("d"), 2, &json!({ "weights_only": true }));
    let found = newest_whole(root.path(), OnUnreadable::Stop).unwrap();
    assert_eq!(found, NewestCheckpoint { path: Some(at("c")), ..NewestCheckpoint::default() });
    remove(&Faulty::never(), &at("b")).unwrap();
    std::os::unix::fs::symlink("/nowhere", at("mine")).unwrap();
    assert_eq!(newest(), Some(at("c")), "links to what was removed, and links of others, are passed over");
}

#[test]
fn a_dangling_link_to_another_directory_is_an_unreadable_checkpoint() {
    for name in ["latest", "last"] {
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join(name);
        std::os::unix::fs::symlink("/not-mounted/epoch=7", &link).unwrap();
        let newest = |on_unreadable| newest_whole(root.path(), on_unreadable);
        let error = newest(OnUnreadable::Stop).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{}", link.display())) && error.contains("/not-mounted/epoch=7"),
            "{error}"
        );
        newest(OnUnreadable::Skip).expect_err("that there is none is not known");
        let near = root.path().join("near");
        save(&Faulty::never(), &near, 1).unwrap();
        newest(OnUnreadable::Stop).expect_err("it may be newer");
        let found = newest(OnUnreadable::Skip).unwrap();
        assert_eq!((found.path, &found.skipped[0].0), (Some(near.clone()), &link));
        assert!(matches!(&list(root.path()).unwrap()[1].integrity, Integrity::Unreadable(_)));
        assert_eq!(paths(root.path()).unwrap(), [near], "a link is no checkpoint itself");
    }
}

#[test]
fn a_checkpoint_in_another_directory_is_found_by_its_link() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let far = elsewhere.path().canonicalize().unwrap().join("far");
    save(&Faulty::never(), &far, 7).unwrap();
    save(&Faulty::never(), &root.path().join("near"), 6).unwrap();
    set_link(&Faulty::never(), &root.path().join("latest"), &far).unwrap();
    assert_eq!(newest_whole(root.path(), OnUnreadable::Stop).unwrap().path, Some(far.clone()));
    let all = list(root.path()).unwrap();
    assert_eq!((all[0].path.clone(), all[0].links.clone()), (far, vec!["latest".to_owned()]));
    assert_eq!(all[1].name, "near");
}

#[test]
fn a_checkpoint_that_is_replaced_repeatedly_is_never_found_damaged() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    save(&Faulty::never(), &path, 1).unwrap();
    std::thread::scope(|scope| {
        let saving =
            scope.spawn(|| (2..200).for_each(|number| save(&Faulty::never(), &path, number).unwrap()));
        while !saving.is_finished() {
            let all = list(root.path()).unwrap();
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].integrity, Integrity::Whole);
            assert_eq!(newest_whole(root.path(), OnUnreadable::Stop).unwrap().path.as_ref(), Some(&path));
        }
    });
}
